"""Matrices of the paper's formulas that depend on the input covariance."""

import jax.numpy as jnp

from icltheory._checks import check_shape
from icltheory._noted import check_covariance, check_values
from icltheory._typing import Array
from icltheory.regression._linalg import Matrix, as_floats, seen_eigenvalues
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.risks._population import Count


def read_input_cov(input_cov: Matrix, *, definite: bool = False) -> Array:
    """Converts and checks Lambda, which must be a non-zero covariance."""
    check_shape("input_cov", input_cov, ("d", "d"))
    check_covariance("input_cov", input_cov, jnp.shape(input_cov)[0])
    (cov,) = as_floats(input_cov)
    check_values(
        "input_cov",
        jnp.trace(cov),
        lambda trace: trace > 0,
        "a covariance other than 0",
    )
    if definite:
        check_values(
            "input_cov",
            jnp.min(seen_eigenvalues(cov)[0]),
            lambda smallest: smallest > 0,
            "a positive definite matrix",
            "a singular one",
        )
    return cov


def gain(Lam: Array, num_examples: Count) -> Array:
    """G = (1 + 1/N) Lambda + (tr(Lambda) / N) I."""
    N = read_length("num_examples", num_examples, Lam.dtype)
    eye = jnp.eye(Lam.shape[0], dtype=Lam.dtype)
    return (1 + 1 / N) * Lam + jnp.trace(Lam) / N * eye
