"""Moments of a population at a prompt length, and the closed forms made of them.

H^{1/2} and its inverse are needed only where a result is a weight or an eigenvalue;
risks and excesses are evaluated without them, so that H and Psi may be singular.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import Check, count, is_tracer
from icltheory._core import calculator
from icltheory._typing import Array
from icltheory.regression._linalg import einsum, quotient, seen_eigenvalues
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import check_gaussian

_TAU = Check(lambda tau: tau > 0, "tau = tr(H Psi) + noise_var > 0")


def informative(name: str, population: Any, given: Any = None) -> Any:
    """The check of a population whose labels are not constant, given its mean."""
    if not isinstance(population, LinearPopulation):
        got = type(population).__name__
        raise ValueError(f"{name}: expected a LinearPopulation, got {got}")
    check_gaussian(population)
    moments = population.input_cov, population.task_cov, population.noise_var
    if not any(map(is_tracer, moments)):  # NumPy, as a compiled sum takes longer
        moments = tuple(map(np.asarray, moments))
    H, Psi, noise_var = moments
    return _TAU(name, (H * Psi.T).sum() + noise_var)


# Calculators of such a population and of N >= 1 examples.
OF_POPULATION: dict[str, Any] = {
    "integers": ("num_examples",),
    "population": informative,
    "num_examples": count(1),
}
of_population = calculator(**OF_POPULATION)


def check_dim(population: LinearPopulation, dim: int) -> None:
    """Raises unless the population has the model's dimension."""
    if population.dim != dim:
        raise ValueError(f"population: expected dimension {dim}, got {population.dim}")


def weighted(H: Array, a: Array) -> Array:
    """Quadratic form a'Ha."""
    return einsum("i,ij,j->", a, H, a)


class Moments(NamedTuple):
    r"""The matrices of Section 5 of Zhang, Wu and Bartlett without roots of H.

    With Phi = H^{1/2} Psi H^{1/2} and Omega = ((M + 1) Phi + tau I) / M:

    ``H, Psi, mean, noise_var, M`` as given; ``signal`` tr(H Psi); ``tau`` the variance
    of a label about its prior mean; ``square`` tr(Phi^2); ``H_Psi_H`` =
    H^{1/2} Phi H^{1/2}; ``H_Omega_H`` = H^{1/2} Omega H^{1/2}.
    """

    H: Array
    Psi: Array
    mean: Array
    noise_var: Array
    M: Array
    signal: Array
    tau: Array
    square: Array
    H_Psi_H: Array
    H_Omega_H: Array

    @classmethod
    def of(cls, population: LinearPopulation, num_examples: Any) -> "Moments":
        """Computes the moments for prompts of M >= 1 examples."""
        M = jnp.asarray(num_examples, population.dtype)
        H, Psi = population.input_cov, population.task_cov
        H_Psi = H @ Psi
        signal = jnp.trace(H_Psi)
        tau = signal + population.noise_var
        H_Psi_H = H_Psi @ H
        return cls(
            H=H,
            Psi=Psi,
            mean=population.task_mean,
            noise_var=population.noise_var,
            M=M,
            signal=signal,
            tau=tau,
            square=jnp.sum(H_Psi * H_Psi.T),
            H_Psi_H=H_Psi_H,
            H_Omega_H=((M + 1) * H_Psi_H + tau * H) / M,
        )


class Whitened(NamedTuple):
    """A population in the eigenbasis of Phi = H^{1/2} Psi H^{1/2}.

    ``phi`` the eigenvalues, >= 0: ascending on im(H), then 0 beyond it; ``m`` the
    coordinates of H^{1/2} beta*; ``seen`` 1 on im(H) and 0 beyond; ``back`` H^{-1/2}
    times the eigenvectors.
    """

    phi: Array
    m: Array
    noise_var: Array
    seen: Array
    back: Array

    @classmethod
    def of(cls, population: LinearPopulation) -> "Whitened":
        """Computes the coordinates of a population."""
        H = population.input_cov
        values, V = seen_eigenvalues(H)
        roots = jnp.sqrt(values)
        parts = roots, quotient(1, roots, 0), (values > 0).astype(H.dtype)
        root, inverse, projector = (V * part[None] @ V.T for part in parts)
        Phi = root @ population.task_cov @ root
        # Directions without inputs get a value that is larger than any eigenvalue of
        # Phi.
        size = jnp.trace(Phi)
        beyond = jnp.where(size > 0, 3 * size, 1)
        lifted = Phi + beyond * (jnp.eye(len(H), dtype=H.dtype) - projector)
        values, basis = jnp.linalg.eigh((lifted + lifted.T) / 2)
        seen = (values <= 2 / 3 * beyond).astype(H.dtype)
        # If the tasks have no variance, the values are rounding errors of the
        # projector.
        phi = jnp.where(size > 0, seen * jnp.maximum(values, 0), 0)
        m = seen * (basis.T @ root @ population.task_mean)
        return cls(phi, m, population.noise_var, seen, inverse @ basis)

    @property
    def tau(self) -> Array:
        """tr(Phi) + sigma^2."""
        return jnp.sum(self.phi) + self.noise_var

    @property
    def square(self) -> Array:
        """tr(Phi^2)."""
        return jnp.sum(self.phi**2)

    def omega(self, M: Array) -> Array:
        """Eigenvalues of Omega."""
        return ((M + 1) * self.phi + self.tau) / M

    def labels(self, M: Array) -> Array:
        """Kappa' = 2 tau^2 / M + 2 (1 + 2 / M) tr(Phi^2), the cost of reading y'y."""
        return 2 * self.tau**2 / M + 2 * (1 + 2 / M) * self.square


def input_projector(H: Array) -> Array:
    """The projector on im(H), which derivatives hold fixed."""
    values, V = seen_eigenvalues(jax.lax.stop_gradient(H))
    return V * (values > 0).astype(H.dtype)[None] @ V.T


def best_step(H: Array, Psi: Array, noise_var: Array, M: Array) -> tuple[Array, Array]:
    """Gamma* = M ((M + 1) Psi H + tau I)^{-1} Psi P, and its risk less sigma^2."""
    Psi_H, eye = Psi @ H, jnp.eye(len(H), dtype=H.dtype)
    tau = jnp.trace(Psi_H) + noise_var
    system = (M + 1) * Psi_H + tau * eye
    Gamma = M * jnp.linalg.solve(system, Psi) @ input_projector(H)
    gain = jnp.linalg.solve(system, (Psi_H + tau * eye) @ Psi_H)
    return Gamma, jnp.trace(gain)


def curvature(moments: Moments, Gamma: Array) -> Array:
    """Q(Gamma) = E (I - Gamma S)' H (I - Gamma S)."""
    H, M = moments.H, moments.M
    HG = H @ Gamma
    GHG, linear = Gamma.T @ HG, HG @ H
    square = (M + 1) * H @ GHG @ H + jnp.sum(GHG * H) * H
    return H - linear - linear.T + square / M


def gd_beta_gradient(moments: Moments, beta: Array, Gamma: Array) -> tuple:
    """Gradients of the risk of GD-beta in beta and Gamma."""
    H, M, b = moments.H, moments.M, beta - moments.mean
    mixed = H @ (moments.Psi + jnp.outer(b, b)) @ H
    spread = ((M + 1) * mixed + (moments.tau + weighted(H, b)) * H) / M
    return 2 * curvature(moments, Gamma) @ b, 2 * (H @ Gamma @ spread - mixed)


def excess_parts(moments: Moments, parts: Any) -> tuple[Array, ...]:
    """B of the preconditioner, and the other three parts of ``gaps.Excess``."""
    H, M, tau, v, u = moments.H, moments.M, moments.tau, parts.v, parts.u
    # Values and scores for the population whose prior mean is shifted to 0.
    q, A = parts.p + v * moments.mean, parts.U + jnp.outer(moments.mean, u)
    mixed, labels = A.T @ H @ q, v**2 * weighted(H, u)
    start = weighted(H, mixed + v * tau * u - (moments.mean - parts.c))
    start = start + labels * (2 * tau**2 / M + 2 * moments.square)
    cubic = jnp.sum(A * (H @ A @ H)) * weighted(H, q) + 4 * labels * moments.square
    cubic = cubic + 4 * v * (u @ H @ A.T @ moments.H_Psi_H @ q)
    return v * A + jnp.outer(q, u), start, cubic / M, weighted(H, mixed) / M


def effective_risk(moments: Moments, parts: Any) -> Array:
    """The risk of any LTB, without the noise of the query."""
    B, *others = excess_parts(moments, parts)
    fit = jnp.sum(B * (moments.H_Omega_H @ B @ moments.H - 2 * moments.H_Psi_H))
    return moments.signal + fit + sum(others)
