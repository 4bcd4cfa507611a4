"""Coordinates in which the linear part of GD-beta's flow is nearly diagonal.

With H = V diag(h) V', K = H^{1/2} Omega H^{1/2} = W diag(k) W' and Q(Gamma*) = V Z
diag(q) Z' V', the state is y = (Z'V'(beta - beta*), V'(Gamma - Gamma*)W). Near the
optimum its entries decay at the rates 2 q_i and 2 h_i k_j, elsewhere nearly at those
of ``decay_rates``.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression import _block_moments as _formulas
from icltheory.regression import optima
from icltheory.regression._block_moments import Moments
from icltheory.regression._linalg import einsum, seen_eigenvalues
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation


class Coordinates(NamedTuple):
    """Bases and optimum of a population, and matrices of the flow.

    ``h`` eigenvalues of H; ``V, W`` bases; ``seen`` which columns of W are in im(H);
    ``Z`` basis of beta in that of H; ``T`` = W'V; ``G`` = V'Gamma* W; ``K`` = W'KW;
    ``H_right`` = W'HW; ``mean`` = beta*; ``Gamma`` = Gamma*; ``M`` examples.
    """

    h: Array
    V: Array
    W: Array
    seen: Array
    K: Array
    Z: Array
    T: Array
    G: Array
    H_right: Array
    mean: Array
    Gamma: Array
    M: Array

    @classmethod
    def of(
        cls, population: LinearPopulation, num_examples: Any, start: GDBeta
    ) -> "Coordinates":
        """Computes the coordinates of a population.

        Where eigenvalues coincide, as for H = Psi = I, the start's direction is made an
        axis: the flow couples with it most.
        """
        moments = Moments.of(population, jnp.asarray(num_examples, start.dtype))
        best = optima.optimum(GDBeta, population, num_examples).model
        h, V = seen_eigenvalues(moments.H)
        w = einsum("ij,j->i", moments.H, start.beta - moments.mean)
        seen, W = basis_along(moments.H_Omega_H, w)
        Q = _formulas.curvature(moments, best.Gamma)  # pyrefly: ignore
        _, Z = basis_along(einsum("ji,jk,kl->il", V, Q, V), einsum("ji,j->i", V, w))
        return cls(
            h=h,
            V=V,
            W=W,
            seen=seen,
            K=einsum("ji,jk,kl->il", W, moments.H_Omega_H, W),
            Z=Z,
            T=einsum("ji,jk->ik", W, V),
            G=einsum("ji,jk,kl->il", V, best.Gamma, W),
            H_right=einsum("ji,jk,kl->il", W, moments.H, W),
            mean=moments.mean,
            Gamma=best.Gamma,  # pyrefly: ignore
            M=moments.M,
        )

    def state(self, model: GDBeta) -> Array:
        """Converts a model to a state."""
        b = einsum("ji,kj,k->i", self.Z, self.V, model.beta - self.mean)
        D = einsum("ji,jk,kl->il", self.V, model.Gamma - self.Gamma, self.W)
        return jnp.concatenate([b, D.ravel()])

    def model(self, state: Array) -> GDBeta:
        """Converts a state to a model."""
        b, D = self._split(state)
        return GDBeta(
            self.mean + einsum("ij,jk,k->i", self.V, self.Z, b),
            self.Gamma + einsum("ij,jk,lk->il", self.V, D, self.W),
        )

    def _split(self, state: Array) -> tuple[Array, Array]:
        d = self.h.shape[0]
        return state[:d], state[d:].reshape(d, d)


def field(state: Array, at: Coordinates) -> Array:
    """Right-hand side of the flow, with one product of d x d matrices."""
    b, D = at._split(state)
    h, M = at.h, at.M
    G, part = at.G + D, einsum("ij,j->i", at.Z, b)
    left = h * part  # V'Hb
    right = einsum("ij,j->i", at.T, left)  # W'Hb
    GH = einsum("ij,jk->ik", G, at.H_right)
    spread = jnp.sum(part * left) / M  # |b|_H^2 / M
    size = jnp.sum(h[:, None] * G * GH) / M  # tr(Gamma'H Gamma H) / M
    moved = h * einsum("ij,j->i", G, right)  # V'H Gamma Hb
    pull = left - (M + 1) / M * moved
    back = einsum("ij,i->j", at.T, einsum("ij,i->j", G, pull))
    in_b = einsum("ij,i->j", at.Z, (1 + size) * left - moved - h * back)
    in_D = pull[:, None] * right[None, :] - h[:, None] * (
        einsum("ij,jk->ik", D, at.K) + spread * GH
    )
    frozen = jnp.where(at.seen[None, :], in_D, 0)  # exactly zero, despite rounding
    return 2 * jnp.concatenate([-in_b, frozen.ravel()])


def decay_rates(state: Array, at: Coordinates) -> Array:
    """Diagonal of the linear part of the flow in each block, with the other fixed."""
    b, D = at._split(state)
    h, M = at.h, at.M
    part = einsum("ij,j->i", at.Z, b)
    right = einsum("ij,j->i", at.T, h * part)
    spread = jnp.sum(h * part**2) / M
    K = jnp.diagonal(at.K) + (M + 1) / M * right**2 + spread * jnp.diagonal(at.H_right)
    G = einsum("ij,jk->ik", at.G + D, at.T)  # V'Gamma V
    HGZ = h[:, None] * einsum("ij,jk->ik", G, h[:, None] * at.Z)
    HZ = h[:, None] * at.Z
    size = jnp.sum(h[:, None] * G**2 * h[None, :]) / M
    square = (M + 1) / M * einsum("ij,ij->j", einsum("ij,jk->ik", G, HZ), HGZ)
    Q = (1 + size) * jnp.sum(at.Z * HZ, axis=0) - 2 * jnp.sum(at.Z * HGZ, axis=0)
    pairs = h[:, None] * jnp.where(at.seen, K, 0)[None, :]
    return 2 * jnp.concatenate([Q + square, pairs.ravel()])


def basis_along(matrix: Array, direction: Array) -> tuple[Array, Array]:
    """Eigenvectors, aligned with a direction among equal ones, and a rank mask."""
    size = jnp.sum(direction**2)
    unit = direction / jnp.sqrt(jnp.where(size > 0, size, 1))
    small = jnp.finfo(matrix.dtype).eps ** 0.5 * jnp.max(jnp.abs(matrix))
    values, basis = seen_eigenvalues(matrix + small * unit[:, None] * unit[None, :])
    return values > 0, basis
