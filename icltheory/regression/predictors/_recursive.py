"""Regression weights for all prefixes, by rank-one updates of a square root.

Both recursions carry a root S of the coefficient covariance, C = S S^T, instead of C
itself, so the error grows with the condition number of X and not with its square.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._linalg import dot, einsum

Emit = Callable[[Array, Array], Array]
ROUNDINGS = 16  # allowed rounding of a dependent row, in units of eps


def least_squares_path(X: Array, y: Array, emit: Emit = lambda w, basis: w) -> Array:
    """Applies ``emit(w, basis)`` to minimum-norm least squares before each row.

    Greville's recursion: a row outside the span of the earlier ones opens a new
    direction, any other row updates the fit. A row counts as dependent when its
    residual is no larger than the rounding of the data explains, each column in units
    of its largest entry so far. The rows of ``basis``
    are an orthonormal basis of the rows seen, and zeros.
    """
    dim = X.shape[1]
    # A residual contains the rounding errors of its row and of earlier rows (times
    # their coefficients, of norm |v|), and the tilt of the basis: a direction from a
    # small residual is known only to that relative accuracy.
    eps = jnp.finfo(X.dtype).eps
    tolerance = (ROUNDINGS * eps) ** 2
    # What three projections leave of x inside the span is eps^3, and a new direction
    # divides it by its size twice.
    least = eps**3

    def step(state, row):
        w, S, basis, rank, units, largest, tilt = state
        x, target = row
        residual = x
        for _ in range(3):  # the second is not enough for columns of different units
            residual = residual - einsum("ji,jk,k->i", basis, basis, residual)
        v = einsum("ij,i->j", S, x)
        Sv = einsum("ij,j->i", S, v)
        leverage = dot(v, v)
        size = dot(residual, residual)
        units = jnp.maximum(units, jnp.abs(x))
        inverse = jnp.where(units > 0, 1 / jnp.where(units > 0, units, 1), 0)
        outside, length = (dot(a, a) for a in (residual * inverse, x * inverse))
        largest = jnp.maximum(largest, length)
        noise = leverage * largest + length
        along = einsum("ji,i->j", basis, x)[:, None] * basis * inverse[None]
        noise = noise + dot(tilt, jnp.sum(jnp.square(along), axis=1))
        new = (rank < dim) & (outside > tolerance * noise) & (size > least * dot(x, x))
        opening = residual / jnp.where(new, size, 1)
        slot = (jnp.arange(dim) == rank) & new
        gain = jnp.where(new, opening, Sv / (1 + leverage))
        column = jnp.where(new, opening, Sv / (1 + leverage + jnp.sqrt(1 + leverage)))
        S = S - column[:, None] * v[None, :]
        S = jnp.where(slot[None, :], opening[:, None], S)
        unit = residual / jnp.sqrt(jnp.where(new, size, 1))
        grown = jnp.where(slot[:, None], unit[None, :], basis)
        moved = w + gain * (target - dot(w, x))
        tilt = jnp.where(slot, noise / jnp.where(new, outside, 1), tilt)
        return (moved, S, grown, rank + new, units, largest, tilt), emit(w, basis)

    zeros = jnp.zeros((dim, dim), X.dtype)
    start = (
        zeros[0],
        zeros,
        zeros,
        jnp.zeros((), int),
        zeros[0],
        zeros[0, 0],
        zeros[0],
    )
    return jax.lax.scan(step, start, (X, y))[1]


def posterior_path(
    X: Array,
    y: Array,
    mean: Array,
    root: Array,
    noise_var: Array,
    emit: Emit = lambda w, S: w,
) -> Array:
    """Applies ``emit(w, S)`` to the Gaussian posterior N(w, S S^T) before each row.

    Potter's square-root form of the Kalman update, from the prior N(mean, root root^T).
    """
    floor = (max(X.shape) * jnp.finfo(X.dtype).eps) ** 2
    variances = jnp.sum(jnp.square(root), axis=1)

    def step(state, row):
        w, S = state
        x, target = row
        v = einsum("ij,i->j", S, x)
        Sv = einsum("ij,j->i", S, v)
        variance = noise_var + dot(v, v)
        informative = variance > floor * dot(variances, x * x)
        variance = jnp.where(informative, variance, 1)
        shrink = variance + jnp.sqrt(variance * noise_var)
        Sv = jnp.where(informative, Sv, 0)
        moved = w + (Sv / variance) * (target - dot(w, x))
        return (moved, S - (Sv / shrink)[:, None] * v[None, :]), emit(w, S)

    return jax.lax.scan(step, (mean, root), (X, y))[1]
