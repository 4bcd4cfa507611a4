"""Test risk of trained linear attention at any prompt length (Theorem 4.2)."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_covariance, check_finite, check_scalar
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import (
    Matrix,
    Number,
    Vector,
    einsum,
)
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.rates.trained_attention._gain import gain, read_input_cov
from icltheory.regression.risks._population import Count

__all__ = ["linear_moment_cov", "risk_at_length", "risk_at_length_bound"]


@calculator
def linear_moment_cov(
    input_cov: Matrix, weight: Vector, noise_var: Number = 0.0
) -> Float[Array, "d d"]:
    r"""Covariance of x y for linear labels, the Sigma of Theorem 4.2.

    .. math:: \Sigma = \mathrm{Cov}(x y) = \Lambda a a^\top \Lambda
        + (a^\top \Lambda a + \sigma^2)\, \Lambda, \qquad
        y = \langle a, x\rangle + \epsilon.

    Args:
        input_cov: Lambda.
        weight: a.
        noise_var: sigma^2.

    Returns:
        Sigma.

    Example:
        >>> linear_moment_cov(jnp.eye(2), jnp.array([1.0, 0.0]), 0.5).tolist()
        [[2.5, 0.0], [0.0, 1.5]]

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.2.
    """
    Lam = read_input_cov(input_cov)
    a = _read_weight(weight, Lam)
    check_scalar("noise_var", noise_var)
    moment = einsum("ij,j->i", Lam, a)
    return moment[:, None] * moment[None] + (jnp.sum(moment * a) + noise_var) * Lam


@calculator
def risk_at_length(
    input_cov: Matrix,
    train_length: Count,
    test_length: Count,
    *,
    weight: Vector,
    moment_cov: Matrix,
    least_risk: Number = 0.0,
) -> Scalar:
    r"""Risk of the limit for any prompt length and any law of labels (Theorem 4.2).

    .. math:: E(\hat y - y)^2 = \min_w E(\langle w, x\rangle - y)^2
        + \frac1M \mathrm{tr}(\Sigma\, G^{-2} \Lambda) + \frac1{N^2}
        \bigl(|a|^2_{G^{-2} \Lambda^3} + 2\, \mathrm{tr}(\Lambda) |a|^2_{G^{-2}
        \Lambda^2} + \mathrm{tr}(\Lambda)^2 |a|^2_{G^{-2} \Lambda}\bigr)

    with a = Lambda^{-1} E[x y] and Sigma = Cov(x y): pairs (x, y) independent and
    alike, x ~ N(0, Lambda), y any function of x and noise. The last term is what the
    step misses of a, |(I - G^{-1} Lambda) a|^2 weighted by Lambda; it stays as M grows.

    Args:
        input_cov: Lambda, not 0.
        train_length: Examples N >= 1 of the prompts trained on; may be traced.
        test_length: Examples M >= 1 of the prompt; may be traced.
        weight: a.
        moment_cov: Sigma, ``linear_moment_cov`` for linear labels.
        least_risk: The risk of the best linear predictor, sigma^2 for linear labels.

    Returns:
        The risk.

    Example:
        >>> a = jnp.array([1.0, 0.0])
        >>> Sigma = linear_moment_cov(jnp.eye(2), a, 0.0)
        >>> risk = risk_at_length(jnp.eye(2), 5, 5, weight=a, moment_cov=Sigma)
        >>> round(float(risk), 6)
        0.375

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.2.
    """
    Lam = read_input_cov(input_cov)
    a = _read_weight(weight, Lam)
    check_covariance("moment_cov", moment_cov, Lam.shape[0])
    check_scalar("least_risk", least_risk)
    N = read_length("train_length", train_length, Lam.dtype)
    M = read_length("test_length", test_length, Lam.dtype)
    Gamma = jnp.linalg.inv(gain(Lam, train_length))
    Sigma = jnp.asarray(moment_cov, Lam.dtype)
    spread = einsum("ij,jk,kl,li->", Sigma, Gamma, Lam, Gamma)
    mixed = einsum("ij,j->i", Lam, a) + jnp.trace(Lam) * a
    missed = einsum("ij,j->i", Gamma, mixed) / N
    bias = einsum("i,ij,j->", missed, Lam, missed)
    return jnp.asarray(least_risk, Lam.dtype) + spread / M + bias


@calculator
def risk_at_length_bound(
    input_cov: Matrix, train_length: Count, test_length: Count
) -> Scalar:
    r"""Bound on the test risk averaged over tasks w ~ N(0, I), without noise.

    .. math:: E\, R \le \frac{(d + 1)\, \mathrm{tr}\,\Lambda}{M}
        + \frac{(1 + 2d + d^2 \kappa)\, \mathrm{tr}\,\Lambda}{N^2}

    with kappa the condition number of Lambda.

    Args:
        input_cov: Lambda, positive definite.
        train_length: Examples N >= 1 of the prompts trained on; may be traced.
        test_length: Examples M >= 1 of the prompt; may be traced.

    Returns:
        The bound.

    Example:
        >>> float(risk_at_length_bound(jnp.eye(2), 3, 6))
        3.0

    Source: Zhang, Frei and Bartlett (2024), corollary of Theorem 4.2.
    """
    Lam = read_input_cov(input_cov, definite=True)
    N = read_length("train_length", train_length, Lam.dtype)
    M = read_length("test_length", test_length, Lam.dtype)
    d, values = Lam.shape[0], jnp.linalg.eigvalsh(Lam)
    kappa = values[-1] / values[0]
    return jnp.trace(Lam) * ((d + 1) / M + (1 + 2 * d + d**2 * kappa) / N**2)


def _read_weight(weight: Vector, Lam: Array) -> Array:
    check_shape("weight", weight, (Lam.shape[0],))
    check_finite("weight", weight)
    return jnp.asarray(weight, Lam.dtype)
