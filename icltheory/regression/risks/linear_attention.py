"""One layer of linear attention: one preconditioned gradient step from zero."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import Matrix, einsum
from icltheory.regression.risks._population import Count, Population, read_count
from icltheory.regression.tasks.linear import LinearRegression

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
        >>> best = linear_attention_optimum(LinearRegression.isotropic(3), 4)
        >>> best.Gamma.round(4).tolist()
        [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]

    References:
        Ahn, Cheng, Daneshmand and Sra, "Transformers learn to implement preconditioned
        gradient descent for in-context learning" (2023), Theorem 1.
        Verified by ``tests/identities/test_exact_risks.py``.
    """

    Gamma: Float[Array, "d d"]
    risk: Scalar


@calculator
def linear_attention_risk(
    task: LinearRegression,
    num_examples: Count,
    Gamma: Matrix,
    *,
    query_noise: bool = True,
) -> Scalar:
    r"""Risk of predicting <Gamma X'y / k, x>, for any Gamma and Gaussian population.

    .. math:: R - \sigma^2 = \mathrm{tr}(H M) - 2\,\mathrm{tr}(H \Gamma H M)
        + \mathrm{tr}\Bigl(\Gamma^\top H \Gamma \bigl[\tfrac{k+1}{k} H M H
        + \tfrac{\tau}{k} H\bigr]\Bigr), \qquad \tau = \mathrm{tr}(H M) + \sigma^2,

    with M = Psi + beta* beta*'. Gamma = eta A is one gradient step of size eta with
    preconditioner A; without examples the prediction is 0. Cost O(d^3).

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples k; may be traced.
        Gamma: The matrix.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk.

    Raises:
        ValueError: If the shapes do not match or the number of examples is negative.

    Example:
        >>> task = LinearRegression.isotropic(5)
        >>> round(float(linear_attention_risk(task, 20, 20 / 26 * jnp.eye(5))), 4)
        1.1538

    References:
        Wu, Zou, Chen, Braverman, Gu and Bartlett, "How Many Pretraining Tasks Are
        Needed for In-Context Learning of Linear Regression?" (2024), Section 3; Zhang,
        Wu and Bartlett (2024), Section 5 with beta = 0.
        Verified by ``tests/identities/test_exact_risks.py``.
    """
    check_shape("Gamma", Gamma, (task.dim, task.dim))
    H, M, noise_var, signal = population = Population.of(task)
    G = jnp.asarray(Gamma, H.dtype)
    k = read_count("num_examples", num_examples, H.dtype)
    HM = einsum("ij,jk->ik", H, M)
    moment = (k + 1) * einsum("ij,jk->ik", HM, H) + population.tau * H
    cross = einsum("ij,jk,ki->", H, G, HM)
    square = einsum("ji,jk,kl,li->", G, H, G, moment) / jnp.maximum(k, 1)
    moved = jnp.where(k > 0, square - 2 * cross, 0)
    return signal + moved + query_noise * noise_var


@calculator
def linear_attention_optimum(
    task: LinearRegression, num_examples: Count, *, query_noise: bool = True
) -> LinearAttentionOptimum:
    r"""Best one-layer linear attention, equally best preconditioned step from zero.

    .. math:: \Gamma^* = M \Bigl(\tfrac{k+1}{k} H M + \tfrac{\tau}{k} I\Bigr)^{-1},
        \qquad R - \sigma^2 = \mathrm{tr}(H M) - \mathrm{tr}(H \Gamma^* H M),

    with M = Psi + beta* beta*' and tau = tr(H M) + sigma^2 > 0. H and M may be
    singular; then Gamma* is one of many. For M = psi^2 I it is
    (((tr H + sigma^2 / psi^2) / k) I + ((k + 1) / k) H)^{-1}, and for H = M = I it is
    k / (k + d + 1 + sigma^2) times I, with risk d (d + 1 + sigma^2) / (k + d + 1 +
    sigma^2) before the noise of the query. Cost O(d^3).

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples k; may be traced. Gamma* is 0 for k = 0.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        Gamma* and its risk.

    Raises:
        ValueError: If the number of examples is negative.

    Example:
        >>> task = LinearRegression.isotropic(20)
        >>> curve = [linear_attention_optimum(task, k).risk / 20 for k in (10, 20, 40)]
        >>> [round(float(risk), 4) for risk in curve]
        [0.6774, 0.5122, 0.3443]

    References:
        Ahn, Cheng, Daneshmand and Sra (2023), Theorem 1; Wu, Zou, Chen, Braverman, Gu
        and Bartlett (2024), Section 3; Zhang, Wu and Bartlett (2024), Theorem 5.2.
        Verified by ``tests/identities/test_exact_risks.py``.
    """
    H, M, noise_var, signal = population = Population.of(task)
    k = read_count("num_examples", num_examples, H.dtype)
    HM = einsum("ij,jk->ik", H, M)
    tau = jnp.where(population.tau > 0, population.tau, 1)
    system = (k + 1) * HM + tau * jnp.eye(task.dim, dtype=H.dtype)
    Gamma = k * jnp.linalg.solve(system.T, M).T
    risk = signal - einsum("ij,jk,ki->", H, Gamma, HM) + query_noise * noise_var
    return LinearAttentionOptimum(Gamma, risk)


@calculator
def optimal_step_size(task: LinearRegression, num_examples: Count) -> Scalar:
    r"""Step size of least risk for one plain gradient step from zero.

    .. math:: \eta^* = \frac{\mathrm{tr}(H^2 M)}{\tfrac{k+1}{k} \mathrm{tr}(H^2 M H)
        + \tfrac{\tau}{k} \mathrm{tr}(H^2)},

    on the loss |X w - y|^2 / (2k) of ``gradient_descent``; k / (k + d + 1 + sigma^2)
    for H = Psi = I and beta* = 0. It is 0 for k = 0.

    Args:
        task: The population (H, beta*, Psi, sigma^2), with H not 0 and tau > 0.
        num_examples: Examples k; may be traced.

    Returns:
        The step size.

    Raises:
        ValueError: If the number of examples is negative.

    Example:
        >>> round(float(optimal_step_size(LinearRegression.isotropic(3), 4)), 6)
        0.5

    References:
        von Oswald, Niklasson, Randazzo, Sacramento, Mordvintsev, Zhmoginov and
        Vladymyrov, "Transformers Learn In-Context by Gradient Descent" (2023),
        Section 2. Verified by ``tests/identities/test_exact_risks.py``.
    """
    H, M, _, _ = population = Population.of(task)
    k = read_count("num_examples", num_examples, H.dtype)
    HHM = einsum("ij,jk,kl->il", H, H, M)
    square = (k + 1) * einsum("ij,ji->", HHM, H) + population.tau * jnp.sum(H * H)
    return k * jnp.trace(HHM) / square
