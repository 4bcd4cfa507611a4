"""Linear algebra shared in ``regression``: dtypes, products and covariance roots."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from icltheory._checks import concrete
from icltheory._precision import widened
from icltheory._typing import Array

Number = float | int | Real[ArrayLike, ""]
Vector = Float[ArrayLike, " _d"]
Matrix = Float[ArrayLike, "_d _d"]


def default_dtype(dtype: Any) -> np.dtype:
    """Returns the named dtype, or JAX's default float dtype for ``None``."""
    return np.dtype(jnp.result_type(float) if dtype is None else dtype)


def as_floats(*values: Any) -> list[Array]:
    """Converts arrays to one floating dtype; Python numbers follow the arrays."""
    dtype = jnp.result_type(*values)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = default_dtype(None)
    return [widened(jnp.asarray(value, dtype)) for value in values]


def is_zero(value: Any) -> bool:
    """Whether ``value`` is known to be 0; false for a traced value."""
    known = concrete(value)
    return known is not None and not np.any(known)


def is_isotropic(cov: Any) -> Any:
    """Whether a covariance is a multiple of the identity, up to rounding."""
    off = abs(cov - cov[0, 0] * np.eye(len(cov), dtype=cov.dtype))
    return off.max() <= 1e-6 * abs(cov).max()


def einsum(subscripts: str, *operands: Array) -> Array:
    """Computes an einsum at full precision, which accelerators would reduce."""
    return jnp.einsum(subscripts, *operands, precision=jax.lax.Precision.HIGHEST)


def dot(a: Array, b: Array) -> Array:
    """Inner product over the last axis, computed as a sum at full precision."""
    return jnp.sum(a * b, axis=-1)


@jax.custom_jvp
def symmetric_root(cov: Array) -> Array:
    """Symmetric root of a positive semi-definite matrix, which may be singular.

    Differentiable also where eigenvalues coincide; null directions count as fixed.
    """
    return _root_and_spectrum(cov)[0]


@symmetric_root.defjvp
def _symmetric_root_jvp(primals, tangents):
    # Solves S dS + dS S = dC in the eigenbasis of S.
    root, roots, V = _root_and_spectrum(*primals)
    sums = roots[:, None] + roots[None]
    inner = einsum("ji,jk,kl->il", V, tangents[0], V)
    inner = jnp.where(sums > 0, inner / jnp.where(sums > 0, sums, 1), 0)
    return root, einsum("ij,jk,lk->il", V, inner, V)


def _root_and_spectrum(cov: Array) -> tuple[Array, Array, Array]:
    # An eigenvalue 0 rounded to eps must not become a root of size sqrt(eps).
    values, vectors = seen_eigenvalues(cov)
    roots = jnp.sqrt(values)
    return einsum("ij,j,kj->ik", vectors, roots, vectors), roots, vectors


def seen_eigenvalues(cov: Array) -> tuple[Array, Array]:
    """Eigenvalues, with those at rounding level set to 0, and eigenvectors.

    Rounding is relative to the variances of the coordinates in which an eigenvector is
    not exactly 0, so that a diagonal matrix keeps every positive entry.
    """
    values, vectors = jnp.linalg.eigh(cov)
    sizes = jnp.sum(jnp.where(vectors != 0, jnp.diagonal(cov)[:, None], 0), axis=0)
    cutoff = len(cov) * jnp.finfo(cov.dtype).eps * sizes
    return jnp.where(values > cutoff, values, 0), vectors


def seen_inverse(cov: Array) -> Array:
    """Moore-Penrose inverse, of eigenvalues above rounding."""
    values, V = seen_eigenvalues(cov)
    inverses = jnp.where(values > 0, 1 / jnp.where(values > 0, values, 1), 0)
    return einsum("ij,j,kj->ik", V, inverses, V)


def covariance_root(cov: Array) -> Array:
    """Root of a covariance; a (d,) diagonal if the matrix is known to be diagonal."""
    known = concrete(cov)
    if known is not None and not np.any(known - np.diag(np.diag(known))):
        return jnp.sqrt(jnp.maximum(jnp.diagonal(cov), 0))
    return symmetric_root(cov)


def apply_root(root: Array, z: Array) -> Array:
    """Multiplies standard normal rows ``z (..., d)`` by a covariance root."""
    if root.ndim == 1:
        return z * root.reshape((1,) * (z.ndim - 1) + root.shape)
    return einsum("...j,ij->...i", z, root)


def root_matrix(root: Array) -> Array:
    """A covariance root as a matrix."""
    return jnp.diag(root) if root.ndim == 1 else root
