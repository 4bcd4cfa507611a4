"""Prompts of pattern classification, with the patterns and tasks they consist of."""

import jax.numpy as jnp

from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Bool, Float, Int

__all__ = ["PatternPrompt"]


@pytree
class PatternPrompt:
    r"""A batch of prompts of equation (6), tokens as rows.

    .. math:: p_i = (x_i;\, y_i q) , \qquad p_{query} = (x_{query};\, 0) .

    The pattern indices count within the relevant patterns of the task that drew them:
    the out-of-domain ones if the prompt is out of domain.

    Args:
        P: Contexts p_i, ``(B, l, d_X + d_Y)``.
        P_query: Query, ``(B, d_X + d_Y)``.
        y: Labels of the contexts, +1 or -1, ``(B, l)``.
        z: Label of the query, ``(B,)``.
        pattern: Relevant pattern of each context, ``(B, l)``.
        query_pattern: Relevant pattern of the query, ``(B,)``.
        pair: The task (a, b): +1 on a, -1 on b, ``(B, 2)``.
        feasible: Whether patterns of this coefficient sum exist; true in domain,
            ``(B,)``.
        dim: Width d_X of the features.

    Returns:
        A frozen pytree; every leaf has the same leading axes.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTask
        >>> prompt = PatternTask(6, 24, 2.0).sample(jax.random.key(0), 5, 20, 0.8)
        >>> prompt.P.shape, prompt.X.shape, prompt.num_examples
        ((5, 20, 60), (5, 20, 30), 20)

    Source: Li et al. (2024), equation (6).
    """

    P: Float[Array, "*B l D"]
    P_query: Float[Array, "*B D"]
    y: Float[Array, "*B l"]
    z: Float[Array, "*B"]
    pattern: Int[Array, "*B l"]
    query_pattern: Int[Array, "*B"]
    pair: Int[Array, "*B 2"]
    feasible: Bool[Array, "*B"]
    dim: int = static_field()

    @property
    def num_examples(self) -> int:
        """Number l of contexts."""
        return self.P.shape[-2]

    @property
    def X(self) -> Float[Array, "*B l d"]:
        """Features of the contexts."""
        return self.P[..., : self.dim]

    @property
    def x_query(self) -> Float[Array, "*B d"]:
        """Features of the query."""
        return self.P_query[..., : self.dim]

    @property
    def same(self) -> Bool[Array, "*B l"]:
        """Which contexts share the query's pattern."""
        return self.pattern == self.query_pattern[..., None]

    @property
    def missed(self) -> Bool[Array, "*B"]:
        """Whether no context shares the query's pattern."""
        return ~jnp.any(self.same, axis=-1)
