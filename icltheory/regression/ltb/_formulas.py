"""The closed forms on plain arrays, which the public functions use."""

import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._linalg import einsum
from icltheory.regression.ltb._moments import Moments, outer, weighted


def gd_beta_risk(moments: Moments, beta: Array, Gamma: Array) -> Array:
    """The risk of GD-beta, for any beta and Gamma (proof of Theorem 5.2)."""
    H = moments.H
    second, spread = _second_moment(moments, beta)
    signal = einsum("ij,ji->", H, moments.Psi) + weighted(H, beta - moments.mean)
    cross = einsum("ij,jk,ki->", H, Gamma, einsum("ij,jk->ik", H, second))
    square = einsum("ji,jk,kl,li->", Gamma, H, Gamma, spread)
    return moments.noise_var + signal - 2 * cross + square


def gd_beta_gradient(
    moments: Moments, beta: Array, Gamma: Array
) -> tuple[Array, Array]:
    """Gradients in beta and Gamma."""
    H = moments.H
    second, spread = _second_moment(moments, beta)
    in_beta = 2 * einsum("ij,j->i", curvature(moments, Gamma), beta - moments.mean)
    fit = einsum("ij,jk,kl->il", H, Gamma, spread)
    return in_beta, 2 * (fit - einsum("ij,jk,kl->il", H, second, H))


def curvature(moments: Moments, Gamma: Array) -> Array:
    """Q(Gamma) = E (I - Gamma S)' H (I - Gamma S)."""
    H, M = moments.H, moments.M
    HG = einsum("ij,jk->ik", H, Gamma)
    GHG = einsum("ji,jk->ik", Gamma, HG)
    linear = einsum("ij,jk->ik", HG, H)
    square = (M + 1) * einsum("ij,jk,kl->il", H, GHG, H) + jnp.sum(GHG * H) * H
    return H - linear - linear.T + square / M


def _second_moment(moments: Moments, beta: Array) -> tuple[Array, Array]:
    """Delta = Psi + bb' and E of the outer product of the residual gradient X'r / M."""
    H, M = moments.H, moments.M
    b = beta - moments.mean
    second = moments.Psi + outer(b, b)
    tau = moments.tau + weighted(H, b)
    mixed = einsum("ij,jk,kl->il", H, second, H)
    return second, ((M + 1) * mixed + tau * H) / M


def centred(
    moments: Moments, p: Array, v: Array, U: Array, u: Array
) -> tuple[Array, Array]:
    """Values and scores for the problem whose prior mean is shifted to 0."""
    return p + v * moments.mean, U + outer(moments.mean, u)


def effective_risk(
    moments: Moments, c: Array, p: Array, v: Array, U: Array, u: Array
) -> Array:
    """The risk of any LTB, and with c = 0 of any LSA."""
    H, M, tau = moments.H, moments.M, moments.tau
    q, A = centred(moments, p, v, U, u)
    B = v * A + outer(q, u)
    mixed = einsum("ji,jk,k->i", A, H, q)
    drift = mixed + v * tau * u - (moments.mean - c)
    fit = einsum("ji,jk,kl,li->", B, moments.H_Omega_H, B, H)
    label_scale = 2 * tau**2 / M + 2 * (1 + 2 / M) * moments.square
    return (
        moments.noise_var
        + moments.signal
        - 2 * jnp.sum(B * moments.H_Psi_H)
        + fit
        + weighted(H, drift)
        + (weighted(H, mixed) + tensor_cross(moments, q, v, A, u)) / M
        + v**2 * weighted(H, u) * label_scale
    )


def tensor_cross(moments: Moments, q: Array, v: Array, A: Array, u: Array) -> Array:
    """|A|^2 |q|^2 + 4 v g'A'Phi q in whitened coordinates."""
    H = moments.H
    size = einsum("ji,jk,kl,li->", A, H, A, H) * weighted(H, q)
    cross = einsum("i,ij,kj,kl,l->", u, H, A, moments.H_Psi_H, q)
    return size + 4 * v * cross
