"""Exact risks of the zero predictor, least squares and averaging."""

from typing import Any

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_values
from icltheory._typing import Scalar
from icltheory.regression._linalg import is_isotropic
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count, Population, read_count
from icltheory.regression.risks.linear_attention import linear_attention_risk

__all__ = ["averaging_risk", "least_squares_risk", "zero_risk"]


@calculator
def zero_risk(task: LinearPopulation, *, query_noise: bool = True) -> Scalar:
    r"""Risk of predicting 0, a scale for comparing other risks.

    .. math:: R = \mathrm{tr}(H M) + \sigma^2, \qquad M = \Psi + \beta^* \beta^{*\top}.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk.

    Example:
        >>> float(zero_risk(LinearPopulation.isotropic(20, 0.25)))
        20.25

    Source: Garg et al. (2022), Figure 2.
    """
    population = Population.of(task)
    return population.signal + query_noise * population.noise_var


@calculator
def least_squares_risk(
    task: LinearPopulation, num_examples: Count, *, query_noise: bool = True
) -> Scalar:
    r"""Risk of minimum-norm least squares with isotropic Gaussian inputs, H = h I.

    .. math:: R - \sigma^2 = h\,\mathrm{tr}(M) \Bigl(1 - \frac kd\Bigr)_+ + \sigma^2
        \begin{cases} k / (d - k - 1) & k \le d - 2 \\ \infty & |k - d| \le 1 \\
        d / (k - d - 1) & k \ge d + 2, \end{cases}

    with M = Psi + beta* beta*', and no variance term at k = 0 or without noise. For
    k >= d the risk is the same for any H of full rank, and with the rank of H in place
    of d for any other, so there H is not restricted.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples k; may be traced.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk; infinite where the variance is.

    Example:
        >>> task = LinearPopulation.isotropic(20)
        >>> [round(float(least_squares_risk(task, k)) / 20, 4) for k in (0, 5, 20)]
        [1.0, 0.75, 0.0]

    Source: Garg et al. (2022), Section 3; Hastie et al. (2022), Section 3.
    """
    population = Population.of(task)
    dim = task.dim
    k = read_count(num_examples, population.H.dtype)
    _check_isotropic(task.input_cov, num_examples, dim)
    sizes = jnp.sqrt(jnp.diagonal(population.H))
    sizes = jnp.where(sizes > 0, sizes, 1)
    correlation = population.H / (sizes[:, None] * sizes[None])
    rank = jnp.linalg.matrix_rank(correlation, hermitian=True).astype(k.dtype)
    bias = population.signal * jnp.maximum(1 - k / jnp.maximum(rank, 1), 0)
    few, many = rank - k - 1, k - rank - 1
    ratio = jnp.where(few > 0, k / jnp.where(few > 0, few, 1), jnp.inf)
    ratio = jnp.where(many > 0, rank / jnp.where(many > 0, many, 1), ratio)
    noisy = (k > 0) & (rank > 0) & (population.noise_var > 0)
    variance = jnp.where(noisy, population.noise_var * jnp.where(noisy, ratio, 0), 0)
    return bias + variance + query_noise * population.noise_var


@calculator
def averaging_risk(
    task: LinearPopulation, num_examples: Count, *, query_noise: bool = True
) -> Scalar:
    r"""Risk of averaging, w = X'y / k, for any Gaussian population.

    .. math:: R - \sigma^2 = \mathrm{tr}(H M) - 2\,\mathrm{tr}(H H M)
        + \tfrac{k+1}{k} \mathrm{tr}(H H M H) + \tfrac{\tau}{k} \mathrm{tr}(H^2),
        \qquad \tau = \mathrm{tr}(H M) + \sigma^2,

    which is d (d + 1 + sigma^2) / k for H = Psi = I and beta* = 0. At k = 0 it is the
    zero predictor.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples k; may be traced.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk.

    Example:
        >>> task = LinearPopulation.isotropic(20)
        >>> [round(float(averaging_risk(task, k)) / 20, 4) for k in (1, 10, 40)]
        [21.0, 2.1, 0.525]

    Source: Garg et al. (2022), Section 3.
    """
    eye = jnp.eye(task.dim, dtype=task.dtype)
    return linear_attention_risk(task, num_examples, eye, query_noise=query_noise)


def _check_isotropic(input_cov: Any, num_examples: Count, dim: int) -> None:
    check_values(
        "input_cov",
        jnp.asarray(is_isotropic(input_cov)) | (jnp.asarray(num_examples) >= dim),
        lambda fits: fits,
        "a multiple of the identity where num_examples < dim",
        "a matrix that is not; average ridge_risk_given(task, X, 0.0) over X instead",
    )
