"""A trained layer away from its training: other lengths, labels, covariances."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    Check,
    check_integer,
    check_shape,
    count,
    covariance,
    finite,
    nonnegative,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._linalg import (
    as_floats,
    is_isotropic,
    quotient,
    seen_eigenvalues,
)
from icltheory.regression.gaps import eigenvalues
from icltheory.regression.gradient_blocks import CENTRED
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep

__all__ = [
    "TaskComplexity",
    "halving_steps",
    "length_transfer_rate",
    "random_covariance_optimum",
    "risk_at_length_bound",
    "risk_for_labels",
    "task_complexity_bound",
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

    with Lambda = ``input_cov``, :math:`\Lambda a = E[x y]` (``weight``), Sigma = Cov(x
    y) (``moment_cov``) and ``least_risk``, that of the best linear predictor: y is any
    function of x and noise. For the Gamma of training with N examples the last term is
    of order 1/N^2; it stays as M grows.

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
    missed = a - Gamma @ Lam @ a
    spread = jnp.sum(Gamma * (Lam @ Gamma @ Sigma))
    return least + spread / num_examples + missed @ Lam @ missed


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

    with phi_i the eigenvalues of H^{1/2} Psi H^{1/2}. It supposes tr(H Psi) at most a
    constant times sigma^2. The constants are not proved here: over 300 spectra with
    tr(H Psi) <= sigma^2 the ratio of the sides lay between 0.28 and 2.0.

    Example:
        >>> population = LinearPopulation.isotropic(3, 4.0)
        >>> round(float(length_transfer_rate(population, 4, 8)), 6)
        2.25

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Section 5.
    """
    phi = eigenvalues(population)
    N, M = (jnp.asarray(n, phi.dtype) for n in (train_length, test_length))
    level_N, level_M = population.noise_var / N, population.noise_var / M
    # (mu_M - mu_N)^2 min{phi / mu_N^2, 1 / phi}, which is finite without noise.
    tilt = (N / M - 1) ** 2 * phi * quotient(level_N, jnp.maximum(level_N, phi), 1) ** 2
    seen = jnp.where(phi > 0, quotient(jnp.minimum(phi, level_M), level_M, 1), 0)
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

    for w ~ N(0, I), no noise and the diagonals ``variances`` (T, d) with the
    ``probabilities``, equal if None, up to a factor. It is v U of the limit of the
    flow, with 0 for a direction that no covariance has.

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
    return jnp.diag(quotient(target, system, 0))


class TaskComplexity(Record):
    r"""The order of the excess risk after T tasks, UNVERIFIED.

    .. math:: \mathrm{bias} + (\mathrm{tr}(H \Psi) + \sigma^2)\, D_{eff} / T_{eff}.

    gamma_0 is to stay a constant below ``largest_step`` = 1 / (tr(H) tr(Ht_N)), and the
    start is to commute with H.
    """

    bias: Scalar
    variance: Scalar
    total: Scalar
    effective_dimension: Scalar
    largest_step: Scalar
    commutes: Bool[Array, ""]


@calculator(static=("num_tasks",), initial_step=scalar & nonnegative)
def halving_steps(num_tasks: int, initial_step: Any) -> Float[Array, "T"]:
    r"""Step sizes of the theorem, halved every T / log_2 T steps.

    .. math:: \gamma_t = \gamma_0\, 2^{-\lfloor t \log_2(T) / T \rfloor},
        \qquad t = 1, \dots, T.

    Example:
        >>> halving_steps(4, 1.0).tolist()
        [1.0, 0.5, 0.5, 0.25]

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Theorem 4.1, from memory.
    """
    check_integer("num_tasks", num_tasks, 2)
    halvings = np.floor(np.arange(1, num_tasks + 1) * (np.log2(num_tasks) / num_tasks))
    return jnp.asarray(initial_step) * jnp.asarray(0.5**halvings)


_ROUND = Check(is_isotropic, "task_cov = psi^2 I")


def _plain(name: str, population: Any, given: Any = None) -> Any:
    """The check of tasks with the prior N(0, psi^2 I)."""
    return CENTRED(name, population.task_mean) & _ROUND(name, population.task_cov)


@calculator(
    static=("num_tasks",),
    integers=("num_examples",),
    population=_plain,
    num_examples=count(1),
    initial_step=scalar & nonnegative,
    Gamma_0=finite,
)
def task_complexity_bound(
    population: LinearPopulation,
    num_examples: Any,
    num_tasks: int,
    initial_step: Any,
    Gamma_0: Any = None,
) -> TaskComplexity:
    r"""Excess risk of one-step SGD over T fresh tasks (Theorem 4.1): UNVERIFIED.

    .. math:: E R_N(\Gamma_T) - \min R_N \lesssim \Bigl\langle H \tilde H_N,\
        \Bigl(\prod_t (I - \gamma_t H \tilde H_N) (\Gamma_0 - \Gamma^*_N)\Bigr)^2
        \Bigr\rangle + (\psi^2 \mathrm{tr}(H) + \sigma^2) \frac{D_{eff}}{T_{eff}},

    .. math:: D_{eff} = \sum_{i,j} \min\{1,\ T_{eff}^2 \gamma_0^2 \lambda_i^2
        \tilde\lambda_j^2\}, \qquad T_{eff} = T / \log T,

    with lambda and lambda~ the eigenvalues of H and of Ht_N = E (X'y/N)(X'y/N)', for
    Gamma_t = Gamma_{t-1} - gamma_t (<Gamma_{t-1} h, x> - y) x h', h = X'y / N, with the
    steps of ``halving_steps``; Gamma_0 is 0 if None. The prior is N(0, psi^2 I). The
    statement is from memory, without its constant and not checked against the paper; it
    agreed with simulation on one instance (ratios of excess to bound between 0.58 and
    1.24). Do not rest a proof on it.

    Example:
        >>> population = LinearPopulation.isotropic(2, 1.0)
        >>> bounds = [task_complexity_bound(population, 4, T, 0.05) for T in (64, 4096)]
        >>> bool(bounds[1].total < bounds[0].total), bool(bounds[0].commutes)
        (True, True)

    Source: Wu et al. (2024), Theorem 4.1, from memory.
    """
    H, N = population.input_cov, jnp.asarray(num_examples, population.dtype)
    total = population.signal + population.noise_var
    steps = halving_steps(num_tasks, initial_step).astype(H.dtype)
    lam, V = jnp.linalg.eigh(H)
    lam = jnp.maximum(lam, 0)
    psi2 = jnp.trace(population.task_cov) / population.dim
    slope = ((N + 1) * psi2 * lam + total) / N  # psi^2 / Gamma*_N
    feature = lam * slope
    start = jnp.zeros_like(H)
    if Gamma_0 is not None:
        check_shape("Gamma_0", Gamma_0, H.shape)
        start = jnp.asarray(Gamma_0, H.dtype)
    left = jnp.prod(1 - steps[:, None] * (lam * feature)[None], axis=0)
    gap = left[:, None] * (V.T @ start @ V - jnp.diag(psi2 / slope))
    bias = jnp.sum(lam[:, None] * gap**2 * feature[None])
    tasks = jnp.asarray(num_tasks / np.log(num_tasks), H.dtype)
    strength = tasks * initial_step * lam[:, None] * feature[None]
    dimension = jnp.sum(jnp.minimum(1, strength**2))
    variance = total * dimension / tasks
    swapped = jnp.max(jnp.abs(H @ start - start @ H))
    scale = jnp.max(jnp.abs(start)) * jnp.max(lam)
    return TaskComplexity(
        bias=bias,
        variance=variance,
        total=bias + variance,
        effective_dimension=dimension,
        largest_step=1 / (jnp.sum(lam) * jnp.sum(feature)),
        commutes=swapped <= 1e-6 * scale,
    )
