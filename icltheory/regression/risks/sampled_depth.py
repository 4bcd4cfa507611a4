r"""The best gradient steps for any population, with sampled inputs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._precision import exact_products
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Population
from icltheory.statistics import Estimate

__all__ = ["SampledGradientSteps", "sampled_gradient_steps"]


@pytree
class SampledGradientSteps:
    r"""The L gradient steps with the least risk on sampled inputs.

    Args:
        risk: Risk of these steps on other inputs, without the noise of the query.
        step_sizes: Their sizes, in ascending order, ``(L,)``; NaN where no real ones
            make the best polynomial, or fewer do.
    """

    risk: Estimate
    step_sizes: Float[Array, "L"]


@calculator(compiled=False)
def sampled_gradient_steps(
    task: LinearPopulation,
    key: PRNGKey,
    num_prompts: int,
    *,
    num_examples: int,
    steps: int,
) -> SampledGradientSteps:
    r"""Risk of the best L gradient steps in context, for any covariance.

    .. math::
        R(q) = E \operatorname{tr} H p(S) M p(S) + \frac{\sigma^2}{N} E
        \operatorname{tr} H q(S) S q(S) , \qquad p(s) = 1 - s\, q(s) ,

    with :math:`S = X^\top X / N`, :math:`M = \Psi + \beta^* \beta^{*\top}` and q of
    degree L - 1: the risk of :math:`\hat w = q(S) X^\top y / N`, exact in task, noise
    and query. R is quadratic in q. Half of the inputs give the best q, the other half
    its risk, so that the estimate has no bias from the choice: it is the risk of the
    steps that are returned, and in the mean at least the least risk.

    For H = Psi = I and beta* = 0,
    :func:`~icltheory.regression.risks.gradient_steps_optimum` is exact. The risk has
    moments of degree 2 L of S, so that from L = 4 on rare inputs carry its mean and the
    standard error comes out too small: with d = 5, N = 20 and 20,000 draws four steps
    gave 0.0105 +- 0.0002, where 0.0110 is exact.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        key: Typed key.
        num_prompts: Draws of the inputs, at least 4.
        num_examples: Number N of examples.
        steps: Number L of steps.

    Returns:
        Risk and step sizes.

    Example:
        >>> import jax
        >>> from icltheory.regression.population import LinearPopulation
        >>> task = LinearPopulation.isotropic(5)
        >>> key = jax.random.key(0)
        >>> best = sampled_gradient_steps(task, key, 8192, num_examples=20, steps=2)
        >>> low, high = best.risk.interval(0.999)
        >>> bool(low < 5 * 0.0722479 < high)
        True

    Source: The normal equations of least squares.
    """
    for name, count in (("num_examples", num_examples), ("steps", steps)):
        check_positive_int(name, count)
    check_positive_int("num_prompts", num_prompts)
    if num_prompts < 4:
        raise ValueError(f"num_prompts: expected at least 4, got {num_prompts}")
    draw, test = jax.random.split(key)
    half = num_prompts // 2
    fitted = _spectra(task, task.sample_inputs(draw, num_examples, half))
    top = jnp.max(fitted[0])
    if not top > 0:
        raise ValueError("task: expected inputs that are not all 0, got input_cov 0")
    moments = [np.asarray(part, np.float64) for part in _moments(fitted, top, steps)]
    G, g = (np.mean(part, axis=0) for part in moments)
    best = np.linalg.lstsq(G, g, rcond=1e-14)[0]
    other = _spectra(task, task.sample_inputs(test, num_examples, num_prompts - half))
    risks = _risks(other, top, jnp.asarray(best))
    return SampledGradientSteps(
        Estimate.of(risks), jnp.asarray(_step_sizes(best, float(top)))
    )


@jax.jit
@exact_products
def _spectra(task: LinearPopulation, X: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues of S, and their weights in tr H f(S) M g(S) and the noise term."""
    H, M, noise_var, _ = Population.of(task)
    N = X.shape[1]
    values, U = jnp.linalg.eigh(jnp.einsum("bni,bnj->bij", X, X) / N)
    values = jnp.maximum(values, 0)
    turned = [jnp.einsum("bia,ij,bjc->bac", U, matrix, U) for matrix in (H, M)]
    noise = noise_var / N * jnp.diagonal(turned[0], axis1=1, axis2=2)
    return values, turned[0] * turned[1], noise


def _basis(values: Array, top: Array, steps: int) -> Array:
    """Chebyshev's polynomials up to degree L - 1 on [0, top], ``(B, d, L)``."""
    x = 2 * values / top - 1
    found = [jnp.ones_like(x), x]
    while len(found) < steps:
        found.append(2 * x * found[-1] - found[-2])
    return jnp.stack(found[:steps], axis=-1)


@functools.partial(jax.jit, static_argnames="steps")
@exact_products
def _moments(spectra, top, steps):
    """Returns G and g of R(c) = const - 2 g'c + c'Gc, for q = sum_j c_j T_j."""
    values, weights, noise = spectra
    q = _basis(values, top, steps)
    sq = values[..., None] * q
    G = jnp.einsum("baj,bac,bck->bjk", sq, weights, sq)
    G += jnp.einsum("baj,ba,bak->bjk", q, noise * values, q)
    return G, jnp.einsum("baj,bac->bj", sq, weights)


@jax.jit
@exact_products
def _risks(spectra, top, coefficients):
    values, weights, noise = spectra
    q = _basis(values, top, len(coefficients)) @ coefficients.astype(values.dtype)
    p = 1 - values * q
    missed = jnp.einsum("ba,bac,bc->b", p, weights, p)
    return missed + jnp.sum(noise * values * q**2, axis=1)


def _step_sizes(coefficients: np.ndarray, top: float) -> np.ndarray:
    """Reciprocals of the roots of p = 1 - s q(s), with s = top (1 + x) / 2."""
    chebyshev = np.polynomial.chebyshev
    p = -chebyshev.chebmul([top / 2, top / 2], coefficients)
    p[0] += 1
    roots = chebyshev.chebroots(p)
    steps = top * (1 + roots) / 2
    if np.any(np.abs(np.imag(steps)) > 1e-9 * top):
        return np.full(len(coefficients), np.nan)
    found = np.full(len(coefficients), np.nan)
    found[: len(steps)] = np.sort(1 / np.real(steps))
    return found
