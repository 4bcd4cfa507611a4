"""One layer of linear attention: one preconditioned gradient step from zero.

The risk of one step depends on the inputs by their second and fourth moments alone, so
that it is exact for inputs of any distribution whose moments are known.
"""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import Matrix, einsum, seen_eigenvalues
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._moments import FourthMoment, label_moment
from icltheory.regression.risks._population import Count, Population, read_count

__all__ = [
    "LinearAttentionOptimum",
    "linear_attention_optimum",
    "linear_attention_risk",
    "optimal_step_size",
]


@pytree
class LinearAttentionOptimum:
    r"""The best weight matrix of one linear-attention layer, and its risk.

    .. math:: \Gamma^* = \arg\min_\Gamma R(\Gamma), \qquad R(\Gamma^*).

    Args:
        Gamma: Gamma*.
        risk: Its risk.

    Returns:
        A frozen pytree.

    Example:
        >>> best = linear_attention_optimum(LinearPopulation.isotropic(3), 4)
        >>> best.Gamma.round(4).tolist()
        [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]

    Source: Ahn et al. (2023), Theorem 1.
    """

    Gamma: Float[Array, "d d"]
    risk: Scalar


@calculator
def linear_attention_risk(
    task: LinearPopulation,
    num_examples: Count,
    Gamma: Matrix,
    *,
    fourth_moment: FourthMoment = None,
    query_noise: bool = True,
) -> Scalar:
    r"""Risk of the prediction <Gamma X'y / k, x>, for any Gamma and any inputs.

    .. math:: R - \sigma^2 = \mathrm{tr}(H M) - 2\,\mathrm{tr}(H \Gamma H M)
        + \mathrm{tr}(\Gamma^\top H \Gamma S), \qquad
        k S = E [x x^\top M x x^\top] + (k - 1) H M H + \sigma^2 H,

    with H = E x x' and M = Psi + beta* beta*'. For Gaussian inputs k S = (k + 1) H M H
    + tau H with tau = tr(H M) + sigma^2; for independent coordinates of kurtosis
    kappa_i it has (kappa_i - 3) H_ii^2 M_ii on the diagonal besides. Gamma = eta A is
    one gradient step of size eta with preconditioner A; without examples the prediction
    is 0. Cost O(d^3), and O(d^4) for given fourth moments.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples k; may be traced.
        Gamma: The matrix.
        fourth_moment: Of the inputs, if they are not Gaussian: E x_i x_j x_k x_l,
            ``(d, d, d, d)``, or the kurtosis E x_i^4 / H_ii^2 of independent
            coordinates, a number or ``(d,)``, for a diagonal H. The inputs' second
            moments E x x' are the task's ``input_cov``.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk.

    Example:
        >>> task = LinearPopulation.isotropic(5)
        >>> Gamma = 20 / 26 * jnp.eye(5)
        >>> round(float(linear_attention_risk(task, 20, Gamma)), 4)
        1.1538
        >>> signs = linear_attention_risk(task, 20, Gamma, fourth_moment=1.0)
        >>> round(float(signs), 4)
        0.858

    Source: Wu et al. (2024), Section 3; Zhang, Wu and Bartlett (2024), Section 5 with
    beta = 0.
    """
    check_shape("Gamma", Gamma, (task.dim, task.dim))
    H, M, noise_var, signal = population = Population.of(task)
    G = jnp.asarray(Gamma, H.dtype)
    k = read_count(num_examples, H.dtype)
    HM = einsum("ij,jk->ik", H, M)
    moment = label_moment(population, k, fourth_moment)
    cross = einsum("ij,jk,ki->", H, G, HM)
    square = einsum("ji,jk,kl,li->", G, H, G, moment) / jnp.maximum(k, 1)
    moved = jnp.where(k > 0, square - 2 * cross, 0)
    return signal + moved + query_noise * noise_var


@calculator
def linear_attention_optimum(
    task: LinearPopulation,
    num_examples: Count,
    *,
    fourth_moment: FourthMoment = None,
    query_noise: bool = True,
) -> LinearAttentionOptimum:
    r"""Best preconditioned gradient step from zero, by one layer of linear attention.

    .. math:: \Gamma^* = M \Bigl(\tfrac{k+1}{k} H M + \tfrac{\tau}{k} I\Bigr)^{-1},
        \qquad R - \sigma^2 = \mathrm{tr}(H M) - \mathrm{tr}(H \Gamma^* H M),

    with M = Psi + beta* beta*' and tau = tr(H M) + sigma^2 > 0. For beta* = 0 it is the
    best layer of linear attention; with another mean some layers are slightly better,
    see :func:`~icltheory.regression.optimum`. For inputs with other fourth
    moments than Gaussian ones :math:`\Gamma^* = M H S^{-1}` with S of
    :func:`linear_attention_risk`. H and M may be singular; then Gamma* is one of many.
    For M = psi^2 I and Gaussian inputs it is
    (((tr H + sigma^2 / psi^2) / k) I + ((k + 1) / k) H)^{-1}, and for H = M = I it is
    k / (k + d + 1 + sigma^2) times I, with risk d (d + 1 + sigma^2) / (k + d + 1 +
    sigma^2) before the noise of the query. Cost O(d^3).

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples k; may be traced. Gamma* is 0 for k = 0.
        fourth_moment: Of the inputs, if they are not Gaussian: E x_i x_j x_k x_l,
            ``(d, d, d, d)``, or the kurtosis E x_i^4 / H_ii^2 of independent
            coordinates, a number or ``(d,)``, for a diagonal H. The inputs' second
            moments E x x' are the task's ``input_cov``.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        Gamma* and its risk.

    Example:
        >>> task = LinearPopulation.isotropic(20)
        >>> curve = [linear_attention_optimum(task, k).risk / 20 for k in (10, 20, 40)]
        >>> [round(float(risk), 4) for risk in curve]
        [0.6774, 0.5122, 0.3443]

    Source: Ahn, Cheng, Daneshmand and Sra (2023), Theorem 1; Wu, Zou, Chen, Braverman,
    Gu and Bartlett (2024), Section 3; Zhang, Wu and Bartlett (2024), Theorem 5.2.
    """
    H, M, noise_var, signal = population = Population.of(task)
    k = read_count(num_examples, H.dtype)
    HM = einsum("ij,jk->ik", H, M)
    if fourth_moment is None:  # H, which may be singular, cancels
        tau = jnp.where(population.tau > 0, population.tau, 1)
        system = (k + 1) * HM + tau * jnp.eye(task.dim, dtype=H.dtype)
        Gamma = k * jnp.linalg.solve(system.T, M).T
    else:
        moment = label_moment(population, k, fourth_moment)
        values, V = seen_eigenvalues(moment)
        inverses = jnp.where(values > 0, 1 / jnp.where(values > 0, values, 1), 0)
        Gamma = k * einsum("ji,jk,k,lk->il", HM, V, inverses, V)
    risk = signal - einsum("ij,jk,ki->", H, Gamma, HM) + query_noise * noise_var
    return LinearAttentionOptimum(Gamma, risk)


@calculator
def optimal_step_size(
    task: LinearPopulation, num_examples: Count, *, fourth_moment: FourthMoment = None
) -> Scalar:
    r"""Step size of least risk for one plain gradient step from zero.

    .. math:: \eta^* = \frac{\mathrm{tr}(H^2 M)}{\mathrm{tr}(H S)}
        = \frac{\mathrm{tr}(H^2 M)}{\tfrac{k+1}{k} \mathrm{tr}(H^2 M H)
        + \tfrac{\tau}{k} \mathrm{tr}(H^2)} \quad\text{(Gaussian inputs)},

    on the loss |X w - y|^2 / (2k) of ``gradient_descent``, with S of
    :func:`linear_attention_risk`. For H = Psi = I and beta* = 0 it is k / (k + d + 1 +
    sigma^2), and k / (k + d - 2 + kappa + sigma^2) for independent coordinates of
    kurtosis kappa. It is 0 for k = 0.

    Args:
        task: The population (H, beta*, Psi, sigma^2), with H not 0 and tau > 0.
        num_examples: Examples k; may be traced.
        fourth_moment: Of the inputs, if they are not Gaussian: E x_i x_j x_k x_l,
            ``(d, d, d, d)``, or the kurtosis E x_i^4 / H_ii^2 of independent
            coordinates, a number or ``(d,)``, for a diagonal H. The inputs' second
            moments E x x' are the task's ``input_cov``.

    Returns:
        The step size.

    Example:
        >>> round(float(optimal_step_size(LinearPopulation.isotropic(3), 4)), 6)
        0.5

        Inputs of von Oswald et al., uniform on [-1/2, 1/2], with half the squared loss:

        >>> H, M, kurtosis = jnp.eye(10) / 12, jnp.eye(10), 9 / 5
        >>> task = LinearPopulation(H, jnp.zeros(10), M, 0.0)
        >>> step = optimal_step_size(task, 10, fourth_moment=kurtosis)
        >>> Gamma = step * jnp.eye(10)
        >>> risk = linear_attention_risk(task, 10, Gamma, fourth_moment=kurtosis)
        >>> round(float(step) / 10, 5), round(float(risk) / 2, 6)
        (0.60606, 0.206229)

    Source: von Oswald et al. (2023), Section 2.
    """
    H, M, _, _ = population = Population.of(task)
    k = read_count(num_examples, H.dtype)
    square = jnp.sum(H * label_moment(population, k, fourth_moment))
    return k * einsum("ij,jk,ki->", H, H, M) / jnp.where(square > 0, square, 1)
