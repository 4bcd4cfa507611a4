"""Number of tasks for one-step pretraining: Wu et al.'s Theorem 4.1, unverified."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    Check,
    check_integer,
    check_shape,
    count,
    finite,
    nonnegative,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._linalg import einsum, is_isotropic
from icltheory.regression.population import LinearPopulation

__all__ = ["TaskComplexity", "halving_steps", "task_complexity_bound"]

_CENTRED = Check(lambda mean: mean == 0, "task_mean = 0")
_ROUND = Check(is_isotropic, "task_cov = psi^2 I")


class TaskComplexity(Record):
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
    """

    bias: Scalar
    variance: Scalar
    total: Scalar
    effective_dimension: Scalar
    effective_tasks: Scalar
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


def _plain(name: str, population: Any, given: Any = None) -> Any:
    """The check of tasks with the prior N(0, psi^2 I)."""
    flags = _CENTRED(name, population.task_mean), _ROUND(name, population.task_cov)
    traced = [flag for flag in flags if flag is not True]
    return jnp.all(jnp.stack(traced)) if traced else True


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
    steps of ``halving_steps``. The statement is from memory, without its constant and
    not checked against the paper; it agreed with simulation on one instance (ratios
    of excess to bound between 0.58 and 1.24). Do not rest a proof on it.

    Args:
        population: A population with prior N(0, psi^2 I).
        num_examples: Number N >= 1 of examples; may be traced.
        num_tasks: Tasks T >= 2.
        initial_step: gamma_0 >= 0.
        Gamma_0: Start, which is to commute with H; zero if None.

    Example:
        >>> population = LinearPopulation.isotropic(2, 1.0)
        >>> bounds = [task_complexity_bound(population, 4, T, 0.05) for T in (64, 4096)]
        >>> bool(bounds[1].total < bounds[0].total)
        True
        >>> bool(bounds[0].commutes)
        True

    Source: Wu et al. (2024), Theorem 4.1, from memory.
    """
    H, noise_var = population.input_cov, population.noise_var
    signal = population.signal
    N = jnp.asarray(num_examples, H.dtype)
    steps = halving_steps(num_tasks, initial_step).astype(H.dtype)
    lam, V = jnp.linalg.eigh(H)
    lam = jnp.maximum(lam, 0)
    psi2 = jnp.trace(population.task_cov) / population.dim
    slope = ((N + 1) * psi2 * lam + signal + noise_var) / N  # psi^2 / Gamma*_N
    feature = lam * slope
    start = jnp.zeros_like(H)
    if Gamma_0 is not None:
        check_shape("Gamma_0", Gamma_0, H.shape)
        start = jnp.asarray(Gamma_0, H.dtype)
    rotated = einsum("ji,jk,kl->il", V, start, V)
    left = jnp.prod(1 - steps[:, None] * (lam * feature)[None], axis=0)
    gap = left[:, None] * (rotated - jnp.diag(psi2 / slope))
    bias = jnp.sum(lam[:, None] * gap**2 * feature[None])
    tasks = jnp.asarray(num_tasks / np.log(num_tasks), H.dtype)
    strength = tasks * initial_step * lam[:, None] * feature[None]
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
