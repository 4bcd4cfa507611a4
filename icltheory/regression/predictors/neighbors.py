"""The nearest-neighbour predictor."""

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._noted import check_finite
from icltheory._typing import Array
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    before,
    one_or_batch,
    read_prefixes,
    read_prompt,
)

__all__ = ["nearest_neighbors", "nearest_neighbors_prefixes"]


@calculator
def nearest_neighbors(X: Inputs, y: Labels, x_query: Query, k: int = 3) -> Prediction:
    r"""Mean label of the k examples nearest to the query.

    .. math:: \hat y = \frac1m \sum_{i \in S} y_i, \qquad m = \min(k, N),

    with S the m examples of least Euclidean distance (the earlier one on a tie). Fewer
    than k examples: the mean of all. None: 0. Cost O(N d).

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        k: Neighbours; 3 in Garg's evaluation.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.array([[0.0], [1.0], [9.0]]), jnp.array([1.0, 3.0, 50.0])
        >>> float(nearest_neighbors(X, y, jnp.array([0.5]), k=2))
        2.0

    Source: Garg et al. (2022), Section 3.
    """
    check_positive_int("k", k)
    check_finite("X", X)
    check_finite("x_query", x_query)

    def core(X, y, x_query):
        X, x_query = _scaled(X, x_query)
        distances = jnp.sum((X - x_query[None]) ** 2, axis=-1)
        return _mean_of_nearest(distances, y, jnp.ones_like(y, bool), k)

    return one_or_batch(core, *read_prompt(X, y, x_query))


@calculator
def nearest_neighbors_prefixes(
    X: Inputs, y: Labels, X_query: Inputs | None = None, *, k: int = 3
) -> Predictions:
    r"""Nearest-neighbour predictions from every prefix of a prompt.

    .. math:: \hat y_j = \frac{1}{\min(k, j)} \sum_{i \in S_j} y_i, \qquad \hat y_0 = 0,

    with S_j the nearest of the first j examples. All P^2 distances at once, O(P^2 d).

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first j examples; row j of ``X`` if None.
        k: Neighbours; 3 in Garg's evaluation.

    Returns:
        The predictions, (P,) or (B, P).

    Example:
        >>> X, y = jnp.array([[0.0], [3.0], [1.0]]), jnp.array([1.0, 2.0, 4.0])
        >>> nearest_neighbors_prefixes(X, y, k=1).tolist()
        [0.0, 1.0, 1.0]

    Source: Garg et al. (2022), Section 3.
    """
    check_positive_int("k", k)
    check_finite("X", X)
    if X_query is not None:
        check_finite("X_query", X_query)

    def core(X, y, X_query):
        X, X_query = _scaled(X, X_query)
        distances = jnp.sum((X_query[:, None] - X[None]) ** 2, axis=-1)
        rows = jnp.broadcast_to(y[None], distances.shape)
        return _mean_of_nearest(distances, rows, before(y.shape[0]), k)

    return one_or_batch(core, *read_prefixes(X, y, X_query))


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


def _mean_of_nearest(distances: Array, y: Array, allowed: Array, k: int) -> Array:
    """Mean of y over the k least allowed distances along the last axis."""
    if not y.shape[-1]:
        return jnp.zeros(y.shape[:-1], y.dtype)
    closeness = jnp.where(allowed, -distances, -jnp.inf)
    best, index = jax.lax.top_k(closeness, min(k, y.shape[-1]))
    chosen = jnp.where(best > -jnp.inf, jnp.take_along_axis(y, index, axis=-1), 0)
    count = jnp.sum(best > -jnp.inf, axis=-1)
    return jnp.sum(chosen, axis=-1) / jnp.maximum(count, 1).astype(y.dtype)
