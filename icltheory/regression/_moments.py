"""Moments of labels, and exact means of polynomials of Gaussian variables."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from icltheory._checks import Check
from icltheory._typing import Array
from icltheory.regression._linalg import einsum
from icltheory.regression.population import LinearPopulation


def label_moment(population: LinearPopulation, second: Array, k: Array) -> Array:
    """E [X'r r'X] / k for residuals r = X v + noise with E v v' = ``second``."""
    H = population.input_cov
    tau = einsum("ij,ji->", H, second) + population.noise_var
    return (k + 1) * einsum("ij,jk,kl->il", H, second, H) + tau * H


def labels_vary(name: str, population: LinearPopulation, given: Any = None) -> Any:
    """The check that labels vary about their prior mean, which optima need."""
    tau = (population.input_cov * population.task_cov).sum() + population.noise_var
    return Check(lambda tau: tau > 0, "tau = tr(H Psi) + noise_var > 0")(name, tau)


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
