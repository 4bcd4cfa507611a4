"""Out-of-domain patterns: orthogonal combinations with a given coefficient sum."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    finite,
    is_tracer,
    scalar,
)
from icltheory._core import calculator
from icltheory._typing import Array, Bool, Float, PRNGKey

GUARD = 1e-6  # relative tolerance for M1' S_1^2 <= M1
_close = Check(
    lambda off: off <= 1e-4, "orthogonal rows of one norm up to a deviation of 1e-4"
)


def _orthogonal(name, patterns, given):
    check_shape(name, patterns, ("M1", "d"))
    if is_tracer(patterns):
        gram = jnp.matmul(patterns, patterns.T, precision="highest")
    else:
        gram = np.asarray(patterns) @ np.asarray(patterns).T
    off = gram / gram[0, 0] - np.eye(len(gram), dtype=gram.dtype)
    return _close(name, abs(off).max())


def _sum(name, value, given):
    """The check of S_1; that a traced one is feasible is told by ``is_feasible``."""
    flag = (scalar & finite)(name, value)
    num = given["num_shifted"]
    check_positive_int("num_shifted", num)
    M = len(given["patterns"])
    if num > M:
        raise ValueError(f"num_shifted: expected M1' <= M1 = {M}, got {num}")
    if is_tracer(value):
        return flag
    square = num * float(value) ** 2
    if square > M * (1 + GUARD):
        raise ValueError(f"{name}: expected M1' S_1^2 <= M1 = {M}, got {square}")
    if num == M and square < M * (1 - GUARD):
        expected = f"M1' S_1^2 = M1 = {M} where M1' = M1"
        raise ValueError(f"{name}: expected {expected}, got {square}")
    return True


@calculator(static=("num_shifted",), patterns=_orthogonal, coefficient_sum=_sum)
def out_of_domain_patterns(
    patterns: Float[ArrayLike, "_M d"],
    num_shifted: int,
    coefficient_sum: Real[ArrayLike, ""],
    *,
    key: PRNGKey,
) -> Float[Array, "num d"]:
    r"""Draws orthogonal patterns in the span of others, with one coefficient sum.

    .. math:: \mu'_j = \sum_{i=1}^{M_1} k_{ji} \mu_i , \qquad \sum_i k_{ji} = S_1 ,
        \qquad \langle \mu'_j, \mu'_k \rangle = \beta^2 \delta_{jk} .

    The M1' new patterns, rows as the M1 orthogonal old ones of norm beta, are uniform
    on all that there are:

    .. math:: k = \frac{1}{\sqrt n} \mathbf 1
        \Bigl( \sqrt n\, c\, u + \sqrt{1 - n c^2}\, w_0 \Bigr)^\top + V W^\top , \qquad
        c = \frac{S_1}{\sqrt{M_1}} , \quad u = \frac{\mathbf 1}{\sqrt{M_1}} ,

    with n = M1', V an orthonormal basis of the vectors of n entries that sum to 0, and
    (w_0, W) random orthonormal vectors orthogonal to u. If S_1 is traced and not
    feasible, the rows keep their sum and are not orthonormal.

    Example:
        >>> new = out_of_domain_patterns(2 * jnp.eye(6), 3, 1.3, key=jax.random.key(0))
        >>> (new.sum(1) / 2).round(4).tolist()
        [1.3, 1.3, 1.3]
        >>> (new @ new.T).round(4).tolist() == (4 * jnp.eye(3)).tolist()
        True

    Source: Li et al. (2024), Theorem 2.
    """
    patterns = jnp.asarray(patterns)
    sizes = len(patterns), num_shifted, coefficient_sum, patterns.dtype
    return _coefficients(key, *sizes) @ patterns


@calculator(static=("num_relevant", "num_shifted"))
def is_feasible(
    num_relevant: int, num_shifted: int, coefficient_sum: Real[ArrayLike, "*B"]
) -> Bool[Array, "*B"]:
    r"""Whether M1' orthogonal patterns of coefficient sum S_1 exist, for each S_1.

    .. math:: M_1' S_1^2 \le M_1 , \qquad M_1' < M_1 ; \qquad
        S_1^2 = 1 \ \text{ if } M_1' = M_1 .

    Example:
        >>> [bool(is_feasible(6, n, 1.3)) for n in (3, 4)]
        [True, False]
        >>> [bool(is_feasible(6, 6, S)) for S in (1.0, 0.9, -1.0)]
        [True, False, True]

    Source: Li et al. (2024), Theorem 2.
    """
    check_positive_int("num_relevant", num_relevant)
    check_positive_int("num_shifted", num_shifted)
    excess = num_shifted * jnp.asarray(coefficient_sum) ** 2 / num_relevant - 1
    if num_shifted == num_relevant:
        return jnp.abs(excess) <= GUARD
    return (excess <= GUARD) & (num_shifted < num_relevant)


def _coefficients(key, num_relevant, num_shifted, coefficient_sum, dtype):
    M, n = num_relevant, num_shifted
    O = random_orthogonal(key, M - 1, dtype) if M > 1 else jnp.zeros((0, 0), dtype)
    W = jnp.asarray(complement(M), dtype) @ O  # orthonormal, orthogonal to u
    W = jnp.concatenate([W, jnp.zeros((M, 1), dtype)], axis=1)  # no w_0 where n = M1
    S = jnp.asarray(coefficient_sum, dtype)
    rest = jnp.sqrt(jnp.maximum(1 - n * S**2 / M, 0))
    common = S / M + rest * n**-0.5 * W[:, n - 1]
    return common[None] + jnp.asarray(complement(n), dtype) @ W[:, : n - 1].T


@functools.partial(jax.jit, static_argnums=(1, 2))
def random_orthogonal(key: PRNGKey, size: int, dtype: Any) -> Float[Array, "n n"]:
    """Draws a matrix from the Haar measure on O(n): Stewart's product of reflections.

    Without LAPACK, whose batches are slow, stacks may be drawn inside any loop.
    """
    draws = jnp.triu(jax.random.normal(key, (size, size), dtype))
    signs = jnp.where(jnp.diagonal(draws) < 0, -1, 1).astype(dtype)

    def reflect(Q, row):
        g, sign, axis = row
        v = g + sign * jnp.linalg.norm(g) * axis
        square = jnp.sum(v**2)
        Q = Q - 2 / jnp.where(square > 0, square, 1) * jnp.outer(Q @ v, v)
        return Q, None

    start = jnp.eye(size, dtype=dtype)
    Q, _ = lax.scan(reflect, start, (draws, signs, start))
    return -Q * signs[:, None]


def complement(size: int) -> Float[np.ndarray, "n k"]:
    """Orthonormal basis of the vectors whose entries sum to 0, ``(n, n - 1)``."""
    u = np.full(size, size**-0.5)
    v = u - np.eye(size)[0]
    H = np.eye(size) - np.outer(v, v) / max(1 - u[0], np.finfo(float).tiny)
    return H[:, 1:]
