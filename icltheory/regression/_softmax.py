r"""Integrals of softmax heads: the order 1/N, and one head at any N by quadrature.

For scores s_i ~ N(0, S) and Z = sum e^{s_i}, 1 / Z^k = int t^{k-1} e^{-tZ} dt / (k-1)!
turns a moment of the weights into one integral over tau = log t of products of

    L_k(tau) = E h_k(tau + s), h_k(z) = e^{kz} exp(-e^z),

which are bounded. The trapezoidal rule converges exponentially in both variables.
"""

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._core import Record
from icltheory._typing import Array
from icltheory.regression._linalg import einsum, root_matrix

_SCORES, _TIMES, _RADII = 145, 121, 48
_DEVIATIONS = 9.0  # the Gaussian beyond is below the precision of float64
_TAIL = 18.0  # e^-36 of the integrand is left below


def concentration(S: Array, N: Array) -> tuple[Array, Array]:
    r"""E P_2 and E P_2^2 - E P_3 of :math:`P_k = \sum_i p_i^k`, for scores N(0, S)."""
    N, root = jnp.maximum(N, 1), jnp.sqrt(S)
    u = jnp.linspace(-_DEVIATIONS, _DEVIATIONS, _SCORES, dtype=S.dtype)
    density = jax.nn.softmax(-(u**2) / 2)
    low = -(jnp.log(N) + _TAIL + _DEVIATIONS * root)
    high = 4.0 + _DEVIATIONS * root
    step = (high - low) / (_TIMES - 1)
    tau = low + step * jnp.arange(_TIMES, dtype=S.dtype)
    z = jnp.minimum(tau[:, None] + root * u[None], 7.0)  # exp(-e^7) is 0 in float64
    grown = jnp.exp(z)
    weighted = jnp.exp(-grown) * density[None]

    def laplace(k):
        return jnp.sum(grown**k * weighted, axis=1)

    log_none = jnp.log(jnp.maximum(laplace(0), jnp.finfo(S.dtype).tiny))
    rest = jnp.exp((N - 1) * log_none)
    pairs = jnp.exp(jnp.maximum(N - 2, 0) * log_none)
    two = laplace(2)
    squares = N * step * jnp.sum(two * rest)
    cubes = N * step * jnp.sum(laplace(3) * rest) / 2
    fourth = N * step * jnp.sum(laplace(4) * rest)
    fourth = (fourth + N * (N - 1) * step * jnp.sum(two**2 * pairs)) / 6
    return squares, fourth - cubes


def radial_averages(scale: Array, N: Array, dim: int) -> tuple[Array, ...]:
    r"""Averages over q = chi^2_d at S = scale q that the exact risk consists of.

    .. math:: E\,c , \qquad E\,\tfrac qd (1 - c) , \qquad
        E\,\tfrac qd (1 - c + 6\kappa) .
    """
    # Gauss's rule for the chi-square law, of Laguerre polynomials.
    k, a = np.arange(_RADII), dim / 2 - 1
    off = np.sqrt(k[1:] * (k[1:] + a))
    nodes, vectors = np.linalg.eigh(np.diag(2 * k + 1 + a) + np.diag(off, 1).T)
    q, weight = (jnp.asarray(x, scale.dtype) for x in (2 * nodes, vectors[0] ** 2))
    c, kappa = jax.vmap(lambda q: concentration(scale * q, N))(q)
    kept = weight * q / dim
    averages = weight * c, kept * (1 - c), kept * (1 - c + 6 * kappa)
    return tuple(jnp.sum(average) for average in averages)


class ValueForms(Record):
    """The risk as a quadratic form of the values, at the orders 0 and 1 of 1/N."""

    line: Array
    form: Array
    line_1: Array
    form_1: Array
    weight: Array  # E e^S of each head
    exists: Array


def value_forms(B, population) -> ValueForms:
    H, M = population.input_cov, population.second_moment
    R, size = root_matrix(population.input_root), population.signal
    target = einsum("ij,jk,hkl->hil", M, H, B)  # t m_h = x' target_h x
    both = einsum("hji,jk,kl,lm,pmn->hpin", B, H, M, H, B)  # m_h m_p = x' both_hp x
    scores = einsum("hji,jk,pkl->hpil", B, H, B)

    def tilted(Q):  # E e^{x'Qx}, the covariance of x under this weight
        eye = jnp.eye(len(R), dtype=R.dtype)
        A = eye - R @ (Q + Q.T) @ R
        exists = jnp.all(jnp.linalg.eigvalsh(jax.lax.stop_gradient(A)) > 0)
        A = jnp.where(exists, A, eye)
        cov = R @ jnp.linalg.solve(A, R)
        return jnp.exp(-jnp.linalg.slogdet(A)[1] / 2), cov, exists

    weight, cov, exists = jax.vmap(jax.vmap(tilted))(scores)
    own, own_cov = jnp.diagonal(weight), einsum("hhij->hij", cov)
    cross = einsum("h,khij,hij->kh", own, both, own_cov)  # E m_k m_h e^{S_h}
    around = size + population.noise_var + einsum("hkij,hkij->hk", both, cov)
    return ValueForms(
        einsum("hij,ij->h", target, H),
        einsum("hkij,ij->hk", both, H),
        einsum("h,hij,hij->h", own, target, own_cov),
        weight * around - cross - cross.T,
        own,
        jnp.diagonal(exists),
    )


def one_head(B, population, N):
    """Of one head the risk's term in v and in v^2, for isotropic scores."""
    H, dim = population.input_cov, population.dim
    scale = jnp.trace(score_form(B, population)) / dim
    c, mean, square = radial_averages(scale, N, dim)
    B = B.astype(H.dtype)
    MHB = population.second_moment @ H @ B
    size = population.signal + population.noise_var
    return jnp.sum(MHB * H) * mean, jnp.sum(B * (H @ MHB @ H)) * square + size * c


def score_form(B, population):
    """The matrix of S in whitened queries, R B' Sigma B R."""
    H = population.input_cov
    BR = B.astype(H.dtype) @ root_matrix(population.input_root)
    return BR.T @ H @ BR
