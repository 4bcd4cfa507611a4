"""Centred per-demonstration gradients of a layer in compact form."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._core import exact_products
from icltheory.linalg.decomposition import finite_or_nan

_BATCHED = 32


def centred_gram(V, C, heads=1):
    """Gram matrix of the centred rows vec(v_i c_i^T), computed from the factors.

    With several heads a row is the sum of theirs.
    """
    K = (V @ V.T) * (C @ C.T)
    if heads > 1:
        K = jnp.sum(K.reshape(heads, len(V) // heads, heads, -1), axis=(0, 2))
    rows = jnp.mean(K, axis=0)
    return K - rows[None] - rows[:, None] + jnp.mean(rows)


@jax.custom_jvp
def compressed(rows):
    """Returns at most as many rows as columns, with the same Gram matrix."""
    if rows.shape[-2] <= rows.shape[-1]:
        return rows
    return jnp.linalg.qr(rows, mode="r")


@compressed.defjvp
def _compressed_jvp(primals, tangents):
    # The triangle may be singular and then has no derivative, but the Gram matrix does:
    # R' Q' dA + dA' Q R.
    (rows,), (change,) = primals, tangents
    if rows.shape[-2] <= rows.shape[-1]:
        return rows, change
    Q, R = jnp.linalg.qr(rows)
    return R, jnp.matmul(jnp.swapaxes(Q, -1, -2), change, precision="highest")


def compressed_rows(V, C, heads=1):
    """Centred rows vec(v_i c_i^T) in the coordinates of thin QR factors."""
    N, n = V.shape
    if n > N:
        thin = compressed(jnp.stack([V.T, C.T]))
        V, C = jnp.swapaxes(thin, 1, 2)
    rows = (V[:, :, None] * C[:, None, :]).reshape(N, -1)
    if heads > 1:
        rows = jnp.sum(rows.reshape(heads, N // heads, -1), axis=0)
    return rows - jnp.mean(rows, axis=0)[None]


@jax.custom_jvp
def singular_values(rows):
    """Singular values of matrices ``(..., N, k)``, with the derivative of the SVD."""
    # cuSOLVER decomposes a batch at once only up to 32 x 32, and larger matrices one
    # after the other; QR, which it does at once, leaves the smaller of the sides.
    long, short = max(rows.shape[-2:]), min(rows.shape[-2:])
    if short <= _BATCHED < long:
        tall = rows if rows.shape[-2] == long else jnp.swapaxes(rows, -1, -2)
        rows = jnp.linalg.qr(tall, mode="r")
    return jnp.linalg.svd(finite_or_nan(rows), compute_uv=False)


@singular_values.defjvp
@exact_products
def _singular_values_jvp(primals, tangents):
    U, s, Vt = jnp.linalg.svd(finite_or_nan(primals[0]), full_matrices=False)
    return s, jnp.sum((jnp.swapaxes(U, -1, -2) @ tangents[0]) * Vt, axis=-1)


def symmetric_rows(A, B, H):
    """Centred rows vec(A h h^T B) in an orthonormal basis of {A X B : X symmetric}."""
    columns = image_of_symmetric(A, B)
    R = compressed(columns)
    rows = symmetric_coordinates(H) @ R.T
    return rows - jnp.mean(rows, axis=0)[None]


def support_coordinates(A, B, H):
    """Uncentred rows in a basis of the support, (p q, n (n + 1) / 2), and the basis."""
    columns = image_of_symmetric(A, B)
    basis = _column_basis(columns)
    return symmetric_coordinates(H) @ (basis.T @ columns).T, basis


@jax.custom_jvp
def _column_basis(columns):
    return jnp.linalg.svd(finite_or_nan(columns), full_matrices=False)[0]


@_column_basis.defjvp
@exact_products
def _column_basis_jvp(primals, tangents):
    # The derivative describes the rotation of the space. Within the space any basis is
    # valid, and it is undefined where singular values are equal or 0.
    (columns,), (change,) = primals, tangents
    basis, s, Vt = jnp.linalg.svd(finite_or_nan(columns), full_matrices=False)
    kept = s > max(columns.shape) * jnp.finfo(s.dtype).eps * s[:1]
    U = basis * kept[None]
    turned = change @ Vt.T * jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)[None]
    return basis, turned - U @ (U.T @ turned)


def symmetric_coordinates(H):
    """Coordinates of h h^T in an orthonormal basis of the symmetric matrices."""
    i, j, weight = _pairs(H.shape[1])
    return H[:, i] * H[:, j] * jnp.asarray(weight, H.dtype)[None]


def image_of_symmetric(A, B):
    """Columns vec(A X B) for that basis, (p q, n (n + 1) / 2), summed over heads."""
    if A.ndim == 3:
        return jnp.sum(jax.vmap(image_of_symmetric)(A, B), axis=0)
    i, j, weight = _pairs(A.shape[1])
    both = jnp.einsum("pk,kq->pqk", A[:, i], B[j]) + jnp.einsum(
        "pk,kq->pqk", A[:, j], B[i]
    )
    half = jnp.asarray(weight / 2, A.dtype)
    return both.reshape(-1, len(i)) * half[None]


def _pairs(n):
    """Index pairs i <= j and the weight of x_i x_j: 1 if i = j, else sqrt 2."""
    i, j = np.triu_indices(n)
    return i, j, np.where(i == j, 1.0, math.sqrt(2))
