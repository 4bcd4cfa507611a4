"""Prompts of pattern classification: what they consist of, and how they are drawn."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._core import Record
from icltheory._typing import Array, Bool, Float, Int, PRNGKey


class PatternPrompt(Record):
    r"""A batch of prompts of equation (6), tokens as rows.

    .. math:: p_i = (x_i;\, y_i q) , \qquad p_{query} = (x_{query};\, 0) .

    ``pattern`` and ``query_pattern`` are numbers of relevant patterns, ``pair`` is the
    task (a, b), ``z`` the label of the query, and ``feasible`` says whether patterns of
    this coefficient sum exist.

    Example:
        >>> from icltheory.patterns import PatternTask
        >>> prompt = PatternTask(6, 24, 2.0).sample(jax.random.key(0), 20, 5)
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
    dim: int = eqx.field(static=True)

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
    def y_query(self) -> Float[Array, "*B"]:
        """Label of the query, by the name that regression has for it."""
        return self.z

    @property
    def same(self) -> Bool[Array, "*B l"]:
        """Which contexts share the query's pattern."""
        return self.pattern == self.query_pattern[..., None]

    @property
    def missed(self) -> Bool[Array, "*B"]:
        """Whether no context shares the query's pattern."""
        return ~jnp.any(self.same, axis=-1)


def draw(task: Any, key: PRNGKey, num_examples: int, num_prompts: int) -> PatternPrompt:
    """Draws prompts from the patterns and tasks of a PatternTask."""
    l, B, dtype = num_examples, num_prompts, task.dtype
    keys = jax.random.split(key, 6)
    chosen = jax.random.randint(keys[0], (B,), 0, len(task.tasks))
    pair = jnp.asarray(task.tasks, jnp.int32)[chosen]
    alpha = jnp.asarray(task.relevant_fraction, dtype)
    pattern = _patterns(keys[1], pair, task.num_relevant, l, alpha)
    coin = jax.random.rademacher(keys[2], (B, l), dtype)
    a, b = pair[:, :1], pair[:, 1:]
    y = jnp.where(pattern == a, 1, jnp.where(pattern == b, -1, coin)).astype(dtype)
    z = jax.random.rademacher(keys[3], (B,), dtype)
    query_pattern = jnp.where(z > 0, pair[:, 0], pair[:, 1])
    return PatternPrompt(
        _tokens(keys[4], task, pattern, y),
        _tokens(keys[5], task, query_pattern, jnp.zeros(B, dtype)),
        y,
        z,
        pattern,
        query_pattern,
        pair,
        jnp.broadcast_to(task.feasible, (B,)),
        task.dim,
    )


def _patterns(key, pair, num_relevant, num_examples, alpha):
    """Draws each context's pattern: one of the pair, or any of the others."""
    shape = (pair.shape[0], num_examples)
    first, second = jax.random.split(key)
    u = jax.random.uniform(first, shape, alpha.dtype)
    a, b = pair[:, :1], pair[:, 1:]
    if num_relevant == 2:  # there are no other patterns
        return jnp.where(u < 0.5, a, b)
    other = jax.random.randint(second, shape, 0, num_relevant - 2, pair.dtype)
    other = other + (other >= jnp.minimum(a, b))  # skips the pair
    other = other + (other >= jnp.maximum(a, b))
    return jnp.where(u < alpha / 2, a, jnp.where(u < alpha, b, other))


def _tokens(key, task, pattern, y):
    """Rows (mu_j + kappa nu_k; y q)."""
    first, second = jax.random.split(key)
    which = jax.random.randint(first, pattern.shape, 0, task.num_irrelevant)
    kappa = jax.random.uniform(second, pattern.shape, task.dtype, -1, 1)
    # A share that is wrong and was traced is NaN, which the choice of patterns hides.
    size = task.noise + 0 * task.relevant_fraction
    kappa = jnp.asarray(size, task.dtype) * kappa
    X = task.relevant[pattern] + kappa[..., None] * task.irrelevant[which]
    q = task.label_embedding.reshape((1,) * y.ndim + (-1,))
    return jnp.concatenate([X, y[..., None] * q], axis=-1)
