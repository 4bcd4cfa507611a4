"""Moments of a problem at a prompt length, from which exact risks follow."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._noted import check_count, check_values
from icltheory._typing import Array
from icltheory.regression._linalg import einsum
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count


class Moments(NamedTuple):
    r"""The matrices of Section 5 without roots of H.

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
    def of(cls, problem: LinearPopulation, num_examples: Count) -> "Moments":
        """Computes the moments of a problem for prompts of M examples."""
        return cls.at(problem, read_length(num_examples, problem.dtype))

    @classmethod
    def at(cls, problem: LinearPopulation, M: Array) -> "Moments":
        """The same for a number of examples that has been checked."""
        H, Psi = jnp.asarray(problem.input_cov), jnp.asarray(problem.task_cov)
        noise_var = jnp.asarray(problem.noise_var)
        H_Psi = einsum("ij,jk->ik", H, Psi)
        signal = jnp.trace(H_Psi)
        tau = signal + noise_var
        H_Psi_H = einsum("ij,jk->ik", H_Psi, H)
        return cls(
            H=H,
            Psi=Psi,
            mean=jnp.asarray(problem.task_mean),
            noise_var=noise_var,
            M=M,
            signal=signal,
            tau=tau,
            square=jnp.sum(H_Psi * H_Psi.T),
            H_Psi_H=H_Psi_H,
            H_Omega_H=((M + 1) * H_Psi_H + tau * H) / M,
        )


def read_length(num_examples: Count, dtype: jnp.dtype) -> Array:
    """Converts the number of examples to a float and checks that it is at least 1."""
    check_count("num_examples", num_examples, 1)
    return jnp.asarray(num_examples, dtype)


def check_model(model: Any, method: str) -> None:
    """Raises unless the model has the given method."""
    if not hasattr(model, method):
        raise ValueError(
            f"model: expected GDBeta, LSA, LTB or EffectiveParameters, "
            f"got {type(model).__name__}"
        )


def check_dim(problem: LinearPopulation, dim: int) -> None:
    """Raises unless the problem has the model's dimension."""
    if problem.dim != dim:
        raise ValueError(f"problem: expected dimension {dim}, got {problem.dim}")


def check_tau(tau: Array) -> None:
    """Raises if labels are known to be constant."""
    check_values("problem", tau, lambda tau: tau > 0, "tau = tr(H Psi) + noise_var > 0")


def weighted(H: Array, a: Array) -> Array:
    """Quadratic form a'Ha."""
    return einsum("i,ij,j->", a, H, a)


def outer(a: Array, b: Array) -> Array:
    """Outer product ab'."""
    return a[:, None] * b[None, :]
