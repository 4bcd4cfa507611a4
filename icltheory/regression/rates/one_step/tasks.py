"""Number of tasks for one-step pretraining: Wu et al.'s Theorem 4.1, unverified."""

import jax.numpy as jnp
import numpy as np

from icltheory._calculators import calculator
from icltheory._checks import check_integer, check_shape
from icltheory._noted import check_finite, check_nonnegative, check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._linalg import Matrix, Number, einsum, is_isotropic
from icltheory.regression.population import LinearPopulation
from icltheory.regression.rates._spectrum import check_zero_mean, read_length
from icltheory.regression.risks._population import Count, Population

__all__ = ["TaskComplexity", "halving_steps", "task_complexity_bound"]


@pytree
class TaskComplexity:
    r"""The order of the excess risk after T tasks, UNVERIFIED.

    .. math:: \mathrm{bias} + (\mathrm{tr}(H \Psi) + \sigma^2)\, D_{eff} / T_{eff}.

    Args:
        bias: What is left of the start.
        variance: The second summand.
        total: Their sum.
        effective_dimension: D_eff.
        effective_tasks: T_eff = T / log T.
        largest_step: 1 / (tr(H) tr(Ht_N)), which gamma_0 is to stay a constant below.
        commutes: Whether the start commutes with H, as the statement supposes.

    Returns:
        A frozen pytree.

    Example:
        >>> problem = LinearPopulation.isotropic(2, 1.0)
        >>> bool(task_complexity_bound(problem, 4, 64, 0.01).commutes)
        True

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Theorem 4.1, from memory.
    """

    bias: Scalar
    variance: Scalar
    total: Scalar
    effective_dimension: Scalar
    effective_tasks: Scalar
    largest_step: Scalar
    commutes: Bool[Array, ""]


@calculator
def halving_steps(num_tasks: int, initial_step: Number) -> Float[Array, "T"]:
    r"""Step sizes of the theorem, halved every T / log_2 T steps.

    .. math:: \gamma_t = \gamma_0\, 2^{-\lfloor t \log_2(T) / T \rfloor},
        \qquad t = 1, \dots, T.

    Args:
        num_tasks: Tasks T >= 2, one for each step.
        initial_step: gamma_0 >= 0.

    Returns:
        The step sizes.

    Example:
        >>> halving_steps(4, 1.0).tolist()
        [1.0, 0.5, 0.5, 0.25]

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Theorem 4.1, from memory.
    """
    check_integer("num_tasks", num_tasks, 2)
    check_shape("initial_step", initial_step, ())
    check_nonnegative("initial_step", initial_step)
    halvings = np.floor(np.arange(1, num_tasks + 1) * (np.log2(num_tasks) / num_tasks))
    return jnp.asarray(initial_step) * jnp.asarray(0.5**halvings)


@calculator
def task_complexity_bound(
    problem: LinearPopulation,
    num_examples: Count,
    num_tasks: int,
    initial_step: Number,
    Gamma_0: Matrix | None = None,
) -> TaskComplexity:
    r"""Excess risk of one-step SGD over T fresh tasks (Theorem 4.1): UNVERIFIED.

    .. math:: E R_N(\Gamma_T) - \min R_N \lesssim \Bigl\langle H \tilde H_N,\
        \Bigl(\prod_t (I - \gamma_t H \tilde H_N) (\Gamma_0 - \Gamma^*_N)\Bigr)^2
        \Bigr\rangle + (\psi^2 \mathrm{tr}(H) + \sigma^2) \frac{D_{eff}}{T_{eff}},

    .. math:: D_{eff} = \sum_{i,j} \min\{1,\ T_{eff}^2 \gamma_0^2 \lambda_i^2
        \tilde\lambda_j^2\}, \qquad T_{eff} = T / \log T,

    with lambda and lambda~ the eigenvalues of H and of Ht_N = E (X'y/N)(X'y/N)', for
    Gamma_t = Gamma_{t-1} - gamma_t (<Gamma_{t-1} h, x> - y) x h', h = X'y / N, with the
    steps of ``halving_steps``. The statement is from memory, without its constant and
    not checked against the paper; it agreed with simulation on one instance (ratios
    of excess to bound between 0.58 and 1.24). Do not rest a proof on it.

    Args:
        problem: A population with prior N(0, psi^2 I).
        num_examples: Examples N >= 1; may be traced.
        num_tasks: Tasks T >= 2.
        initial_step: gamma_0 >= 0.
        Gamma_0: Start, which is to commute with H; zero if None.

    Returns:
        Both terms, and the conditions.

    Example:
        >>> problem = LinearPopulation.isotropic(2, 1.0)
        >>> few, many = (task_complexity_bound(problem, 4, T, 0.05) for T in (64, 4096))
        >>> bool(many.total < few.total)
        True

    Source: Wu et al. (2024), Theorem 4.1, from memory.
    """
    _check_prior(problem)
    H, _, noise_var, signal = Population.of(problem)
    N = read_length("num_examples", num_examples, H.dtype)
    steps = halving_steps(num_tasks, initial_step).astype(H.dtype)
    lam, V = jnp.linalg.eigh(H)
    lam = jnp.maximum(lam, 0)
    psi2 = jnp.trace(jnp.asarray(problem.task_cov)) / problem.dim
    slope = ((N + 1) * psi2 * lam + signal + noise_var) / N  # psi^2 / Gamma*_N
    feature = lam * slope
    start = jnp.zeros_like(H) if Gamma_0 is None else _read_start(Gamma_0, H)
    rotated = einsum("ji,jk,kl->il", V, start, V)
    left = jnp.prod(1 - steps[:, None] * (lam * feature)[None], axis=0)
    gap = left[:, None] * (rotated - jnp.diag(psi2 / slope))
    bias = jnp.sum(lam[:, None] * gap**2 * feature[None])
    tasks = jnp.asarray(num_tasks / np.log(num_tasks), H.dtype)
    strength = tasks * jnp.asarray(initial_step) * lam[:, None] * feature[None]
    dimension = jnp.sum(jnp.minimum(1, strength**2))
    variance = (signal + noise_var) * dimension / tasks
    swapped = einsum("ij,jk->ik", H, start) - einsum("ij,jk->ik", start, H)
    scale = jnp.max(jnp.abs(start)) * jnp.max(lam)
    return TaskComplexity(
        bias=bias,
        variance=variance,
        total=bias + variance,
        effective_dimension=dimension,
        effective_tasks=tasks,
        largest_step=1 / (jnp.sum(lam) * jnp.sum(feature)),
        commutes=jnp.max(jnp.abs(swapped)) <= 1e-6 * scale,
    )


def _read_start(Gamma_0: Matrix, H: Array) -> Array:
    check_shape("Gamma_0", Gamma_0, H.shape)
    check_finite("Gamma_0", Gamma_0)
    return jnp.asarray(Gamma_0, H.dtype)


def _check_prior(problem: LinearPopulation) -> None:
    check_zero_mean(problem)
    check_values(
        "problem",
        problem.task_cov,
        is_isotropic,
        "task_cov = psi^2 I",
        "a matrix that is not a multiple of I",
    )
