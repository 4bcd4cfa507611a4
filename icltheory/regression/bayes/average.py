"""The average Bayes risk, with only the inputs sampled (Rao-Blackwell)."""

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._typing import Array, PRNGKey
from icltheory.regression._linalg import apply_root
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks.posterior import bayes_risk_given
from icltheory.statistics import Estimate

__all__ = ["average_risk"]


@calculator
def average_risk(
    problem: LinearPopulation, num_examples: int, key: PRNGKey, num_samples: int
) -> Estimate:
    r"""The Bayes risk with M examples, an unbiased estimate (Lemma 6.1).

    .. math:: E_X R(X) \approx \frac1S \sum_{s=1}^S R(X_s), \qquad
        R(X) = \sigma^2 + \mathrm{tr}(H\, \mathrm{Cov}(w \mid X, y)),

    with the exact R(X) of ``risk_given``. There is no elementary closed form for d > 1.
    The risk sees X only through X'X, so for M > d the triangular factor of X is drawn
    in place of X: with Z = Q R a Gaussian matrix, R is independent of Q,
    :math:`R_{ii}^2 \sim \chi^2_{M - i + 1}` and the entries above are normal. A sample
    costs O(d^3), whatever M is. Every M at once: ``risks.bayes_risk``.

    Args:
        problem: The population (H, beta*, Psi, sigma^2); the risk does not depend on
            beta*.
        num_examples: Examples M.
        key: Typed key.
        num_samples: Draws S of the inputs.

    Returns:
        Mean and standard error, which also unpack as ``mean, standard_error``.

    Example:
        >>> problem = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> mean, error = average_risk(problem, 1, jax.random.key(0), 2000)
        >>> bool(abs(mean - 1.6557) < 5 * error)
        True

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1; Bartlett (1933), for the factor.
    """
    check_positive_int("num_examples", num_examples)
    check_positive_int("num_samples", num_samples)
    Z = _gaussian_factors(problem, num_examples, key, num_samples)
    return Estimate.of(bayes_risk_given(problem, apply_root(problem.input_root, Z)))


def _gaussian_factors(
    problem: LinearPopulation, num_examples: int, key: PRNGKey, num_samples: int
) -> Array:
    """Draws at most d rows with the same distribution of Z'Z as M normal rows."""
    dim, dtype = problem.dim, problem.dtype
    normal_key, scale_key = jax.random.split(key)
    rows = min(num_examples, dim)
    Z = jax.random.normal(normal_key, (num_samples, rows, dim), dtype)
    if num_examples <= dim:
        return Z
    degrees = jnp.arange(num_examples, num_examples - dim, -1, dtype=dtype)
    lengths = jnp.sqrt(
        jax.random.chisquare(scale_key, degrees[None], (num_samples, dim), dtype)
    )
    return jnp.triu(Z, 1) + lengths[:, :, None] * jnp.eye(dim, dtype=dtype)[None]
