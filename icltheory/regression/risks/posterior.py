"""Exact risks of ridge and Bayes given the inputs, and their averages over inputs."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._checks import check_nonnegative_int, check_positive_int
from icltheory._noted import check_scalar
from icltheory._typing import Array, PRNGKey
from icltheory.regression._linalg import Number
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import Bayes, Ridge
from icltheory.regression.predictors._inputs import one_or_batch
from icltheory.statistics import Estimate

__all__ = [
    "bayes_risk",
    "bayes_risk_given",
    "bayes_risk_given_prefixes",
    "ridge_risk",
    "ridge_risk_given",
]

Rows = Float[ArrayLike, "... _N _d"]


@calculator
def ridge_risk_given(
    task: LinearPopulation, X: Rows, penalty: Number, *, query_noise: bool = True
) -> Float[Array, "..."]:
    r"""Exact risk of ridge, or of least squares, given the example inputs.

    .. math:: R(X) - \sigma^2 = \lambda^2\, \mathrm{tr}(H A M A)
        + \sigma^2\, \mathrm{tr}(H A X^\top X A), \quad A = (X^\top X + \lambda I)^{-1}

    with M = Psi + beta* beta*', the expectation over weight, noise and query. Evaluated
    in the singular basis of X; a known lambda = 0 is minimum-norm least squares, with
    the pseudoinverse and the rank of ``ols``. Differentiable in all but X.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        X: Example inputs, (N, d) or (B, N, d).
        penalty: lambda >= 0, not multiplied by N.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk, () or (B,).

    Example:
        >>> task = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> float(ridge_risk_given(task, jnp.ones((1, 1)), 1.0, query_noise=False))
        0.5

    Source: Hastie et al. (2022), Lemma 1.
    """
    check_scalar("penalty", penalty)
    rule = Ridge(penalty)
    risks = one_or_batch(lambda X: rule.risk_given(task, X), _read_rows(X, task))
    return risks + query_noise * task.noise_var


@calculator
def bayes_risk_given(
    task: LinearPopulation, X: Rows, *, query_noise: bool = True
) -> Float[Array, "..."]:
    r"""Exact risk of the Bayes predictor given the example inputs (Lemma 6.1).

    .. math:: R(X) - \sigma^2 = \mathrm{tr}(H C), \qquad C = \sigma^2\, \Psi^{1/2}
        (\Psi^{1/2} X^\top X \Psi^{1/2} + \sigma^2 I)^{-1} \Psi^{1/2}

    C the posterior covariance of the weight; it depends on neither labels nor beta*.
    For sigma = 0 it is the limit. Differentiable, for sigma > 0 in all arguments.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        X: Example inputs, (N, d) or (B, N, d).
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk, () or (B,).

    Example:
        >>> H = jnp.array([[2.0, 0.5], [0.5, 1.0]])
        >>> Psi = jnp.array([[1.0, 0.2], [0.2, 0.5]])
        >>> task = LinearPopulation(H, jnp.array([1.0, -2.0]), Psi, 0.25)
        >>> X = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
        >>> round(float(bayes_risk_given(task, X)), 8)
        0.71535245

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    risks = one_or_batch(Bayes(task).posterior_risk, _read_rows(X, task))
    return risks + query_noise * task.noise_var


@calculator
def bayes_risk_given_prefixes(
    task: LinearPopulation, X: Rows, *, query_noise: bool = True
) -> Float[Array, "... P"]:
    r"""Exact risk of the Bayes predictor after every prefix of the example inputs.

    .. math:: R_k = \mathrm{tr}(H C_k) + \sigma^2, \qquad k = 0, \dots, P - 1

    with C_k the posterior covariance of ``bayes_risk_given`` for the first k rows, by
    the square-root recursion of ``bayes_prefixes``: O(d^3) a prefix.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        X: Example inputs, (P, d) or (B, P, d).
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risks, (P,) or (B, P).

    Example:
        >>> task = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> risks = bayes_risk_given_prefixes(task, jnp.ones((3, 1)), query_noise=False)
        >>> risks.round(6).tolist()
        [1.0, 0.5, 0.333333]

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    risks = one_or_batch(Bayes(task).posterior_risks, _read_rows(X, task))
    return risks + query_noise * task.noise_var


@calculator
def bayes_risk(
    task: LinearPopulation,
    key: PRNGKey,
    num_prompts: int,
    *,
    num_examples: int,
    query_noise: bool = True,
) -> Estimate:
    r"""Bayes risk after k = 0, ..., N examples, averaged over Gaussian inputs.

    .. math:: R_k \approx \sigma^2 + \frac1S \sum_{s=1}^S \mathrm{tr}(H\, C_k(X_s)).

    There is no elementary closed form; only the inputs are sampled, the rest of the
    expectation is exact, which makes the standard error several times smaller than
    that of squared errors.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        key: Typed key.
        num_prompts: Draws S of the inputs.
        num_examples: Largest number of examples N.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        Mean and standard error, each (N + 1,).

    Example:
        >>> import jax
        >>> task = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> risk = bayes_risk(task, jax.random.key(0), 2000, num_examples=1)
        >>> bool(abs(risk.mean[1] - 1.6557) < 5 * risk.standard_error[1])
        True

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    check_positive_int("num_prompts", num_prompts)
    check_nonnegative_int("num_examples", num_examples)
    X = task.sample_inputs(key, num_examples + 1, num_prompts)
    risks = bayes_risk_given_prefixes(task, X, query_noise=query_noise)
    return Estimate.of(risks)


@calculator
def ridge_risk(
    task: LinearPopulation,
    key: PRNGKey,
    num_prompts: int,
    penalty: Number,
    *,
    num_examples: int,
    query_noise: bool = True,
) -> Estimate:
    r"""Risk of ridge with N examples, averaged over Gaussian inputs.

    .. math:: R \approx \frac1S \sum_{s=1}^S R(X_s)

    with R(X) of ``ridge_risk_given``: only the inputs are sampled.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        key: Typed key.
        num_prompts: Draws S of the inputs.
        penalty: lambda >= 0, not multiplied by N.
        num_examples: Examples N.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        Mean and standard error, scalars.

    Example:
        >>> import jax
        >>> task = LinearPopulation.isotropic(3)
        >>> float(ridge_risk(task, jax.random.key(0), 9, 0.0, num_examples=0).mean)
        3.0

    Source: Hastie et al. (2022), Lemma 1.
    """
    check_positive_int("num_prompts", num_prompts)
    check_nonnegative_int("num_examples", num_examples)
    X = task.sample_inputs(key, num_examples, num_prompts)
    return Estimate.of(ridge_risk_given(task, X, penalty, query_noise=query_noise))


def _read_rows(X: Rows, task: LinearPopulation) -> Array:
    shape = jnp.shape(X)
    if len(shape) not in (2, 3) or shape[-1] != task.dim:
        raise ValueError(
            f"X: expected shape (N, {task.dim}) or (B, N, {task.dim}), got {shape}"
        )
    return jnp.asarray(X, task.dtype)
