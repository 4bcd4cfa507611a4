"""The Bayes predictor of a finite pool of tasks, computed in chunks of the pool."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape
from icltheory._noted import check_scalar, check_values
from icltheory._typing import Array
from icltheory.regression._linalg import Number, einsum
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    read_prefixes,
    read_prompt,
    shift_down,
)

__all__ = ["discrete_mmse", "discrete_mmse_prefixes"]

Pool = Float[ArrayLike, "_M _d"]


@calculator
def discrete_mmse(
    X: Inputs,
    y: Labels,
    x_query: Query,
    *,
    pool: Pool,
    noise_var: Number,
    chunk_size: int = 512,
) -> Prediction:
    r"""Posterior mean when the task is uniform on a finite pool (dMMSE).

    .. math:: \hat y = \frac{\sum_m e^{\ell_m} \langle w_m, x_{query}\rangle}
        {\sum_m e^{\ell_m}}, \qquad
        \ell_m = -\frac{1}{2\sigma^2} \sum_{i=1}^N (y_i - \langle w_m, x_i\rangle)^2.

    The pool passes in chunks through an online log-sum-exp: exact for any pool size, in
    O(B chunk_size) memory and O(B N M d) time, forwards and backwards. Without noise
    the posterior is a vote among exact fits, which rounding decides: refused.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        pool: Weights w_m of the tasks.
        noise_var: Noise variance sigma^2 > 0.
        chunk_size: Tasks handled at a time.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> pool = jnp.array([[1.0], [-1.0]])
        >>> args = jnp.ones((1, 1)), jnp.ones(1), jnp.ones(1)
        >>> round(float(discrete_mmse(*args, pool=pool, noise_var=2.0)), 6)
        0.462117

    Source: Raventos et al. (2023), eq. 3.
    """
    X, y, x_query = read_prompt(X, y, x_query)
    precision = _read_precision(pool, noise_var, X)

    def chunk(w):
        residuals = y[..., None] - einsum("...nd,md->...nm", X, w)
        fit = -0.5 * precision * jnp.sum(residuals**2, axis=-2)
        return fit, einsum("...d,md->...m", x_query, w)

    return _stream(chunk, jnp.asarray(pool, X.dtype), chunk_size, X.shape[:-2])


@calculator
def discrete_mmse_prefixes(
    X: Inputs,
    y: Labels,
    X_query: Inputs | None = None,
    *,
    pool: Pool,
    noise_var: Number,
    chunk_size: int = 512,
) -> Predictions:
    r"""Posterior means under a finite pool from every prefix of a prompt.

    .. math:: \ell_{m,k} = -\frac{1}{2\sigma^2} \sum_{i \le k}
        (y_i - \langle w_m, x_i\rangle)^2, \quad \hat y_k = \sum_m
        \mathrm{softmax}_m(\ell_{m,k}) \langle w_m, x^{query}_k\rangle

    the log-likelihoods of all prefixes by one cumulative sum; streaming as in
    ``discrete_mmse``, O(B P M d) in all.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.
        pool: Weights w_m of the tasks.
        noise_var: Noise variance sigma^2 > 0.
        chunk_size: Tasks handled at a time.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is that of the mean of the pool.

    Example:
        >>> pool = jnp.array([[1.0], [3.0]])
        >>> X, y = jnp.ones((2, 1)), jnp.ones(2)
        >>> discrete_mmse_prefixes(X, y, pool=pool, noise_var=2.0).round(6).tolist()
        [2.0, 1.537883]

    Source: Raventos et al. (2023), eq. 3.
    """
    X, y, X_query = read_prefixes(X, y, X_query)
    precision = _read_precision(pool, noise_var, X)

    def chunk(w):
        residuals = y[..., None] - einsum("...nd,md->...nm", X, w)
        total = jnp.cumsum(residuals**2, axis=-2)
        fit = -0.5 * precision * shift_down(total, axis=total.ndim - 2)
        return fit, einsum("...nd,md->...nm", X_query, w)

    return _stream(chunk, jnp.asarray(pool, X.dtype), chunk_size, X.shape[:-1])


def _read_precision(pool: Pool, noise_var: Number, X: Array) -> Array:
    """Checks the pool and the noise; returns 1 / sigma^2."""
    check_shape("pool", pool, ("M", X.shape[-1]))
    check_positive_int("pool size", jnp.shape(pool)[0])
    check_scalar("noise_var", noise_var)
    check_values(
        "noise_var",
        noise_var,
        lambda variance: variance > 0,
        "a value > 0 (the noiseless posterior is decided by rounding; use a small "
        "positive variance)",
    )
    return 1 / jnp.asarray(noise_var, X.dtype)


def _stream(
    chunk: Callable[[Array], tuple[Array, Array]],
    pool: Array,
    chunk_size: int,
    shape: tuple[int, ...],
) -> Array:
    """Mean of predictions weighted by exp(log-likelihood), chunk by chunk."""
    check_positive_int("chunk_size", chunk_size)
    size = min(chunk_size, pool.shape[0])
    missing = -pool.shape[0] % size
    padded = jnp.pad(pool, ((0, missing), (0, 0))).reshape(-1, size, pool.shape[1])
    present = (jnp.arange(pool.shape[0] + missing) < pool.shape[0]).reshape(-1, size)

    def body(state, part):
        top, total, mean = state
        w, real = part
        fit, predictions = chunk(w)
        fit = jnp.where(real.reshape((1,) * len(shape) + real.shape), fit, -jnp.inf)
        new_top = jnp.maximum(top, jax.lax.stop_gradient(jnp.max(fit, axis=-1)))
        weights = jnp.exp(fit - new_top[..., None])
        kept = jnp.exp(top - new_top)
        return (
            new_top,
            total * kept + jnp.sum(weights, axis=-1),
            mean * kept + jnp.sum(weights * predictions, axis=-1),
        ), None

    zeros = jnp.zeros(shape, pool.dtype)
    start = (jnp.full(shape, -jnp.inf, pool.dtype), zeros, zeros)
    (_, total, mean), _ = jax.lax.scan(jax.checkpoint(body), start, (padded, present))
    return mean / total
