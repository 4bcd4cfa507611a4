"""Nearest neighbours, and the Bayes predictor of a finite pool of tasks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    checked,
    finite,
    scalar,
)
from icltheory._typing import Array
from icltheory.regression._linalg import as_floats, einsum
from icltheory.regression.predictors.base import Predictor, before, shift_down

__all__ = ["DiscreteMMSE", "NearestNeighbors"]

_POSITIVE = Check(
    lambda variance: variance > 0,
    "a value > 0 (the noiseless posterior is decided by rounding; use a small positive "
    "variance)",
)


class NearestNeighbors(Predictor):
    r"""Mean label of the k examples nearest to the query.

    .. math:: \hat y = \frac1m \sum_{i \in S} y_i, \qquad m = \min(k, N),

    with S the m examples of least Euclidean distance (the earlier one on a tie). Fewer
    than k examples: the mean of all. None: 0. One prompt costs O(N d), all its prefixes
    O(P^2 d). An input that is not finite makes the answer NaN.

    Args:
        k: Neighbours; 3 in Garg's evaluation.

    Example:
        >>> X, y = jnp.array([[0.0], [1.0], [9.0]]), jnp.array([1.0, 3.0, 50.0])
        >>> float(NearestNeighbors(2).predict(X, y, jnp.array([0.5])))
        2.0

    Source: Garg et al. (2022), Section 3.
    """

    k: int = eqx.field(static=True, default=3)

    def __post_init__(self):
        check_positive_int("k", self.k)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The mean of the nearest labels."""
        X, x_query = _scaled(X, x_query)
        distances = jnp.sum((X - x_query[None]) ** 2, axis=-1)
        return self._mean_of_nearest(distances, y, jnp.ones_like(y, bool))

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        """The mean of the nearest labels of all prefixes."""
        X, X_query = _scaled(X, X_query)
        distances = jnp.sum((X_query[:, None] - X[None]) ** 2, axis=-1)
        rows = jnp.broadcast_to(y[None], distances.shape)
        return self._mean_of_nearest(distances, rows, before(y.shape[0]))

    def _mean_of_nearest(self, distances: Array, y: Array, allowed: Array) -> Array:
        """Mean of y over the k least allowed distances along the last axis."""
        if not y.shape[-1]:
            return jnp.zeros(y.shape[:-1], y.dtype)
        closeness = jnp.where(allowed, -distances, -jnp.inf)
        best, index = jax.lax.top_k(closeness, min(self.k, y.shape[-1]))
        chosen = jnp.where(best > -jnp.inf, jnp.take_along_axis(y, index, axis=-1), 0)
        count = jnp.sum(best > -jnp.inf, axis=-1)
        mean = jnp.sum(chosen, axis=-1) / jnp.maximum(count, 1).astype(y.dtype)
        known = jnp.all(jnp.isfinite(jnp.where(allowed, distances, 0)), axis=-1)
        return jnp.where(known, mean, jnp.nan)


class DiscreteMMSE(Predictor):
    r"""The posterior mean when the task is uniform on a finite pool (dMMSE).

    .. math:: \hat y = \frac{\sum_m e^{\ell_m} \langle w_m, x_{query}\rangle}
        {\sum_m e^{\ell_m}}, \qquad
        \ell_m = -\frac{1}{2\sigma^2} \sum_{i=1}^N (y_i - \langle w_m, x_i\rangle)^2.

    The pool passes in chunks through an online log-sum-exp: exact for any pool size, in
    O(chunk_size) memory and O(N M d) time, forwards and backwards. Without noise the
    posterior is a vote among exact fits, which rounding decides: refused.

    Args:
        pool: Weights w_m of the tasks, ``(M, d)``.
        noise_var: sigma^2 > 0.
        chunk_size: Tasks handled at a time.

    Example:
        >>> rule = DiscreteMMSE(jnp.array([[1.0], [-1.0]]), 2.0)
        >>> round(float(rule.predict(jnp.ones((1, 1)), jnp.ones(1), jnp.ones(1))), 6)
        0.462117

    Source: Raventos et al. (2023), eq. 3.
    """

    pool: Any
    noise_var: Any
    chunk_size: int = eqx.field(static=True, default=512)

    def __post_init__(self):
        check_shape("pool", self.pool, ("M", "d"))
        check_positive_int("pool size", jnp.shape(self.pool)[0])
        check_positive_int("chunk_size", self.chunk_size)
        (self.pool,) = as_floats(self.pool)
        rule = scalar & finite & _POSITIVE
        self.noise_var = checked("noise_var", self.noise_var, rule)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The posterior mean of <w, x>."""

        def chunk(w):
            squares = (y[:, None] - einsum("nd,md->nm", X, w)) ** 2
            return jnp.sum(squares, axis=0), einsum("d,md->m", x_query, w)

        return self._stream(chunk, (), X.dtype)

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        """The posterior means of all prefixes, by one cumulative sum."""

        def chunk(w):
            squares = (y[:, None] - einsum("nd,md->nm", X, w)) ** 2
            total = shift_down(jnp.cumsum(squares, axis=0))
            return total, einsum("nd,md->nm", X_query, w)

        return self._stream(chunk, y.shape, X.dtype)

    def _stream(self, chunk, shape, dtype) -> Array:
        """Mean of predictions weighted by their likelihood, chunk by chunk."""
        pool, precision = (
            self.pool.astype(dtype),
            1 / jnp.asarray(self.noise_var, dtype),
        )
        size = min(self.chunk_size, len(pool))
        missing = -len(pool) % size
        padded = jnp.pad(pool, ((0, missing), (0, 0))).reshape(-1, size, pool.shape[1])
        present = (jnp.arange(len(pool) + missing) < len(pool)).reshape(-1, size)

        def body(state, part):
            top, total, mean = state
            w, real = part
            squares, predictions = chunk(w)
            fit = jnp.where(_over(real, shape), -0.5 * precision * squares, -jnp.inf)
            new_top = jnp.maximum(top, jax.lax.stop_gradient(jnp.max(fit, axis=-1)))
            weights = jnp.exp(fit - new_top[..., None])
            kept = jnp.exp(top - new_top)
            total = total * kept + jnp.sum(weights, axis=-1)
            mean = mean * kept + jnp.sum(weights * predictions, axis=-1)
            return (new_top, total, mean), None

        start = (
            jnp.full(shape, -jnp.inf, dtype),
            jnp.zeros(shape, dtype),
            jnp.zeros(shape, dtype),
        )
        (_, total, mean), _ = jax.lax.scan(
            jax.checkpoint(body), start, (padded, present)
        )
        return mean / total


def _over(row: Array, shape: tuple[int, ...]) -> Array:
    return row.reshape((1,) * len(shape) + row.shape)


def _scaled(*arrays: Array) -> list[Array]:
    """Divides inputs by a power of two so that squared distances are finite.

    It is 1 for inputs below about 1e18 in float32, whose distances keep every bit.
    """
    dtype, dim = arrays[0].dtype, arrays[0].shape[-1]
    largest = jnp.stack([jnp.max(jnp.abs(a), initial=0) for a in arrays]).max()
    exponent = jnp.frexp(largest)[1]
    # An entry of a difference is below twice the largest, and d squares are added.
    room = (jnp.finfo(dtype).maxexp - 1 - max(dim - 1, 0).bit_length()) // 2 - 1
    factor = jnp.ldexp(jnp.ones((), dtype), jnp.minimum(room - exponent, 0))
    return [factor * array for array in arrays]
