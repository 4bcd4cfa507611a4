"""Truncated SVD, spectra, random matrices and Frobenius products of thin factors.

Most of it is about one matrix or a stack of matrices ``(..., m, n)``. Matrices of
half precision are decomposed in float32, the smallest type that LAPACK and cuSOLVER
know.

Stability: stable.
"""

from icltheory.linalg.decomposition import SVD, low_rank_approximation, svd
from icltheory.linalg.products import safe_sqrt, thin_frobenius_inner
from icltheory.linalg.random_matrices import marchenko_pastur_density, wishart_moments
from icltheory.linalg.spectra import (
    condition_number,
    effective_rank,
    singular_values,
    stable_rank,
    trace_bound,
)

__all__ = [
    "SVD",
    "condition_number",
    "effective_rank",
    "low_rank_approximation",
    "marchenko_pastur_density",
    "safe_sqrt",
    "singular_values",
    "stable_rank",
    "svd",
    "thin_frobenius_inner",
    "trace_bound",
    "wishart_moments",
]
