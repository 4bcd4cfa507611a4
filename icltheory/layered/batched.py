"""Converts a layered model of one prompt to one of a batch of prompts."""

import dataclasses
from typing import Any

import jax

from icltheory.layered.matrices import MatrixSpec
from icltheory.layered.protocol import LayeredModel

__all__ = ["Batched"]


@dataclasses.dataclass(frozen=True)
class Batched:
    """A layered model on a batch: inputs, states and outputs gain a leading axis.

    The parameters and the weight matrices are those of the model inside.

    Args:
        model: A layered model that takes one prompt, such as
            :class:`~icltheory.layered.LayeredStack`.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack, forward
        >>> I = jnp.eye(1)[None]
        >>> params = LinearAttentionStack(I, I, I)
        >>> model = Batched(LayeredStack.of(params))
        >>> prompts = (jnp.ones((2, 3, 1)), jnp.array([[1.0], [2.0]]))
        >>> forward(model, params, prompts).tolist()
        [[4.0], [8.0]]
    """

    model: LayeredModel

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return self.model.num_layers

    def embed(self, params: Any, inputs: Any) -> Any:
        """The hidden states that enter block 0, one for each prompt."""
        return jax.vmap(self.model.embed, (None, 0))(params, inputs)

    def block(self, layer: int, params: Any, hidden: Any) -> Any:
        """Applies one block to every prompt."""

        def one(params, hidden):
            return self.model.block(layer, params, hidden)

        return jax.vmap(one, (None, 0))(params, hidden)

    def read_out(self, params: Any, hidden: Any) -> Any:
        """Outputs, one for each prompt."""
        return jax.vmap(self.model.read_out, (None, 0))(params, hidden)

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The weight matrices of the wrapped model."""
        return self.model.matrices(layer)
