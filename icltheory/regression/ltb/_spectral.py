"""Roots of an input covariance and the eigenbasis in which the optima are diagonal."""

from typing import NamedTuple

import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._linalg import einsum
from icltheory.regression.tasks.linear import LinearRegression


class InputRoots(NamedTuple):
    """H^{1/2}, its Moore-Penrose inverse, the projector on im(H), positive eigenvalues.

    Eigenvalues below d eps times the largest count as 0; those are 0 in ``values``.
    """

    root: Array
    inverse: Array
    projector: Array
    values: Array

    @classmethod
    def of(cls, H: Array) -> "InputRoots":
        """The roots of a positive semi-definite matrix."""
        values, V = jnp.linalg.eigh(H)
        cutoff = H.shape[0] * jnp.finfo(H.dtype).eps * jnp.max(jnp.abs(values))
        seen = values > cutoff
        values = jnp.where(seen, values, 0)
        roots = jnp.sqrt(values)
        inverses = jnp.where(seen, 1 / jnp.where(seen, roots, 1), 0)

        def assemble(diagonal):
            return einsum("ij,j,kj->ik", V, diagonal, V)

        one = seen.astype(H.dtype)
        return cls(assemble(roots), assemble(inverses), assemble(one), values)


class Whitened(NamedTuple):
    """A problem in the eigenbasis of Phi = H^{1/2} Psi H^{1/2}.

    ``phi`` the eigenvalues, ascending and >= 0; ``m`` the coordinates of H^{1/2} beta*;
    ``basis`` the eigenvectors; ``lowest`` the smallest eigenvalue on im(H).
    """

    phi: Array
    m: Array
    noise_var: Array
    basis: Array
    roots: InputRoots
    lowest: Array

    @classmethod
    def of(cls, problem: LinearRegression) -> "Whitened":
        """The coordinates of a problem."""
        H = jnp.asarray(problem.input_cov)
        roots = InputRoots.of(H)
        Phi = einsum(
            "ij,jk,kl->il", roots.root, jnp.asarray(problem.task_cov), roots.root
        )
        # Directions that no input has come last in the order, and so cannot be lowest.
        beyond = 3 * jnp.trace(Phi)
        lifted = Phi + beyond * (jnp.eye(H.shape[0], dtype=H.dtype) - roots.projector)
        values, basis = jnp.linalg.eigh((lifted + lifted.T) / 2)
        phi = jnp.where(values > 2 / 3 * beyond, 0, jnp.maximum(values, 0))
        mean = einsum("ij,j->i", roots.root, jnp.asarray(problem.task_mean))
        m = einsum("ji,j->i", basis, mean)
        return cls(phi, m, jnp.asarray(problem.noise_var), basis, roots, phi[0])

    @property
    def tau(self) -> Array:
        """tr(Phi) + sigma^2."""
        return jnp.sum(self.phi) + self.noise_var

    @property
    def square(self) -> Array:
        """tr(Phi^2)."""
        return jnp.sum(self.phi**2)
