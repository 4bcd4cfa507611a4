"""Ridge regression and the Bayes posterior mean of a Gaussian prior."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import (
    check_covariance,
    check_finite,
    check_nonnegative,
    check_scalar,
    check_values,
)
from icltheory._typing import Array
from icltheory.regression._linalg import (
    Matrix,
    Number,
    Vector,
    dot,
    einsum,
    is_zero,
    symmetric_root,
)
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    before,
    one_or_batch,
    read_prefixes,
    read_prompt,
)
from icltheory.regression.predictors._recursive import (
    least_squares_path,
    posterior_path,
)
from icltheory.regression.predictors.least_squares import ols, ols_prefixes

__all__ = ["bayes", "bayes_prefixes", "ridge", "ridge_prefixes"]


@calculator
def ridge(X: Inputs, y: Labels, x_query: Query, penalty: Number) -> Prediction:
    r"""Ridge regression with an absolute penalty.

    .. math:: \hat y = \langle \hat w, x_{query}\rangle, \qquad
        \hat w = \arg\min_w\ |X w - y|^2 + \lambda |w|^2

    where lambda is not multiplied by N: with noise variance sigma^2 and prior N(0, I)
    the Bayes choice is lambda = sigma^2 at every N. Solved by a QR factorisation of X
    stacked on sqrt(lambda) I, O((N + d) d^2), of which the triangle alone is formed: a
    GPU takes all prompts of a batch at once.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        penalty: lambda >= 0; a known 0 is least squares, a traced one must be positive.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0])
        >>> round(float(ridge(X, y, jnp.array([1.0]), penalty=2.0)), 6)
        1.0

    Source: Raventos et al. (2023), eq. 4.
    """
    check_scalar("penalty", penalty)
    arrays = read_prompt(X, y, x_query)
    if is_zero(penalty):
        return ols(*arrays)
    amount = jnp.asarray(penalty, arrays[0].dtype)
    return one_or_batch(lambda X, y, x: dot(_ridge(X, y, amount), x), *arrays)


@calculator
def ridge_prefixes(
    X: Inputs,
    y: Labels,
    X_query: Inputs | None = None,
    *,
    penalty: Number | Float[ArrayLike, " _P"],
) -> Predictions:
    r"""Ridge predictions from every prefix of a prompt, with absolute penalties.

    .. math:: \hat y_k = \langle (X_{:k}^\top X_{:k} + \lambda_k I)^{-1}
        X_{:k}^\top y_{:k},\ x^{query}_k\rangle.

    One penalty for all: Potter's square-root update, O(d^2) a prefix, with an error of
    order eps times the condition number of the stacked matrix of ``ridge`` (not its
    square). A penalty for each: one QR factorisation as in ``ridge`` a prefix,
    O((P + d) d^2).

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.
        penalty: lambda >= 0, one number for all prefixes (a known 0 is least squares, a
            traced one must be positive); or (P,) positive numbers lambda_k.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is 0.

    Example:
        >>> X, y = jnp.ones((3, 1)), jnp.ones(3)
        >>> ridge_prefixes(X, y, penalty=1.0).round(6).tolist()
        [0.0, 0.5, 0.666667]

    Source: Raventos et al. (2023), eq. 4.
    """
    arrays = read_prefixes(X, y, X_query)
    if np.ndim(penalty):
        return _ridge_each(arrays, penalty)
    check_scalar("penalty", penalty)
    if is_zero(penalty):
        return ols_prefixes(*arrays)
    dim, dtype = arrays[0].shape[-1], arrays[0].dtype
    prior = (jnp.zeros(dim, dtype), jnp.eye(dim, dtype=dtype))
    amount = jnp.asarray(penalty, dtype)

    def core(X, y, X_query):
        return dot(posterior_path(X, y, *prior, amount), X_query)

    return one_or_batch(core, *arrays)


@calculator
def bayes(
    X: Inputs,
    y: Labels,
    x_query: Query,
    *,
    task_mean: Vector,
    task_cov: Matrix,
    noise_var: Number,
) -> Prediction:
    r"""Posterior mean under a Gaussian prior and Gaussian noise (Lemma 6.1).

    .. math:: \hat w = \beta^* + \Psi^{1/2}
        (\Psi^{1/2} X^\top X \Psi^{1/2} + \sigma^2 I)^{-1}
        \Psi^{1/2} X^\top (y - X \beta^*), \quad \hat y = \hat w^\top x_{query}

    the prediction of least squared error: ridge with penalty sigma^2 about the prior
    mean, in coordinates whitened by Psi, which may be singular. With sigma = 0 the
    inverse is the limit, a least-squares fit in those coordinates.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        task_mean: Prior mean beta*.
        task_cov: Prior covariance Psi, positive semi-definite.
        noise_var: Noise variance sigma^2 >= 0; a traced one must be positive.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.array([[1.0, 0], [0, 1], [1, -1]]), jnp.array([1.0, -2, 2.5])
        >>> Psi = jnp.array([[1.0, 0.2], [0.2, 0.5]])
        >>> prior = dict(task_mean=jnp.array([1.0, -2.0]), task_cov=Psi, noise_var=0.25)
        >>> round(float(bayes(X, y, jnp.array([0.0, 1.0]), **prior)), 6)
        -1.872162

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    X, y, x_query = read_prompt(X, y, x_query)
    mean, root, amount = _read_prior(X, task_mean, task_cov, noise_var)
    rotated = (einsum("...nd,de->...ne", X, root), y - einsum("...nd,d->...n", X, mean))
    prior_part = einsum("...d,d->...", x_query, mean)
    rotated = (*rotated, einsum("...d,de->...e", x_query, root))
    if is_zero(noise_var):  # checked before jit traces it
        return prior_part + ols(*rotated)
    return prior_part + ridge(*rotated, penalty=amount)


@calculator
def bayes_prefixes(
    X: Inputs,
    y: Labels,
    X_query: Inputs | None = None,
    *,
    task_mean: Vector,
    task_cov: Matrix,
    noise_var: Number,
) -> Predictions:
    r"""Posterior means from every prefix of a prompt (Lemma 6.1).

    .. math:: \hat y_k = E[\langle w, x^{query}_k\rangle \mid X_{:k}, y_{:k}],
        \qquad k = 0, \dots, P - 1

    by Potter's square-root form of the Kalman filter, O(d^2) a prefix.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.
        task_mean: Prior mean beta*.
        task_cov: Prior covariance Psi, positive semi-definite.
        noise_var: Noise variance sigma^2 >= 0; a traced one must be positive.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is that of the prior mean.

    Example:
        >>> prior = dict(task_mean=jnp.ones(1), task_cov=jnp.eye(1), noise_var=1.0)
        >>> bayes_prefixes(jnp.ones((3, 1)), jnp.zeros(3), **prior).round(6).tolist()
        [1.0, 0.5, 0.333333]

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    arrays = read_prefixes(X, y, X_query)
    mean, root, amount = _read_prior(arrays[0], task_mean, task_cov, noise_var)
    exact = is_zero(noise_var)

    def core(X, y, X_query):
        if exact:
            moved = least_squares_path(
                einsum("nd,de->ne", X, root), y - dot(X, mean[None])
            )
            w = mean[None] + einsum("de,ne->nd", root, moved)
        else:
            w = posterior_path(X, y, mean, root, amount)
        return dot(w, X_query)

    return one_or_batch(core, *arrays)


@jax.custom_jvp
def _ridge(X: Array, y: Array, penalty: Array) -> Array:
    """Ridge weights by the QR factorisation of X stacked on sqrt(penalty) I.

    With y beside it: the triangle then holds Q'y, and Q itself is never formed.
    """
    stacked, dim = _stacked(X, penalty), X.shape[1]
    target = jnp.pad(y, (0, dim))[:, None]
    R = jnp.linalg.qr(jnp.concatenate([stacked, target], axis=1), mode="r")[:dim]
    return jax.scipy.linalg.solve_triangular(R[:, :dim], R[:, dim])


@_ridge.defjvp
def _ridge_jvp(primals, tangents):
    # The derivative solves (X'X + penalty I) w = X'y, since the triangle above is
    # singular for an exact fit.
    (X, y, penalty), (dX, dy, change) = primals, tangents
    w, R = _ridge(X, y, penalty), jnp.linalg.qr(_stacked(X, penalty), mode="r")
    residual = y - einsum("nd,d->n", X, w)
    moved = einsum("nd,n->d", dX, residual) - change * w
    moved = moved + einsum("nd,n->d", X, dy - einsum("nd,d->n", dX, w))
    half = jax.scipy.linalg.solve_triangular(R, moved, trans="T")
    return w, jax.scipy.linalg.solve_triangular(R, half)


def _stacked(X: Array, penalty: Array) -> Array:
    eye = jnp.eye(X.shape[1], dtype=X.dtype)
    return jnp.concatenate([X, jnp.sqrt(penalty) * eye])


def _ridge_each(arrays: list[Array], penalty: Any) -> Array:
    """Ridge predictions with a separate penalty for each prefix."""
    num_points = arrays[1].shape[-1]
    check_shape("penalty", penalty, (num_points,))
    check_nonnegative("penalty", penalty)
    check_values("penalty", penalty, lambda p: p > 0, "positive entries in an array")
    amounts = jnp.asarray(penalty, arrays[0].dtype)

    def core(X, y, X_query):
        def at_prefix(row):
            seen, amount, query = row
            return dot(_ridge(jnp.where(seen[:, None], X, 0), y, amount), query)

        return jax.lax.map(at_prefix, (before(num_points), amounts, X_query))

    return one_or_batch(core, *arrays)


def _read_prior(
    X: Array, task_mean: Vector, task_cov: Matrix, noise_var: Number
) -> list[Array]:
    """Returns prior mean, symmetric root of the prior covariance, noise variance."""
    dim = X.shape[-1]
    check_shape("task_mean", task_mean, (dim,))
    check_finite("task_mean", task_mean)
    check_covariance("task_cov", task_cov, dim)
    check_scalar("noise_var", noise_var)
    mean, cov, amount = (
        jnp.asarray(a, X.dtype) for a in (task_mean, task_cov, noise_var)
    )
    return [mean, symmetric_root(cov), amount]
