"""Ridge and Bayes in the singular basis of the inputs."""

import jax
import jax.numpy as jnp

from icltheory._precision import finite_or_nan
from icltheory._typing import Array
from icltheory.regression._linalg import einsum


@jax.custom_jvp
def unexplained(A: Array, noise_var: Array) -> Array:
    """Matrix noise (A'A + noise I)^{-1}, or its limit I - A^+ A without noise."""
    return _shrinkage(A, noise_var)[0]


@unexplained.defjvp
def unexplained_jvp(primals, tangents):
    (A, _), (dA, dnoise) = primals, tangents
    left, gain = _shrinkage(*primals)
    fit = einsum("nd,de->ne", A, gain)
    turned = einsum("ij,nj,nk->ik", left, dA, fit)
    return left, einsum("ni,nj->ij", fit, fit) * dnoise - turned - turned.T


def _shrinkage(A: Array, noise_var: Array) -> tuple[Array, Array]:
    """Matrix noise (A'A + noise I)^{-1} and the inverse, 0 where there is none."""
    s, V = spectrum(A)
    square = s**2 + noise_var
    seen = square > 0
    safe = jnp.where(seen, square, 1)
    left, gain = jnp.where(seen, noise_var / safe, 1), jnp.where(seen, 1 / safe, 0)
    return einsum("ij,j,kj->ik", V, left, V), einsum("ij,j,kj->ik", V, gain, V)


def spectrum(X: Array) -> tuple[Array, Array]:
    """Roots of the d eigenvalues of X'X, tiny ones set to 0, and eigenvectors."""
    dim = X.shape[1]
    if not X.size:
        return jnp.zeros(dim, X.dtype), jnp.eye(dim, dtype=X.dtype)
    if X.shape[0] > dim:  # d rows suffice for X'X
        X = jnp.linalg.qr(X, mode="r")
    _, s, Vt = jnp.linalg.svd(finite_or_nan(X), full_matrices=True)
    s = jnp.where(s > max(X.shape) * jnp.finfo(X.dtype).eps * s[0], s, 0)
    return jnp.pad(s, (0, dim - s.shape[0])), Vt.T
