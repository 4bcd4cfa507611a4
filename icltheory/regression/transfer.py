"""A trained layer away from its training prompts: other lengths, labels, covariances.

With linear labels the risk of a step trained with N examples on prompts of M examples
is ``risk(optimum(LinearStep, population, N).model, population, M)``, and what it loses
there is its ``excess``. Here is what that does not cover.
"""

from typing import Any

import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_shape,
    count,
    covariance,
    finite,
    nonnegative,
    scalar,
)
from icltheory._core import calculator
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import (
    as_floats,
    einsum,
    seen_eigenvalues,
    symmetric_root,
)
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep

__all__ = [
    "length_transfer_rate",
    "random_covariance_optimum",
    "risk_at_length_bound",
    "risk_for_labels",
]

_LENGTHS = ("train_length", "test_length")
_DEFINITE = Check(lambda least: least > 0, "a positive definite matrix")


def _definite(name: str, value: Any, given: Any = None) -> Any:
    """The check of a covariance that is not singular."""
    flag = covariance(name, value, given)
    least = jnp.min(seen_eigenvalues(*as_floats(value))[0])
    return flag & _DEFINITE(name, least)


@calculator(
    integers=("num_examples",),
    input_cov=covariance,
    num_examples=count(1),
    weight=finite,
    moment_cov=covariance,
    least_risk=scalar & finite,
)
def risk_for_labels(
    step: LinearStep,
    input_cov: Any,
    num_examples: Any,
    *,
    weight: Any,
    moment_cov: Any,
    least_risk: Any = 0.0,
) -> Scalar:
    r"""Risk of a linear step for any law of the labels (Theorem 4.2).

    .. math:: E(\hat y - y)^2 = \min_w E(\langle w, x\rangle - y)^2
        + \frac1M \mathrm{tr}(\Sigma\, \Gamma^\top \Lambda \Gamma)
        + |(I - \Gamma \Lambda) a|_\Lambda^2

    with :math:`\Lambda a = E[x y]` and Sigma = Cov(x y): pairs (x, y) independent and
    alike, x ~ N(0, Lambda), y any function of x and noise. For the Gamma = G^{-1} of
    training with N examples, G = (1 + 1/N) Lambda + tr(Lambda) I / N, the last term is
    of order 1/N^2; it stays as M grows.

    Args:
        step: The step.
        input_cov: Lambda.
        num_examples: Number M >= 1 of examples; may be traced.
        weight: a.
        moment_cov: Sigma.
        least_risk: The risk of the best linear predictor.

    Example:
        >>> from icltheory.regression.optima import optimum
        >>> step = optimum(LinearStep, LinearPopulation.isotropic(2), 5).model
        >>> a, Sigma = jnp.array([1.0, 0.0]), jnp.diag(jnp.array([2.0, 1.0]))
        >>> risk = risk_for_labels(step, jnp.eye(2), 5, weight=a, moment_cov=Sigma)
        >>> round(float(risk), 6)
        0.375

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.2.
    """
    dim = len(step.Gamma)
    check_shape("weight", weight, (dim,))
    for name, matrix in (("input_cov", input_cov), ("moment_cov", moment_cov)):
        check_shape(name, matrix, (dim, dim))
    Gamma, Lam, Sigma, a, least = as_floats(
        step.Gamma, input_cov, moment_cov, weight, least_risk
    )
    spread = einsum("ij,kj,kl,li->", Sigma, Gamma, Lam, Gamma)
    missed = a - einsum("ij,jk,k->i", Gamma, Lam, a)
    return least + spread / num_examples + einsum("i,ij,j->", missed, Lam, missed)


@calculator(
    integers=_LENGTHS, input_cov=_definite, train_length=count(1), test_length=count(1)
)
def risk_at_length_bound(input_cov: Any, train_length: Any, test_length: Any) -> Scalar:
    r"""Bound on the risk of the best step for N examples when it gets M.

    .. math:: R \le \frac{(d + 1)\, \mathrm{tr}\,\Lambda}{M}
        + \frac{(1 + 2d + d^2 \kappa)\, \mathrm{tr}\,\Lambda}{N^2}

    for x ~ N(0, Lambda), w ~ N(0, I) and no noise, with kappa the condition number of
    Lambda, which is positive definite.

    Example:
        >>> float(risk_at_length_bound(jnp.eye(2), 3, 6))
        3.0

    Source: Zhang, Frei and Bartlett (2024), corollary of Theorem 4.2.
    """
    (Lam,) = as_floats(input_cov)
    d, values = len(Lam), jnp.linalg.eigvalsh(Lam)
    kappa = values[-1] / values[0]
    second = (1 + 2 * d + d**2 * kappa) / train_length**2
    return jnp.trace(Lam) * ((d + 1) / test_length + second)


@calculator(integers=_LENGTHS, train_length=count(1), test_length=count(1))
def length_transfer_rate(
    population: LinearPopulation, train_length: Any, test_length: Any
) -> Scalar:
    r"""The order of R_M(Gamma*_N) - sigma^2, tuned for N examples and given M.

    .. math:: \sum_i \min\{\mu_M, \phi_i\}
        + (\mu_M - \mu_N)^2 \sum_i \min\Bigl\{\frac{\phi_i}{\mu_N^2}, \frac{1}{\phi_i}
        \Bigr\} \min\Bigl\{\frac{\phi_i}{\mu_M}, 1\Bigr\}, \qquad
        \mu_n = \frac{\sigma^2}{n},

    with phi_i the eigenvalues of H^{1/2} Psi H^{1/2}: psi^2 times those of H for the
    paper's prior w ~ N(0, psi^2 I). It supposes tr(H Psi) at most a constant times
    sigma^2. The constants are not proved here: over 300 spectra with tr(H Psi) <=
    sigma^2 the ratio of the sides lay between 0.28 and 2.0.

    Example:
        >>> population = LinearPopulation.isotropic(3, 4.0)
        >>> round(float(length_transfer_rate(population, 4, 8)), 6)
        2.25

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Section 5.
    """
    H, root = population.input_cov, symmetric_root(population.task_cov)
    values = jnp.linalg.eigvalsh(einsum("ji,jk,kl->il", root, H, root))
    cutoff = population.dim * jnp.finfo(H.dtype).eps * jnp.max(jnp.abs(values))
    phi = jnp.where(values > cutoff, values, 0)
    N, M = (jnp.asarray(n, phi.dtype) for n in (train_length, test_length))
    level_N, level_M = population.noise_var / N, population.noise_var / M
    # (mu_M - mu_N)^2 min{phi / mu_N^2, 1 / phi}, which is finite without noise.
    tilt = (N / M - 1) ** 2 * phi * _share(level_N, jnp.maximum(level_N, phi)) ** 2
    seen = jnp.where(phi > 0, _share(jnp.minimum(phi, level_M), level_M), 0)
    return jnp.sum(jnp.minimum(level_M, phi)) + jnp.sum(tilt * seen)


@calculator(
    integers=("num_examples",),
    variances=nonnegative,
    num_examples=count(1),
    probabilities=nonnegative & Check(lambda p: p.any(), "a positive entry"),
)
def random_covariance_optimum(
    variances: Any, num_examples: Any, probabilities: Any = None
) -> Float[Array, "d d"]:
    r"""The best linear step for prompts with random diagonal covariances (Theorem 4.5).

    .. math:: \Gamma = \bigl(E\, G_t \Lambda_t^2\bigr)^{-1} E\, \Lambda_t^2, \qquad
        G_t = \Bigl(1 + \frac1N\Bigr) \Lambda_t + \frac{\mathrm{tr}\,\Lambda_t}{N} I,

    for w ~ N(0, I) and no noise, diagonal; it is v U of the limit of the flow. A
    direction that no covariance has is given 0. It is no longer the inverse of any
    covariance: prompts of one task are then not learnt however long they are.

    Args:
        variances: Diagonals of Lambda_1, ..., Lambda_T, (T, d).
        num_examples: Number N >= 1 of examples; may be traced.
        probabilities: Of each covariance; equal if None. Their sum does not matter.

    Example:
        >>> Gamma = random_covariance_optimum(jnp.array([[1.0], [3.0]]), 2)
        >>> round(float(Gamma[0, 0]), 6)
        0.178571

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.5.
    """
    check_shape("variances", variances, ("T", "d"))
    (lam,) = as_floats(variances)
    weights = jnp.ones_like(lam[:, 0])
    if probabilities is not None:
        check_shape("probabilities", probabilities, (lam.shape[0],))
        weights = jnp.asarray(probabilities, lam.dtype)
    N = num_examples
    G = (1 + 1 / N) * lam + jnp.sum(lam, axis=1, keepdims=True) / N
    target = jnp.sum(weights[:, None] * lam**2, axis=0)
    system = jnp.sum(weights[:, None] * G * lam**2, axis=0)
    return jnp.diag(jnp.where(system > 0, target / jnp.where(system > 0, system, 1), 0))


def _share(part: Array, whole: Array) -> Array:
    """Quotient of a part and the whole; 1 where the whole is 0."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 1)
