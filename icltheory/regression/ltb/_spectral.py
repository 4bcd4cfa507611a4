"""Roots of an input covariance and the eigenbasis in which the optima are diagonal."""

from typing import NamedTuple

import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._linalg import einsum, seen_eigenvalues
from icltheory.regression.population import LinearPopulation


class InputRoots(NamedTuple):
    """H^{1/2}, its Moore-Penrose inverse, the projector on im(H), positive eigenvalues.

    Eigenvalues at rounding level count as 0; those are 0 in ``values``.
    """

    root: Array
    inverse: Array
    projector: Array
    values: Array

    @classmethod
    def of(cls, H: Array) -> "InputRoots":
        """The roots of a positive semi-definite matrix."""
        values, V = seen_eigenvalues(H)
        seen, roots = values > 0, jnp.sqrt(values)
        inverses = jnp.where(seen, 1 / jnp.where(seen, roots, 1), 0)

        def assemble(diagonal):
            return einsum("ij,j,kj->ik", V, diagonal, V)

        one = seen.astype(H.dtype)
        return cls(assemble(roots), assemble(inverses), assemble(one), values)


class Whitened(NamedTuple):
    """A problem in the eigenbasis of Phi = H^{1/2} Psi H^{1/2}.

    ``phi`` the eigenvalues, >= 0: ascending on im(H), then 0 beyond it; ``m`` the
    coordinates of H^{1/2} beta*; ``seen`` 1 on im(H) and 0 beyond; ``basis`` the
    eigenvectors.
    """

    phi: Array
    m: Array
    noise_var: Array
    basis: Array
    seen: Array
    roots: InputRoots

    @classmethod
    def of(cls, problem: LinearPopulation) -> "Whitened":
        """Computes the coordinates of a problem."""
        H = jnp.asarray(problem.input_cov)
        roots = InputRoots.of(H)
        Phi = einsum(
            "ij,jk,kl->il", roots.root, jnp.asarray(problem.task_cov), roots.root
        )
        # Directions without inputs get a value that is larger than any eigenvalue of
        # Phi.
        size = jnp.trace(Phi)
        beyond = jnp.where(size > 0, 3 * size, 1)
        lifted = Phi + beyond * (jnp.eye(H.shape[0], dtype=H.dtype) - roots.projector)
        values, basis = jnp.linalg.eigh((lifted + lifted.T) / 2)
        seen = (values <= 2 / 3 * beyond).astype(H.dtype)
        # If the tasks have no variance, the values are rounding errors of the
        # projector.
        phi = jnp.where(size > 0, seen * jnp.maximum(values, 0), 0)
        mean = einsum("ij,j->i", roots.root, jnp.asarray(problem.task_mean))
        m = seen * einsum("ji,j->i", basis, mean)
        return cls(phi, m, jnp.asarray(problem.noise_var), basis, seen, roots)

    @property
    def lowest(self) -> Array:
        """The smallest eigenvalue of Phi on im(H)."""
        return self.phi[0]

    @property
    def tau(self) -> Array:
        """tr(Phi) + sigma^2."""
        return jnp.sum(self.phi) + self.noise_var

    @property
    def square(self) -> Array:
        """tr(Phi^2)."""
        return jnp.sum(self.phi**2)
