"""Random orthogonal matrices by Householder reflections, without a decomposition."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from icltheory._typing import Array, Float, PRNGKey


def random_orthogonal(key: PRNGKey, size: int, dtype) -> Float[Array, "n n"]:
    """Draws a matrix from the Haar measure on O(n).

    Stewart's product of reflections: reflection i takes a Gaussian vector of the last
    n - i coordinates to the axis i. Batches of LAPACK calls are avoided, so that stacks
    of them may be drawn inside any loop.
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
