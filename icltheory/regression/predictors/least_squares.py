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

    where singular values below max(N, d) eps times the largest count as zero, as in
    NumPy's ``lstsq``. No examples predict 0. Cost O(N d min(N, d)); differentiable
    where the rank does not change. QR leaves a triangle of min(N, d) rows to be
    decomposed: many prompts at once on a GPU up to 32 rows, one after the other above
    (and in derivatives); ``ols_prefixes`` has no such limit.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).

    Returns:
        The prediction, () or (B,).

    Raises:
        ValueError: If the shapes do not match.

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([1.0, 3.0])
        >>> round(float(ols(X, y, jnp.array([1.0, 5.0]))), 6)
        2.0

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), Section 3. Verified by ``tests/regression/test_least_squares.py``.
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

    Raises:
        ValueError: If the shapes do not match.

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), jnp.ones(3)
        >>> ols_prefixes(X, y).round(6).tolist()
        [0.0, 1.0, 1.0]

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), Section 3; Greville, "Some applications of the pseudoinverse of a
        matrix" (1960). Verified by ``tests/regression/test_least_squares.py``.
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
    U, s, Vt = jnp.linalg.svd(finite_or_nan(both[:, :dim]), full_matrices=False)
    kept = s > max(X.shape) * jnp.finfo(X.dtype).eps * s[0]
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    left, right = einsum("di,d->i", U, both[:, dim]), einsum("id,d->i", Vt, x_query)
    return dot(left * inverse, right)


@_ols.defjvp
def _ols_jvp(primals, tangents):
    # The triangle is singular where the fit is exact; the pseudoinverse has no such
    # limit.
    def plain(X, y, x_query):
        cutoff = max(X.shape) * float(jnp.finfo(X.dtype).eps)
        return einsum(
            "d,dn,n->", x_query, jnp.linalg.pinv(finite_or_nan(X), rtol=cutoff), y
        )

    return jax.jvp(plain, primals, tangents)


def _ols_prefixes(X: Array, y: Array, X_query: Array) -> Array:
    return dot(least_squares_path(X, y), X_query)
