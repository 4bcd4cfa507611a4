"""Draws prompts: the task, each context's pattern and label, and the noise."""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_nonnegative_int, check_positive_int, check_shape
from icltheory._noted import check_unit, check_values
from icltheory._typing import PRNGKey
from icltheory.patterns.prompts import PatternPrompt


def prompts(
    task: Any, key: PRNGKey, batch_size: int, num_examples: int, relevant_fraction: Any
) -> PatternPrompt:
    """Draws prompts from the patterns and tasks of a PatternTask."""
    check_positive_int("batch_size", batch_size)
    check_nonnegative_int("num_examples", num_examples)
    check_fraction(relevant_fraction, task.num_relevant)
    B, l, dtype = batch_size, num_examples, task.dtype
    keys = jax.random.split(key, 6)
    chosen = jax.random.randint(keys[0], (B,), 0, len(task.tasks))
    pair = jnp.asarray(task.tasks, jnp.int32)[chosen]
    alpha = jnp.asarray(relevant_fraction, dtype)
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
    kappa = jnp.asarray(task.noise, task.dtype) * kappa
    X = task.relevant[pattern] + kappa[..., None] * task.irrelevant[which]
    q = task.label_embedding.reshape((1,) * y.ndim + (-1,))
    return jnp.concatenate([X, y[..., None] * q], axis=-1)


def check_fraction(value: Any, num_relevant: int) -> None:
    """Raises unless it is a share; it must be 1 without other patterns."""
    check_shape("relevant_fraction", value, ())
    check_unit("relevant_fraction", value)
    if num_relevant == 2:
        check_values(
            "relevant_fraction",
            value,
            lambda share: share == 1,
            "1 where there are two patterns",
        )
