"""Linear algebra: dtypes, covariance roots, least squares, ridge and recursions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from icltheory._checks import checked, concrete, finite, real, wrong
from icltheory._core import widened
from icltheory._typing import Array
from icltheory.linalg.decomposition import finite_or_nan

Number = float | int | Real[ArrayLike, ""]
Vector = Float[ArrayLike, " _d"]
Matrix = Float[ArrayLike, "_d _d"]


def default_dtype(dtype: Any) -> np.dtype:
    """Returns the named dtype, or JAX's default float dtype for ``None``."""
    if dtype is None:
        return np.dtype(jnp.result_type(float))
    # NumPy takes an array for its dtype, and many an object for its own.
    array = isinstance(dtype, jax.Array | np.ndarray)
    if array or not jnp.issubdtype(found := np.dtype(dtype), jnp.floating):
        raise wrong("dtype", "a floating dtype", dtype if array else str(found))
    return found


def as_floats(*values: Any) -> list[Array]:
    """Converts arrays to one floating dtype; Python numbers follow the arrays."""
    dtype = jnp.result_type(*values)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = default_dtype(None)
    return [widened(jnp.asarray(value, dtype)) for value in values]


def finite_floats(**values: Any) -> list[Array]:
    """Arguments as arrays of one floating dtype, which have to be finite."""
    arrays = as_floats(*(real(name, value) for name, value in values.items()))
    pairs = zip(values, arrays, strict=True)
    return [checked(name, array, finite) for name, array in pairs]


def is_zero(value: Any) -> bool:
    """Whether ``value`` is known to be 0; false for a traced value."""
    known = concrete(value)
    return known is not None and not np.any(known)


def is_isotropic(cov: Any) -> Any:
    """Whether a covariance is a multiple of the identity, up to rounding."""
    off = abs(cov - cov[0, 0] * np.eye(len(cov), dtype=cov.dtype))
    return off.max() <= 1e-6 * abs(cov).max()


def quotient(a: Any, b: Array, at_zero: Any) -> Array:
    """A / b, and ``at_zero`` where b is not positive, with derivatives there too."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), at_zero)


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
    inner = quotient(inner, sums, 0)
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
    return einsum("ij,j,kj->ik", V, quotient(1, values, 0), V)


def covariance_root(cov: Array) -> Array:
    """Root of a covariance; a (d,) diagonal if the matrix is known to be diagonal."""
    known = concrete(cov)
    if known is not None and not np.any(known - np.diag(np.diag(known))):
        return jnp.asarray(np.sqrt(np.maximum(np.diag(known), 0)))
    return symmetric_root(cov)


def apply_root(root: Array, z: Array) -> Array:
    """Multiplies standard normal rows ``z (..., d)`` by a covariance root."""
    if root.ndim == 1:
        return z * root.reshape((1,) * (z.ndim - 1) + root.shape)
    return einsum("...j,ij->...i", z, root)


def root_matrix(root: Array) -> Array:
    """A covariance root as a matrix."""
    return jnp.diag(root) if root.ndim == 1 else root


@jax.custom_jvp
def unexplained(A: Array) -> Array:
    """The projector I - A^+ A on what the rows do not span, for a constant rank."""
    dim = A.shape[1]
    if not A.size:
        return jnp.eye(dim, dtype=A.dtype)
    if A.shape[0] > dim:  # d rows suffice for A'A
        A = jnp.linalg.qr(A, mode="r")
    _, s, Vt = jnp.linalg.svd(finite_or_nan(A), full_matrices=True)
    unseen = s <= max(A.shape) * jnp.finfo(A.dtype).eps * s[0]
    unseen = jnp.pad(unseen, (0, dim - len(s)), constant_values=True)
    return einsum("ji,j,jk->ik", Vt, unseen.astype(A.dtype), Vt)


@unexplained.defjvp
def unexplained_jvp(primals, tangents):
    left = unexplained(*primals)
    turned = einsum("ij,nj,kn->ik", left, *tangents, pseudoinverse(*primals))
    return left, -turned - turned.T


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


def ridge_inverse(X: Array, penalty: Array) -> Array:
    """(X'X + penalty I)^{-1} by the same triangle."""
    R = jnp.linalg.qr(_stacked(X, penalty), mode="r")
    half = jax.scipy.linalg.solve_triangular(R, jnp.eye(X.shape[1], dtype=X.dtype))
    return einsum("ij,kj->ik", half, half)


def _stacked(X: Array, penalty: Array) -> Array:
    eye = jnp.eye(X.shape[1], dtype=X.dtype)
    return jnp.concatenate([X, jnp.sqrt(penalty) * eye])


Emit = Callable[[Array, Array], Array]
ROUNDINGS = 16  # allowed rounding of a dependent row, in units of eps


def least_squares_path(X: Array, y: Array, emit: Emit = lambda w, basis: w) -> Array:
    """Applies ``emit(w, basis)`` to minimum-norm least squares before each row.

    Greville's recursion: a row outside the span of the earlier ones opens a new
    direction, any other row updates the fit. A row counts as dependent when its
    residual is no larger than the rounding of the data explains, each column in units
    of its largest entry so far. The rows of ``basis``
    are an orthonormal basis of the rows seen, and zeros.
    """
    dim = X.shape[1]
    # A residual contains the rounding errors of its row and of earlier rows (times
    # their coefficients, of norm |v|), and the tilt of the basis: a direction from a
    # small residual is known only to that relative accuracy.
    eps = jnp.finfo(X.dtype).eps
    tolerance = (ROUNDINGS * eps) ** 2
    # What three projections leave of x inside the span is eps^3, and a new direction
    # divides it by its size twice.
    least = eps**3

    def step(state, row):
        w, S, basis, rank, units, largest, tilt = state
        x, target = row
        residual = x
        for _ in range(3):  # the second is not enough for columns of different units
            residual = residual - einsum("ji,jk,k->i", basis, basis, residual)
        v = einsum("ij,i->j", S, x)
        Sv = einsum("ij,j->i", S, v)
        leverage = dot(v, v)
        size = dot(residual, residual)
        units = jnp.maximum(units, jnp.abs(x))
        inverse = quotient(1, units, 0)
        outside, length = (dot(a, a) for a in (residual * inverse, x * inverse))
        largest = jnp.maximum(largest, length)
        noise = leverage * largest + length
        along = einsum("ji,i->j", basis, x)[:, None] * basis * inverse[None]
        noise = noise + dot(tilt, jnp.sum(jnp.square(along), axis=1))
        new = (rank < dim) & (outside > tolerance * noise) & (size > least * dot(x, x))
        opening = residual / jnp.where(new, size, 1)
        slot = (jnp.arange(dim) == rank) & new
        gain = jnp.where(new, opening, Sv / (1 + leverage))
        column = jnp.where(new, opening, Sv / (1 + leverage + jnp.sqrt(1 + leverage)))
        S = S - column[:, None] * v[None, :]
        S = jnp.where(slot[None, :], opening[:, None], S)
        unit = residual / jnp.sqrt(jnp.where(new, size, 1))
        grown = jnp.where(slot[:, None], unit[None, :], basis)
        moved = w + gain * (target - dot(w, x))
        tilt = jnp.where(slot, noise / jnp.where(new, outside, 1), tilt)
        return (moved, S, grown, rank + new, units, largest, tilt), emit(w, basis)

    zeros = jnp.zeros((dim, dim), X.dtype)
    none = zeros[0]
    start = none, zeros, zeros, jnp.zeros((), int), none, zeros[0, 0], none
    return jax.lax.scan(step, start, (X, y))[1]


def posterior_path(
    X: Array,
    y: Array,
    mean: Array,
    root: Array,
    noise_var: Array,
    emit: Emit = lambda w, S: w,
) -> Array:
    """Applies ``emit(w, S)`` to the Gaussian posterior N(w, S S^T) before each row.

    Potter's square-root form of the Kalman update, from the prior N(mean, root root^T).
    """
    floor = (max(X.shape) * jnp.finfo(X.dtype).eps) ** 2
    variances = jnp.sum(jnp.square(root), axis=1)

    def step(state, row):
        w, S = state
        x, target = row
        v = einsum("ij,i->j", S, x)
        Sv = einsum("ij,j->i", S, v)
        variance = noise_var + dot(v, v)
        informative = variance > floor * dot(variances, x * x)
        variance = jnp.where(informative, variance, 1)
        shrink = variance + jnp.sqrt(variance * noise_var)
        Sv = jnp.where(informative, Sv, 0)
        moved = w + (Sv / variance) * (target - dot(w, x))
        return (moved, S - (Sv / shrink)[:, None] * v[None, :]), emit(w, S)

    return jax.lax.scan(step, (mean, root), (X, y))[1]
