"""The excess risk of an LSA, minimised over its scores."""

from typing import NamedTuple

import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._linalg import einsum
from icltheory.regression.ltb._spectral import Whitened


class Reduced(NamedTuple):
    """The excess J(q, v, A, g) of ``optimal_lsa`` in the eigenbasis of Phi."""

    phi: Array
    m: Array
    seen: Array
    tau: Array
    M: Array

    @classmethod
    def of(cls, white: Whitened, M: Array) -> "Reduced":
        """Computes the excess from a problem's whitened coordinates."""
        return cls(white.phi, white.m, white.seen, white.tau, M)

    def scaled(self) -> "Reduced":
        """Rescales the problem to tau = 1, where q becomes q / sqrt(tau)."""
        one = jnp.ones_like(self.tau)
        m = self.m / jnp.sqrt(self.tau)
        return Reduced(self.phi / self.tau, m, self.seen, one, self.M)

    @property
    def omega(self) -> Array:
        """Eigenvalues of Omega."""
        return ((self.M + 1) * self.phi + self.tau) / self.M

    @property
    def label_scale(self) -> Array:
        """2 tau^2 / M + 2 tr(Phi^2)."""
        return 2 * self.tau**2 / self.M + 2 * jnp.sum(self.phi**2)

    def best(self, q: Array, v: Array) -> tuple[Array, Array]:
        """Returns the scores (A, g) of least excess for values (q, v).

        A = A_0 + r g' solves K A = v Phi + q m' - v (Omega + tau + 2 Phi / M) q g' with
        K = v^2 Omega + (|q|^2 I + (M + 1) qq') / M, and J is then h |g|^2 + 2 l'g.
        """
        phi, m, _, tau, M = self
        omega, size = self.omega, jnp.sum(q**2)
        diagonal = v**2 * omega + size / M
        weight = (M + 1) / M / (1 + (M + 1) / M * jnp.sum(q**2 / diagonal))

        def solve(B):
            D = B / diagonal[:, None]
            inner = einsum("i,ij->j", q, D)
            return D - weight * (q / diagonal)[:, None] * inner[None, :]

        pull = ((M + 3) * phi + (M + 1) * tau) / M * q
        A = solve(v * jnp.diag(phi) + q[:, None] * m[None, :])
        r = -v * solve(pull[:, None])[:, 0]
        s = v * r + q
        A_q, r_q = einsum("ij,i->j", A, q), jnp.sum(r * q)
        moved = r_q + v * tau
        labels = v**2 * (self.label_scale + 4 * jnp.sum(phi**2) / M)
        h = (
            jnp.sum(omega * s**2)
            + moved**2
            + r_q**2 / M
            + (size * jnp.sum(r**2) + 4 * v * jnp.sum(r * phi * q)) / M
            + labels
        )
        l = (
            einsum("ij,i->j", v * A - jnp.diag(phi / omega), omega * s)
            + moved * (A_q - m)
            + r_q * A_q / M
            + einsum("ij,i->j", A, size * r + 2 * v * phi * q) / M
        )
        g = -l / h
        return A + r[:, None] * g[None, :], g

    def excess(self, q: Array, v: Array) -> Array:
        """Excess J at the best scores; only q on im(H) counts."""
        phi, m, seen, tau, M = self
        q = q * seen
        A, g = self.best(q, v)
        A_q = einsum("ij,i->j", A, q)
        miss = v * A + q[:, None] * g[None, :] - jnp.diag(phi / self.omega)
        cross = jnp.sum(g * einsum("ij,i->j", A, phi * q))
        labels = v**2 * jnp.sum(g**2)
        tensor = jnp.sum(A**2) * jnp.sum(q**2) + 4 * v * cross
        return (
            jnp.sum(self.omega[:, None] * miss**2)
            + jnp.sum((A_q + v * tau * g - m) ** 2)
            + (jnp.sum(A_q**2) + tensor + 4 * labels * jnp.sum(phi**2)) / M
            + labels * self.label_scale
        )
