"""Models whose attention can be read, and attention stacks as layered models."""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from icltheory._checks import check_choice
from icltheory._typing import Array, Float, Mask
from icltheory.attention import MASKS, AttentionStack, LayerOutput
from icltheory.attention._layer import as_tokens
from icltheory.layered.matrices import MatrixSpec, get_matrix
from icltheory.layered.protocol import LayeredModel, all_hidden


class OVFactors(NamedTuple):
    """Output and input matrices of each head; its circuit is ``W_O[h] @ W_V[h]``.

    Source: Olsson et al. (2022), the OV circuit.
    """

    W_O: Float[Array, "heads n head_dim"]
    W_V: Float[Array, "heads head_dim n"]


@runtime_checkable
class AttentionReadable(LayeredModel, Protocol):
    """A layered model whose attention weights and OV circuits can be read.

    Source: Olsson et al. (2022).
    """

    def attention_weights(
        self, layer: int, params: Any, hidden: Any
    ) -> Float[Array, "*batch heads T T"]:
        """Attention weights of one block on what enters it; rows are queries."""
        ...

    def ov_factors(self, layer: int, params: Any) -> OVFactors:
        """OV circuits of the heads of one block, without biases.

        A norm in front of the block is folded in as far as it is linear: its scale and
        its centring, not its division by the size.
        """
        ...


def attention_patterns(
    model: LayeredModel, params: Any, inputs: Any
) -> tuple[Float[Array, "*batch heads T T"], ...]:
    """Attention weights of every block on the same inputs.

    Source: Olsson et al. (2022).
    """
    readable = check_readable(model)
    states = all_hidden(model, params, inputs)[:-1]
    return tuple(
        readable.attention_weights(layer, params, hidden)
        for layer, hidden in enumerate(states)
    )


def check_readable(model: LayeredModel) -> AttentionReadable:
    """Returns the model; raises unless its attention can be read."""
    if not isinstance(model, AttentionReadable):
        raise ValueError(
            "model: expected attention_weights and ov_factors in addition to the "
            f"layered protocol, got {type(model).__name__}"
        )
    return model


@dataclasses.dataclass(frozen=True)
class LayeredStack:
    """The layered model whose parameters are an attention stack.

    Inputs and hidden states are ``(H, h_query)``, the output is the query token after
    the last layer.

    Args:
        groups: Name and group of each weight matrix.
        scale: Factor on the attention sum of every layer, the papers' 1/N.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import forward
        >>> I = jnp.stack([jnp.eye(1)] * 2)
        >>> params = LinearAttentionStack(I, I, I)
        >>> model = LayeredStack.of(params)
        >>> forward(model, params, (jnp.ones((1, 1)), jnp.ones(1))).tolist()
        [10.0]
        >>> [(spec.name, spec.path) for spec in model.matrices(1)]
        [('W_V', ('W_V', 1)), ('W_K', ('W_K', 1)), ('W_Q', ('W_Q', 1))]

    Source: Yao et al. (2024), section 3.1.
    """

    num_layers: int
    groups: tuple[tuple[str, str], ...]
    mask: Mask = "demos"
    scale: float = 1.0

    def __post_init__(self):
        check_choice("mask", self.mask, MASKS)

    @classmethod
    def of(
        cls, stack: AttentionStack, *, mask: Mask = "demos", scale: float = 1.0
    ) -> "LayeredStack":
        """Returns the layered model whose parameters are stacks such as this one."""
        return cls(stack.num_layers, tuple(stack.groups.items()), mask, scale)

    def embed(self, params: AttentionStack, inputs: Any) -> LayerOutput:
        """Returns the tokens unchanged."""
        H, h_query = inputs
        return LayerOutput(*as_tokens(H, h_query, params.width))

    def block(
        self, layer: int, params: AttentionStack, hidden: LayerOutput
    ) -> LayerOutput:
        """Applies one attention layer."""
        return params.layer(layer, *hidden, self.mask, scale=self.scale)

    def read_out(
        self, params: AttentionStack, hidden: LayerOutput
    ) -> Float[Array, " n"]:
        """Returns the query token."""
        return hidden.h_query

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The weight matrices of one layer: slices of leaves with a layer axis."""
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"layer: expected 0 to {self.num_layers - 1}, got {layer}")
        return tuple(MatrixSpec(name, g, (name, layer)) for name, g in self.groups)

    def attention_weights(
        self, layer: int, params: AttentionStack, hidden: LayerOutput
    ) -> Float[Array, "heads P P"]:
        """Attention weights of each head, masked and without scale."""
        found = params.weights(layer, *hidden, self.mask)
        return found if found.ndim == 3 else found[None]

    def ov_factors(self, layer: int, params: AttentionStack) -> OVFactors:
        """Value matrix as the OV circuit of the single head."""
        specs = {spec.name: spec for spec in self.matrices(layer)}
        if "mlp" in dict(self.groups).values():
            kind = type(params).__name__
            raise ValueError(f"params: expected an attention-only stack, got {kind}")
        W_V = get_matrix(params, specs["W_V"])
        return OVFactors(jnp.eye(len(W_V), dtype=W_V.dtype)[None], W_V[None])
