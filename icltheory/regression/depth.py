r"""The best steps from zero, a lower bound for L layers, and a limit of large d and N.

After L gradient steps from zero on a prompt with S = X'X / N the estimate is
:math:`\hat w = q(S) X^\top y / N` with a polynomial q of degree L - 1. Where H and E w
w' are multiples of the identity the risk is an integral of p(s) = 1 - s q(s) over the
mean spectrum of S, and the best polynomial is exact. For others inputs are sampled.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, count, positive, scalar
from icltheory._core import Record, calculator, exact_products
from icltheory._typing import Array, PRNGKey, Scalar
from icltheory.linalg.random_matrices import (
    Recurrence,
    exact_moments,
    recurrence_of_moments,
)
from icltheory.regression._linalg import is_isotropic, seen_inverse
from icltheory.regression.measures import Optimum
from icltheory.regression.population import LinearPopulation, label_moment
from icltheory.regression.predictors import NoClosedForm, Steps
from icltheory.statistics import Estimate

__all__ = ["DepthFloor", "depth_floor", "gradient_steps_limit"]


class DepthFloor(Record):
    """A lower bound on the risk of layers, and the degree of their polynomials."""

    risk: Scalar
    degree: int = eqx.field(static=True)


@calculator(compiled=False, static=("layers", "num_examples"))
def depth_floor(
    layers: int, population: LinearPopulation, num_examples: int
) -> DepthFloor:
    r"""Lower bound on the risk of L layers of linear attention.

    .. math:: R \ge R_D , \qquad D = (3^L - 1) / 2 ,

    the risk of ``optimum(Steps(D), population, num_examples)``. It holds only for
    weights whose keys and queries read the inputs alone and whose blocks on the inputs
    are multiples of I, as of gradient descent and GD++. With tokens :math:`f_t(S) x_i`
    and labels multiplied by :math:`p_t(S)`, a layer gives

    .. math::
        f_{t+1}(s) = f_t(s) \big( 1 - \gamma_t s f_t(s)^2 \big) , \qquad
        p_{t+1}(s) = p_t(s) \big( 1 - \eta_t s f_t(s)^2 \big) ,

    so that both have degree (3^t - 1) / 2 after t layers, and p(0) = 1. H and E w w'
    have to be multiples of the identity, and L <= 5: D = 121 takes seconds at d = 5.

    Example:
        >>> population = LinearPopulation.isotropic(5)
        >>> floors = [depth_floor(layers, population, 20).risk for layers in (1, 2)]
        >>> [f"{floor / 5:.4f}" for floor in floors]
        ['0.2308', '0.0110']

    Source: von Oswald et al. (2023), GD++.
    """
    check_positive_int("layers", layers)
    check_positive_int("num_examples", num_examples)
    if layers > 5:
        raise ValueError(f"layers: expected at most 5, got {layers}")
    degree = (3**layers - 1) // 2
    least, *_ = _best_polynomial(population, num_examples, degree)
    return DepthFloor(jnp.asarray(least), degree)


@calculator(static=("steps",), ratio=scalar & positive)
def gradient_steps_limit(steps: int, ratio: Any) -> Optimum:
    r"""Best L gradient steps in the limit of large d and N with d / N = c.

    .. math::
        R_L = \Big( \sum_{k=0}^L c^{-k} \Big)^{-1} = \frac{c^L (1 - c)}{1 - c^{L+1}} ,
        \qquad
        \frac{1}{\eta_j} = 1 + c + 2 \sqrt c \cos \frac{j \pi}{L + 1}

    for H = I, E w w' = I / d, whose labels have variance 1, and no noise. For c < 1
    each layer divides the risk by 1 / c in the long run; at c = 1 it is 1 / (L + 1);
    for c > 1 it tends to 1 - 1 / c, the part of w that the prompt does not show.

    Example:
        >>> best = gradient_steps_limit(2, 0.25)
        >>> sizes = best.model.step_sizes
        >>> print(f"{best.risk:.4f}", *(f"{size:.3f}" for size in sizes))
        0.0476 0.571 1.333

    Source: Marchenko and Pastur (1967).
    """
    check_positive_int("steps", steps)
    c = jnp.asarray(ratio, float)
    risk = 1 / jnp.sum(c ** -jnp.arange(steps + 1.0))
    angles = jnp.pi * jnp.arange(1, steps + 1) / (steps + 1)
    sizes = 1 / (1 + c + 2 * jnp.sqrt(c) * jnp.cos(angles))
    return Optimum(Steps(sizes), risk, "the spectrum of Marchenko and Pastur")


@calculator(integers=("num_examples",), num_examples=count(0))
def best_matrix(population: LinearPopulation, num_examples: Any) -> tuple[Array, Array]:
    """Gamma of the best linear step, and its risk with the query's noise.

    It is k M ((k + 1) H M + tau I)^{-1} for Gaussian inputs, else M H S^{-1} with k S =
    E [X'y y'X]. H and M may be singular; then it is one of many.
    """
    H, M = population.input_cov, population.second_moment
    k = jnp.asarray(num_examples, H.dtype)
    HM = H @ M
    if population.fourth_moment is None:  # H, which may be singular, cancels
        tau = population.signal + population.noise_var
        tau = jnp.where(tau > 0, tau, 1)
        system = (k + 1) * HM + tau * jnp.eye(len(H), dtype=H.dtype)
        Gamma = k * jnp.linalg.solve(system.T, M).T
    else:
        inverse = seen_inverse(label_moment(population, M, k))
        Gamma = k * HM.T @ inverse
    risk = population.signal - jnp.sum((H @ Gamma) * HM.T)
    return Gamma, risk + population.noise_var


@calculator(integers=("num_examples",), num_examples=count(0))
def best_size(population: LinearPopulation, num_examples: Any) -> tuple[Array, Array]:
    """The best size of one gradient step, tr(H^2 M) / tr(H S), and its risk."""
    H, M = population.input_cov, population.second_moment
    k = jnp.asarray(num_examples, H.dtype)
    square = jnp.sum(H * label_moment(population, M, k))
    slope = jnp.sum((H @ H) * M.T)
    size = k * slope / jnp.where(square > 0, square, 1)
    return size, population.signal - size * slope + population.noise_var


def scales(population: LinearPopulation) -> tuple[float, float] | None:
    """H and m where H = h I and E w w' = m I are known and not 0, else ``None``."""
    H, M = population.input_cov, population.second_moment
    h, m = H[0, 0], M[0, 0]
    fits = is_isotropic(H) & is_isotropic(M) & (h > 0) & (m > 0)
    return (float(h), float(m)) if fits else None


def exact_steps(
    population: LinearPopulation, num_examples: int, steps: int
) -> tuple[float, np.ndarray]:
    """Least risk with the query's noise, and the step sizes; H = h I, E w w' = m I."""
    least, tilted, ridge, h = _best_polynomial(population, num_examples, steps)
    return least, _sizes(tilted, steps, ridge) / h


def _best_polynomial(population, num_examples, degree):
    """Least risk of a polynomial p with p(0) = 1, and what its roots are made of."""
    if population.fourth_moment is not None or (sizes := scales(population)) is None:
        raise NoClosedForm(
            "population: expected Gaussian inputs with H and E w w' multiples of the "
            "identity, got another population"
        )
    h, m = sizes
    noise_var = float(population.noise_var)
    ridge = noise_var / (h * m) / num_examples
    mean, tilted = _recurrences(population.dim, num_examples, degree)
    least = h * m * population.dim * _least_risk(mean, degree, ridge) + noise_var
    return least, tilted, ridge, h


@functools.lru_cache(maxsize=256)
def _recurrences(d: int, N: int, degree: int) -> tuple[Recurrence, Recurrence]:
    """Recurrences of the mean spectrum, and of s times it."""
    moments = exact_moments(d, N, 2 * degree + 1)
    mean = recurrence_of_moments(moments, degree + 1)
    return mean, recurrence_of_moments(moments[1:], degree)


def _least_risk(mean: Recurrence, degree: int, ridge: float) -> float:
    nodes, vectors = np.linalg.eigh(mean.jacobi(degree + 1))
    first, last = vectors[0] ** 2, vectors[-1] ** 2
    shrunk = ridge * np.sum(first / (nodes + ridge))
    # Logarithms are used, since products of so many factors overflow float64.
    log_norm = np.sum(np.log(mean.b)) - 2 * np.sum(np.log(nodes + ridge))
    missing = np.exp(log_norm) / np.sum(last / (nodes * (nodes + ridge)))
    return float(shrunk + missing)


def _sizes(tilted: Recurrence, degree: int, ridge: float) -> np.ndarray:
    """Reciprocals of the roots of p, by the eigenvalues of a comrade matrix."""
    comrade = tilted.jacobi(degree)
    if ridge == 0:
        return np.sort(1 / np.linalg.eigvalsh(comrade))
    comrade[-1] += ridge * _associated(tilted, degree, -ridge)
    steps = np.linalg.eigvals(comrade)
    if np.any(np.imag(steps)):
        return np.full(degree, np.nan)
    return np.sort(1 / np.real(steps))


def _associated(recurrence: Recurrence, degree: int, z: float) -> np.ndarray:
    """Coefficients of (P_L(s) - P_L(z)) / (s - z) in the orthonormal polynomials."""
    a, b = recurrence
    found = np.empty(degree)
    for k in range(degree):
        before, value = 0.0, 1.0
        for j in range(k + 1, degree):
            before, value = value, (z - a[j]) * value - b[j] * before
        found[k] = value
    norms = np.sqrt(np.cumprod(b[:degree]))
    return found * norms / norms[-1]


def sampled_steps(
    population: LinearPopulation,
    num_examples: int,
    steps: int,
    key: PRNGKey,
    num_prompts: int,
) -> tuple[Estimate, np.ndarray]:
    r"""Risk of the best L steps, with the query's noise, and their sizes.

    .. math::
        R(q) = E \operatorname{tr} H p(S) M p(S) + \frac{\sigma^2}{N} E
        \operatorname{tr} H q(S) S q(S) + \sigma^2

    is quadratic in q. Half of the inputs give the best q, the other half its risk. It
    has moments of degree 2 L of S, so that from L = 4 on rare inputs carry its mean and
    the standard error comes out too small: with d = 5, N = 20 and 20,000 draws four
    steps gave 0.0105 +- 0.0002, where 0.0110 is exact.
    """
    half = num_prompts // 2
    sizes = half, num_prompts - half
    fit, test = (
        [np.asarray(a, np.float64) for a in _spectra(population, key, num_examples, n)]
        for key, n in zip(jax.random.split(key), sizes, strict=True)
    )
    values, weights, noise = fit
    if not (top := values.max()) > 0:
        raise ValueError("population: expected inputs that are not all 0, got all 0")
    q = _basis(values, top, steps)
    sq = values[..., None] * q
    G = np.einsum("baj,bak->jk", sq, weights @ sq)
    G += np.einsum("baj,ba,bak->jk", q, noise * values, q, optimize=True)
    g = np.einsum("baj,bac->j", sq, weights)
    best = np.linalg.lstsq(G / half, g / half, rcond=1e-14)[0]
    values, weights, noise = test
    q = _basis(values, top, steps) @ best
    p = 1 - values * q
    missed = np.einsum("ba,bac,bc->b", p, weights, p, optimize=True)
    risks = missed + np.sum(noise * values * q**2, axis=1)
    risks = jnp.asarray(risks, population.dtype)
    return Estimate.of(risks + population.noise_var), _roots(best, top)


@functools.partial(jax.jit, static_argnums=(2, 3))
@exact_products
def _spectra(population, key, num_examples, num_prompts) -> tuple[Array, ...]:
    """Eigenvalues of S, and their weights in tr H f(S) M g(S) and the noise term."""
    X = population.sample_inputs(key, num_examples, num_prompts)
    X_T = jnp.swapaxes(X, 1, 2)
    values, U = jnp.linalg.eigh(X_T @ X / num_examples)
    H, M = (
        jnp.swapaxes(U, 1, 2) @ matrix @ U
        for matrix in (population.input_cov, population.second_moment)
    )
    noise = population.noise_var / num_examples * jnp.diagonal(H, axis1=1, axis2=2)
    return jnp.maximum(values, 0), H * M, noise


def _basis(values: np.ndarray, top: float, steps: int) -> np.ndarray:
    """Chebyshev's polynomials up to degree L - 1 on [0, top], ``(B, d, L)``."""
    return np.polynomial.chebyshev.chebvander(2 * values / top - 1, steps - 1)


def _roots(coefficients: np.ndarray, top: float) -> np.ndarray:
    """Reciprocals of the roots of p = 1 - s q(s), with s = top (1 + x) / 2."""
    chebyshev = np.polynomial.chebyshev
    p = -chebyshev.chebmul([top / 2, top / 2], coefficients)
    p[0] += 1
    steps = top * (1 + chebyshev.chebroots(p)) / 2
    found = np.full(len(coefficients), np.nan)
    if not np.any(np.abs(np.imag(steps)) > 1e-9 * top):
        found[: len(steps)] = np.sort(1 / np.real(steps))
    return found
