"""Optional part of the layered-model protocol: attention weights and OV circuits."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from icltheory._named_errors import named_errors
from icltheory._typing import Array, Float
from icltheory.layered.protocol import LayeredModel, all_hidden

__all__ = ["AttentionReadable", "OVFactors", "attention_patterns"]


class OVFactors(NamedTuple):
    """Input and output matrices of each head; its circuit is ``W_O[h] @ W_V[h]``.

    Args:
        W_O: Into the residual stream, ``(heads, n, head_dim)``.
        W_V: Out of what enters the block, ``(heads, head_dim, n)``.

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
        """Attention weights of each token to each token, by head of one block.

        Args:
            layer: Number of the block.
            params: Parameters of the whole model.
            hidden: Hidden state that enters it.

        Returns:
            Weights; rows are queries, columns are keys.
        """
        ...

    def ov_factors(self, layer: int, params: Any) -> OVFactors:
        """OV circuits of the heads of one block, without biases.

        A norm in front of the block is folded in as far as it is linear: its scale and
        its centring, not its division by the size.

        Args:
            layer: Number of the block.
            params: Parameters of the whole model.

        Returns:
            The two factors of every head.
        """
        ...


@named_errors
def attention_patterns(
    model: LayeredModel, params: Any, inputs: Any
) -> tuple[Float[Array, "*batch heads T T"], ...]:
    """Attention weights of every block on the same inputs.

    Args:
        model: A layered model that can be read.
        params: Its parameters.
        inputs: Its inputs.

    Returns:
        One array a block.

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
