"""Solutions of least squares and ridge by QR and triangles, with their derivatives."""

import jax
import jax.numpy as jnp

from icltheory._precision import finite_or_nan
from icltheory._typing import Array
from icltheory.regression._linalg import dot, einsum


@jax.custom_jvp
def fitted(X: Array, y: Array, x_query: Array) -> Array:
    """x_query' X^+ y from two triangles, without the orthogonal factor of X.

    QR of X beside y leaves R and Q'y, all that the singular values of R then need. A
    wide X is turned round: x' X^+ y = y' (X')^+ x.
    """
    if not X.size:
        return jnp.zeros((), X.dtype)
    if X.shape[0] < X.shape[1]:
        X, y, x_query = X.T, x_query, y
    dim = X.shape[1]
    both = jnp.linalg.qr(jnp.concatenate([X, y[:, None]], axis=1), mode="r")[:dim]
    w = _solve(both[:, :dim], both[:, dim:], (X, y[:, None]))
    return dot(w[:, 0], x_query)


@fitted.defjvp
def _fitted_jvp(primals, tangents):
    # The triangle is singular where the fit is exact; the pseudoinverse has no such
    # limit.
    def plain(X, y, x_query):
        return einsum("d,dn,n->", x_query, pseudoinverse(X), y)

    return jax.jvp(plain, primals, tangents)


@jax.custom_jvp
def pseudoinverse(X: Array) -> Array:
    """Moore-Penrose inverse of X, with the rank of :class:`LeastSquares`."""
    if not X.size:
        return jnp.zeros(X.shape[::-1], X.dtype)
    if X.shape[0] < X.shape[1]:
        return pseudoinverse(X.T).T
    eye = jnp.eye(len(X), dtype=X.dtype)
    return _solve(X, eye, (X, eye))


@pseudoinverse.defjvp
def _pseudoinverse_jvp(primals, tangents):
    (X,), (E,) = primals, tangents
    P = pseudoinverse(X)
    inside = einsum("dn,ne,em->dm", P, E, P)
    left = einsum("nd,en,em->dm", E, P, P)
    right = einsum("dn,en,me->dm", P, P, E)
    left = left - einsum("dn,ne,em->dm", P, X, left)
    right = right - einsum("dn,ne,em->dm", right, X, P)
    return P, left + right - inside


def _solve(R: Array, T: Array, whole: tuple[Array, Array]) -> Array:
    """Returns R^+ T, or X^+ Y for a triangle R = Q'X with T = Q'Y and whole = (X, Y).

    X has at least as many rows as columns. The rank is that of X with columns of equal
    size, which units do not change.
    """
    X, Y = whole
    eps = jnp.finfo(X.dtype).eps
    largest = jnp.max(jnp.abs(R), axis=0)
    scale = jnp.where(largest > 0, largest, 1)[:, None]
    U, s, Vt = jnp.linalg.svd(finite_or_nan(R / scale.T), full_matrices=False)
    kept = s > len(X) * eps * s[0]
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    w = einsum("id,i,ni,nk->dk", Vt, inverse, U, T) / scale
    # One correction by X'(Y - X w), where squared singular values are above rounding.
    certain = jnp.where(s > eps**0.5 * s[0], jnp.square(inverse), 0)
    slope = einsum("nd,nk->dk", X, Y - einsum("nd,dk->nk", X, w)) / scale
    w = w + einsum("id,i,ie,ek->dk", Vt, certain, Vt, slope) / scale
    # The norm is least in the units of X: w loses its part in the null space, whose
    # basis comes first, where Householder vectors of empty columns cannot turn it.
    lost = jnp.flip(~kept).astype(X.dtype)
    null = jnp.flip(Vt, axis=0).T / scale * lost[None]
    R = jnp.linalg.qr(null, mode="r") + jnp.diag(1 - lost)
    for _ in range(2):
        half = jax.scipy.linalg.solve_triangular(R, null.T @ w, trans="T")
        w = w - null @ jax.scipy.linalg.solve_triangular(R, half)
    return w


@jax.custom_jvp
def ridge_weights(X: Array, y: Array, penalty: Array) -> Array:
    """Ridge weights by the QR factorisation of X stacked on sqrt(penalty) I.

    With y beside it: the triangle then holds Q'y, and Q itself is never formed.
    """
    stacked, dim = _stacked(X, penalty), X.shape[1]
    target = jnp.pad(y, (0, dim))[:, None]
    R = jnp.linalg.qr(jnp.concatenate([stacked, target], axis=1), mode="r")[:dim]
    return jax.scipy.linalg.solve_triangular(R[:, :dim], R[:, dim])


@ridge_weights.defjvp
def _ridge_weights_jvp(primals, tangents):
    # The derivative solves (X'X + penalty I) w = X'y, since the triangle above is
    # singular for an exact fit.
    (X, y, penalty), (dX, dy, change) = primals, tangents
    w, R = ridge_weights(X, y, penalty), jnp.linalg.qr(_stacked(X, penalty), mode="r")
    residual = y - einsum("nd,d->n", X, w)
    moved = einsum("nd,n->d", dX, residual) - change * w
    moved = moved + einsum("nd,n->d", X, dy - einsum("nd,d->n", dX, w))
    half = jax.scipy.linalg.solve_triangular(R, moved, trans="T")
    return w, jax.scipy.linalg.solve_triangular(R, half)


def _stacked(X: Array, penalty: Array) -> Array:
    eye = jnp.eye(X.shape[1], dtype=X.dtype)
    return jnp.concatenate([X, jnp.sqrt(penalty) * eye])
