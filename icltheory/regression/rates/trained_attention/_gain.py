"""What the formulas of the paper read off the input covariance."""

import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_covariance, check_shape, concrete
from icltheory._typing import Array
from icltheory.regression._linalg import Matrix, as_floats
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.risks._population import Count


def read_input_cov(input_cov: Matrix, *, definite: bool = False) -> Array:
    """Lambda as floats, checked: a covariance, not 0, positive definite if required."""
    check_shape("input_cov", input_cov, ("d", "d"))
    check_covariance("input_cov", input_cov, jnp.shape(input_cov)[0])
    known = concrete(input_cov)
    if known is not None:
        values = np.linalg.eigvalsh(known.astype(np.float64))
        if values[-1] <= 0:
            raise ValueError("input_cov: expected a covariance other than 0, got 0")
        if definite and values[0] <= len(known) * np.finfo(float).eps * values[-1]:
            raise ValueError(
                "input_cov: expected a positive definite matrix, got a singular one"
            )
    return as_floats(input_cov)[0]


def gain(Lam: Array, num_examples: Count, name: str = "num_examples") -> Array:
    """G = (1 + 1/N) Lambda + (tr(Lambda) / N) I."""
    N = read_length(name, num_examples, Lam.dtype)
    eye = jnp.eye(Lam.shape[0], dtype=Lam.dtype)
    return (1 + 1 / N) * Lam + jnp.trace(Lam) / N * eye
