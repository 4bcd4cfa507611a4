"""Eigenvalues phi_i through which H and Psi determine every rate."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._noted import check_count, check_values
from icltheory._typing import Array
from icltheory.regression._linalg import einsum, symmetric_root
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count


class Spectrum(NamedTuple):
    """Eigenvalues of Psi^{1/2} H Psi^{1/2}, descending; their sum; sigma^2; M.

    Eigenvalues below d eps times the largest count as 0.
    """

    phi: Array
    signal: Array
    noise_var: Array
    M: Array

    @classmethod
    def of(cls, problem: LinearPopulation, num_examples: Count) -> "Spectrum":
        """Computes the spectrum of a problem for prompts of M >= 1 examples."""
        H = jnp.asarray(problem.input_cov)
        M = read_length("num_examples", num_examples, H.dtype)
        root = symmetric_root(jnp.asarray(problem.task_cov))
        values = jnp.linalg.eigvalsh(einsum("ji,jk,kl->il", root, H, root))[::-1]
        cutoff = problem.dim * jnp.finfo(H.dtype).eps * jnp.max(jnp.abs(values))
        phi = jnp.where(values > cutoff, values, 0)
        return cls(phi, jnp.sum(phi), jnp.asarray(problem.noise_var), M)

    @property
    def tau(self) -> Array:
        """Variance of a label about its prior mean."""
        return self.signal + self.noise_var

    @property
    def effective_dimension(self) -> Array:
        """Number of directions with M phi_i above sigma^2, others counted in part."""
        strength = self.M * self.phi
        part = share(jnp.minimum(strength, self.noise_var), self.noise_var)
        return jnp.sum(jnp.where(strength > 0, part, 0))


def share(part: Array, whole: Array) -> Array:
    """Quotient of a part and the whole; 1 where the whole is 0."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 1)


def over(numerator: Array, denominator: Array) -> Array:
    """Quotient, which is infinite for a zero denominator."""
    safe = jnp.where(denominator > 0, denominator, 1)
    return jnp.where(denominator > 0, numerator / safe, jnp.inf)


def read_length(name: str, value: Any, dtype: Any) -> Array:
    """Converts the number of examples to a float and checks that it is at least 1."""
    check_count(name, value, 1)
    return jnp.asarray(value, dtype)


def check_zero_mean(problem: LinearPopulation) -> None:
    """Raises unless the tasks have mean 0."""
    mean = problem.task_mean
    check_values("problem", mean, lambda entry: entry == 0, "task_mean = 0")
