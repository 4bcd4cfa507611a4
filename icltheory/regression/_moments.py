"""Moments of the inputs and labels of one linear step, and of Gaussian variables.

The risk of one step depends on the inputs by their second and fourth moments alone, so
that it is exact for inputs of any distribution whose moments are known.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from icltheory._checks import Check, check_shape, checked, finite, is_tracer, real
from icltheory._typing import Array
from icltheory.regression._linalg import einsum

_NAME = "fourth_moment"
_KURTOSIS = finite & Check(lambda x: x >= 1, "a kurtosis >= 1")


def label_moment(population: Any, second: Array, k: Array) -> Array:
    """E [X'r r'X] / k for residuals r = X v + noise with E v v' = ``second``.

    It is E [x x' M x x'] + (k - 1) H M H + sigma^2 H with M = ``second``.
    """
    H, fourth = population.input_cov, population.fourth_moment
    HMH = einsum("ij,jk,kl->il", H, second, H)
    if fourth is not None and jnp.ndim(fourth) == 4:
        own = einsum("ijkl,kl->ij", fourth, second)
        return own + (k - 1) * HMH + population.noise_var * H
    tau = einsum("ij,ji->", H, second) + population.noise_var
    gaussian = (k + 1) * HMH + tau * H
    if fourth is None:
        return gaussian
    excess = (fourth - 3) * jnp.diagonal(H) ** 2 * jnp.diagonal(second)
    return gaussian + jnp.diag(excess)


def step_risk(population: Any, Gamma: Array, k: Array) -> Array:
    r"""Risk of <Gamma X'y / k, x> without the query's noise.

    .. math:: \mathrm{tr}(H M) - 2\,\mathrm{tr}(H \Gamma H M)
        + \mathrm{tr}(\Gamma^\top H \Gamma S), \qquad
        k S = E [x x^\top M x x^\top] + (k - 1) H M H + \sigma^2 H
    """
    check_shape("Gamma", Gamma, (population.dim, population.dim))
    H, M = population.input_cov, population.second_moment
    G = jnp.asarray(Gamma, H.dtype)
    moment = label_moment(population, M, k)
    cross = einsum("ij,jk,ki->", H, G, einsum("ij,jk->ik", H, M))
    square = einsum("ji,jk,kl,li->", G, H, G, moment) / jnp.maximum(k, 1)
    return population.signal + jnp.where(k > 0, square - 2 * cross, 0)


def checked_fourth_moment(value: Any, H: Array) -> Array:
    """The moment of a population as an array; raises for moments of no distribution."""
    value = jnp.asarray(real(_NAME, value), H.dtype)
    if value.ndim >= 2:
        return _checked_moments(value, len(H))
    if value.ndim == 1:
        check_shape(_NAME, value, (len(H),))
    kept = checked(_NAME, value, _KURTOSIS)
    module = jnp if is_tracer(H) else np
    variances = module.diagonal(H)
    off = module.max(abs(H - module.diag(variances)))
    fits = off <= 1e-6 * module.maximum(module.max(variances), 1e-30)
    return _require(
        kept, fits, "(d, d, d, d) unless input_cov is diagonal", "a kurtosis"
    )


def _checked_moments(moments, dim):
    check_shape(_NAME, moments, (dim,) * 4)
    moments = checked(_NAME, moments, finite)
    module = jnp if is_tracer(moments) else np
    size = module.maximum(module.max(abs(moments)), 1e-30)
    for order in ((1, 0, 2, 3), (1, 2, 3, 0)):  # they generate all orders
        gap = module.max(abs(moments - module.transpose(moments, order))) / size
        expected = "symmetry in all axes (relative differences <= 1e-6)"
        moments = _require(moments, gap <= 1e-6, expected, gap)
    least = module.min(module.einsum("iijj->ij", moments)) / size
    return _require(moments, least >= -1e-6, "E x_i^2 x_j^2 >= 0", least)


def _require(value, right, expected, got):
    """The value, NaN where ``right`` is traced and false; raises where it is known."""
    if is_tracer(right):
        return jnp.where(right, value, jnp.nan)
    if not right:
        raise ValueError(f"{_NAME}: expected {expected}, got {got}")
    return value


def gaussian_mean(f: Callable, dim: int, degree: int, dtype: Any) -> Array:
    """E f(z) for z ~ N(0, I), exact for a polynomial of at most this degree."""
    points, weights = (jnp.asarray(a, dtype) for a in _sparse_grid(dim, degree))
    return jnp.tensordot(weights, jax.vmap(f)(points), 1)


@functools.cache
def _sparse_grid(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Smolyak's rule on Gauss-Hermite rules, exact to a degree.

    Weights have both signs. At most degree / 2 coordinates of a point are not 0.
    """
    top, found = degree // 2, {}
    rules = [hermegauss(n + 1) for n in range(top + 1)]
    for level in range(max(top - dim + 1, 0), top + 1):
        sign = (-1) ** (top - level) * math.comb(dim - 1, top - level)
        for chosen in itertools.combinations_with_replacement(range(dim), level):
            axes = sorted(set(chosen))
            parts = [rules[chosen.count(axis)] for axis in axes]
            for picks in itertools.product(*(range(len(p[0])) for p in parts)):
                at = [(a, p[0][k]) for a, p, k in zip(axes, parts, picks, strict=True)]
                where = tuple((a, round(z, 12)) for a, z in at if abs(z) > 1e-9)
                weight = math.prod(p[1][k] for p, k in zip(parts, picks, strict=True))
                weight *= sign / math.sqrt(2 * math.pi) ** len(parts)
                found[where] = found.get(where, 0.0) + weight
    points = np.zeros((len(found), dim))
    for row, where in enumerate(found):
        for axis, value in where:
            points[row, axis] = value
    return points, np.array(list(found.values()))
