"""Moments of a linear-regression task that exact risks depend on."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._noted import check_count
from icltheory._typing import Array, Int
from icltheory.regression._linalg import einsum
from icltheory.regression.population import LinearPopulation

Count = int | Int[Array, ""]


class Population(NamedTuple):
    """H, the second moment M = Psi + beta* beta*' of the weight, sigma^2, tr(HM)."""

    H: Array
    M: Array
    noise_var: Array
    signal: Array

    @classmethod
    def of(cls, task: LinearPopulation) -> "Population":
        """Computes the moments of a task."""
        H, mean = jnp.asarray(task.input_cov), jnp.asarray(task.task_mean)
        M = jnp.asarray(task.task_cov) + mean[:, None] * mean[None, :]
        return cls(H, M, jnp.asarray(task.noise_var), einsum("ij,ji->", H, M))

    @property
    def tau(self) -> Array:
        """Variance of a label about 0, tr(H M) + sigma^2."""
        return self.signal + self.noise_var


def read_count(num_examples: Any, dtype: Any) -> Array:
    """Converts a number of examples to a float and checks it if it is known."""
    check_count("num_examples", num_examples)
    return jnp.asarray(num_examples, dtype)
