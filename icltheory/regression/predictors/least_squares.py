"""Ordinary least squares, with the minimum norm where it is underdetermined."""

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._precision import finite_or_nan
from icltheory._typing import Array
from icltheory.regression._linalg import dot, einsum
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    one_or_batch,
    read_prefixes,
    read_prompt,
)
from icltheory.regression.predictors._recursive import least_squares_path

__all__ = ["ols", "ols_prefixes"]


@calculator
def ols(X: Inputs, y: Labels, x_query: Query) -> Prediction:
    r"""Least-squares prediction, with the weight of minimum norm.

    .. math:: \hat y = \langle X^+ y, x_{query}\rangle,

    where the rank is that of X with columns (rows if N < d) of equal size: singular
    values below max(N, d) eps times the largest count as zero. So the answer does not
    depend on units; an intercept beside years is right in float32, as in NumPy's
    ``lstsq``, which computes in float64. No examples predict 0. Cost
    O(N d min(N, d)); differentiable where the rank does not change. QR leaves a
    triangle of min(N, d) rows to be decomposed: many prompts at once on a GPU up to 32
    rows, one after the other above (and in derivatives); ``ols_prefixes`` has no such
    limit.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([1.0, 3.0])
        >>> round(float(ols(X, y, jnp.array([1.0, 5.0]))), 6)
        2.0

    Source: Garg et al. (2022), Section 3.
    """
    return one_or_batch(_ols, *read_prompt(X, y, x_query))


@calculator
def ols_prefixes(X: Inputs, y: Labels, X_query: Inputs | None = None) -> Predictions:
    r"""Least-squares predictions from every prefix of a prompt.

    .. math:: \hat y_k = \langle X_{:k}^+ y_{:k}, x^{query}_k\rangle,
        \qquad k = 0, \dots, P - 1,

    by Greville's recursion on a square root of (X'X)^+: O(d^2) a prefix, right for
    k < d, k = d and k > d, for duplicated and for dependent rows. The error is of order
    eps times the largest condition number among the prefixes so far (and its square at
    the prefix itself, for labels that no weight fits), so float32 serves, too.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is 0.

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), jnp.ones(3)
        >>> ols_prefixes(X, y).round(6).tolist()
        [0.0, 1.0, 1.0]

    Source: Garg et al. (2022), Section 3; Greville (1960).
    """
    return one_or_batch(_ols_prefixes, *read_prefixes(X, y, X_query))


@jax.custom_jvp
def _ols(X: Array, y: Array, x_query: Array) -> Array:
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


@_ols.defjvp
def _ols_jvp(primals, tangents):
    # The triangle is singular where the fit is exact; the pseudoinverse has no such
    # limit.
    def plain(X, y, x_query):
        return einsum("d,dn,n->", x_query, pseudoinverse(X), y)

    return jax.jvp(plain, primals, tangents)


@jax.custom_jvp
def pseudoinverse(X: Array) -> Array:
    """Moore-Penrose inverse of X, with the rank that ``ols`` finds."""
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


def _ols_prefixes(X: Array, y: Array, X_query: Array) -> Array:
    return dot(least_squares_path(X, y), X_query)
