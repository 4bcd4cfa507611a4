"""The best single step of gradient descent from zero (Wu et al., Theorem 3.1)."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import Matrix, einsum
from icltheory.regression.population import LinearPopulation
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.risks._population import Count, Population
from icltheory.regression.risks.linear_attention import linear_attention_optimum

__all__ = [
    "OneStepOptimum",
    "one_step_excess",
    "one_step_optimum",
]


@pytree
class OneStepOptimum:
    r"""The best preconditioner of one gradient step from zero (Theorem 3.1).

    .. math:: \Gamma^*_N, \qquad \tilde H_N = E\Bigl[\tfrac{X^\top y}{N}
        \bigl(\tfrac{X^\top y}{N}\bigr)^\top\Bigr], \qquad R_N(\Gamma^*_N).

    Args:
        Gamma: Gamma*_N.
        second_moment: Ht_N.
        risk: The risk of Gamma*_N.

    Returns:
        A frozen pytree.

    Example:
        >>> best = one_step_optimum(LinearPopulation.isotropic(1), 4)
        >>> round(float(best.Gamma[0, 0]), 6), float(best.second_moment[0, 0])
        (0.666667, 1.5)

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Theorem 3.1.
    """

    Gamma: Float[Array, "d d"]
    second_moment: Float[Array, "d d"]
    risk: Scalar


@calculator
def one_step_optimum(problem: LinearPopulation, num_examples: Count) -> OneStepOptimum:
    r"""Optimum of f = <Gamma X'y / N, x> and its feature's distribution (Theorem 3.1).

    .. math:: \Gamma^*_N = \Bigl(\tfrac{\mathrm{tr}(H) + \sigma^2 / \psi^2}{N} I
        + \tfrac{N + 1}{N} H\Bigr)^{-1}, \qquad
        \tilde H_N = \psi^2 H (\Gamma^*_N)^{-1},

    for the paper's prior w ~ N(0, psi^2 I). For any prior, with M = Psi + beta* beta*',
    Gamma*_N is that of ``risks.linear_attention_optimum`` and
    Ht_N = ((N + 1) H M H + tau H) / N, which is what is evaluated. Cost O(d^3).

    Args:
        problem: The population (H, beta*, Psi, sigma^2), with tau > 0.
        num_examples: Examples N >= 1; may be traced.

    Returns:
        Gamma*_N, Ht_N and the least risk.

    Example:
        >>> best = one_step_optimum(LinearPopulation.isotropic(5), 20)
        >>> round(float(best.risk), 4)
        1.1538

    Source: Wu et al. (2024), Theorem 3.1.
    """
    H, M, _, _ = population = Population.of(problem)
    N = read_length("num_examples", num_examples, H.dtype)
    best = linear_attention_optimum(problem, num_examples)
    HMH = einsum("ij,jk,kl->il", H, M, H)
    second_moment = ((N + 1) * HMH + population.tau * H) / N
    return OneStepOptimum(best.Gamma, second_moment, best.risk)


@calculator
def one_step_excess(
    problem: LinearPopulation, num_examples: Count, Gamma: Matrix
) -> Scalar:
    r"""Excess risk of a preconditioner of one gradient step (Theorem 3.1).

    .. math:: R_N(\Gamma) - \min R_N = \bigl\langle H,\ (\Gamma - \Gamma^*_N)\,
        \tilde H_N\, (\Gamma - \Gamma^*_N)^\top \bigr\rangle,

    without the cancellation of a difference of risks.

    Args:
        problem: The population (H, beta*, Psi, sigma^2), with tau > 0.
        num_examples: Examples N >= 1; may be traced.
        Gamma: The preconditioner.

    Returns:
        The excess.

    Example:
        >>> problem = LinearPopulation.isotropic(1)
        >>> round(float(one_step_excess(problem, 4, jnp.zeros((1, 1)))), 6)
        0.666667

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Theorem 3.1.
    """
    check_shape("Gamma", Gamma, (problem.dim, problem.dim))
    best = one_step_optimum(problem, num_examples)
    D = jnp.asarray(Gamma, best.Gamma.dtype) - best.Gamma
    H = jnp.asarray(problem.input_cov)
    return einsum("ij,jk,kl,il->", H, D, best.second_moment, D)
