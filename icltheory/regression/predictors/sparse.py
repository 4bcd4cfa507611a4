"""The Lasso, by following its solution path from the largest penalty."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._noted import check_scalar
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Int
from icltheory.regression._linalg import Number, dot, einsum, is_zero
from icltheory.regression.predictors._homotopy import lasso_path_end
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    read_prefixes,
    read_prompt,
    shift_down,
)
from icltheory.regression.predictors.least_squares import ols, ols_prefixes

__all__ = ["LassoFit", "lasso", "lasso_prefixes", "lasso_weights"]

_CHUNK = 64  # prompts per batch, which bounds memory and idle steps


@pytree
class LassoFit:
    r"""Lasso weights and their duality gap.

    .. math:: \text{gap} = \frac{P(w) - D(s r)}{|y|^2 / 2N}, \quad r = y - X w, \quad
        s = \min\{1, N \lambda / \max_j |X_j^\top r|\}, \quad
        D(\theta) = \frac{|y|^2 - |y - \theta|^2}{2N},

    P the objective of ``lasso_weights``: the objective exceeds its minimum by at most
    gap times that of w = 0 for no penalty.

    Args:
        w: Weights.
        gap: Relative duality gap of each prompt; it bounds nothing where lambda = 0.
        steps: Steps along the path: coordinates that joined or left.
        converged: Whether the gap of each prompt is below 100 eps.

    Returns:
        A frozen pytree.

    Example:
        >>> fit = lasso_weights(jnp.eye(2), jnp.array([4.0, 1.0]), penalty=1.0)
        >>> fit.w.tolist(), bool(fit.converged)
        ([2.0, 0.0], True)

    Source: Tibshirani (1996).
    """

    w: Float[Array, "*B d"]
    gap: Float[Array, "*B"]
    steps: Int[Array, "*B"]
    converged: Bool[Array, "*B"]


@calculator
def lasso_weights(
    X: Inputs, y: Labels, penalty: Number, *, max_steps: int | None = None
) -> LassoFit:
    r"""Lasso weights, with scikit-learn's scaling of the objective.

    .. math:: \hat w = \arg\min_w\ \frac{1}{2N} |X w - y|^2 + \lambda |w|_1.

    Follows the piecewise linear path of solutions from lambda = max |X'y| / N, where
    w = 0, down to the penalty (least-angle regression with the Lasso's rule for leaving
    coordinates): exact up to rounding, with no tolerance to tune. A path has about as
    many steps as coordinates that join and leave, each O(d^2); no factorisation. First
    derivatives are exact where the active set does not change. Works on the Gram
    matrix, so the rounding error grows with the square of the condition number of the
    active columns: for columns that are equal to 1 %, float32 misses steps of the path,
    and ``converged`` is false. Pass float64 for such data.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        penalty: lambda >= 0.
        max_steps: Largest number of steps; 8 d if None.

    Returns:
        The weights, with their duality gap.

    Example:
        >>> fit = lasso_weights(2 * jnp.eye(2), jnp.array([4.0, 1.0]), penalty=1.0)
        >>> fit.w.tolist(), int(fit.steps)
        ([1.5, 0.0], 1)

    Source: Efron et al. (2004), Section 3; objective of Garg et al. (2022), Section 5.
    """
    check_scalar("penalty", penalty)
    X = jnp.asarray(X)
    X, y, _ = read_prompt(X, y, jnp.zeros((*X.shape[:-2], *X.shape[-1:]), X.dtype))
    steps = _max_steps(max_steps, X)
    amount = jnp.asarray(penalty, X.dtype)

    def core(X, y):
        count = max(X.shape[0], 1)
        gram = einsum("ni,nj->ij", X, X) / count
        moment = einsum("nd,n->d", X, y) / count
        w, taken = lasso_path_end(gram, moment, amount, X.shape[0], steps)
        return w, _gap(X, y, count * amount, w), taken

    w, gap, taken = _in_chunks(core, X, y)
    return LassoFit(w, gap, taken, gap < 100 * float(jnp.finfo(X.dtype).eps))


@calculator
def lasso(
    X: Inputs,
    y: Labels,
    x_query: Query,
    penalty: Number,
    *,
    max_steps: int | None = None,
) -> Prediction:
    r"""Lasso prediction, with scikit-learn's scaling of the objective.

    .. math:: \hat y = \langle \hat w, x_{query}\rangle, \qquad
        \hat w = \arg\min_w\ \frac{1}{2N} |X w - y|^2 + \lambda |w|_1

    solved as in ``lasso_weights``, which also says whether it converged. No examples
    predict 0.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        penalty: lambda >= 0; a known 0 is ``ols``, a traced one must be positive.
        max_steps: Largest number of steps along the path; 8 d if None.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.eye(2), jnp.array([4.0, 1.0])
        >>> float(lasso(X, y, jnp.array([1.0, 1.0]), penalty=1.0))
        2.0

    Source: Garg et al. (2022), Section 5.
    """
    check_scalar("penalty", penalty)
    X, y, x_query = read_prompt(X, y, x_query)
    if is_zero(penalty):
        return ols(X, y, x_query)
    fit = lasso_weights(X, y, penalty, max_steps=max_steps)
    return dot(fit.w, x_query)


@calculator
def lasso_prefixes(
    X: Inputs,
    y: Labels,
    X_query: Inputs | None = None,
    *,
    penalty: Number,
    max_steps: int | None = None,
) -> Predictions:
    r"""Lasso predictions from every prefix, with the same penalty at each.

    .. math:: \hat y_k = \langle \hat w_k, x^{query}_k\rangle, \qquad
        \hat w_k = \arg\min_w\ \frac{1}{2k} |X_{:k} w - y_{:k}|^2 + \lambda |w|_1.

    All prefixes follow their paths together, as in ``lasso_weights``; the prompts of a
    batch in chunks, which bounds the memory.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.
        penalty: lambda >= 0; a known 0 is ``ols``, a traced one must be positive.
        max_steps: Largest number of steps along a path; 8 d if None.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is 0.

    Example:
        >>> X, y = jnp.ones((3, 1)), jnp.ones(3)
        >>> lasso_prefixes(X, y, penalty=0.25).tolist()
        [0.0, 0.75, 0.75]

    Source: Garg et al. (2022), Section 5.
    """
    check_scalar("penalty", penalty)
    X, y, X_query = read_prefixes(X, y, X_query)
    if is_zero(penalty):
        return ols_prefixes(X, y, X_query)
    steps = _max_steps(max_steps, X)
    amount = jnp.asarray(penalty, X.dtype)

    def core(X, y, X_query):
        counts = jnp.maximum(jnp.arange(y.shape[0]), 1).astype(X.dtype)
        grams = shift_down(jnp.cumsum(X[:, :, None] * X[:, None, :], axis=0))
        moments = shift_down(jnp.cumsum(y[:, None] * X, axis=0)) / counts[:, None]

        def end(gram, moment, k):
            return lasso_path_end(gram, moment, amount, k, steps)[0]

        w = jax.vmap(end)(grams / counts[:, None, None], moments, counts)
        return dot(w, X_query)

    return _in_chunks(core, X, y, X_query)


def _gap(X: Array, y: Array, penalty: Array, w: Array) -> Array:
    """Duality gap over that of w = 0, for the objective times N."""
    residual = y - einsum("nd,d->n", X, w)
    largest = jnp.max(jnp.abs(einsum("nd,n->d", X, residual)), initial=0)
    above = largest > penalty
    share = jnp.where(above, penalty / jnp.where(above, largest, 1), 1)
    # P - D without the difference of two numbers of the size of |y|^2.
    gap = (1 - share) ** 2 * dot(residual, residual) / 2
    gap = gap + penalty * jnp.sum(jnp.abs(w)) - share * dot(residual, y - residual)
    size = dot(y, y)
    return 2 * gap / jnp.where(size > 0, size, 1)


def _max_steps(max_steps: int | None, X: Array) -> int:
    if max_steps is None:
        return 8 * X.shape[-1]
    check_positive_int("max_steps", max_steps)
    return max_steps


def _in_chunks(core: Callable, *arrays: Array):
    """Applies a function of one prompt to a prompt, or to a batch in chunks."""
    if arrays[0].ndim == 2:
        return core(*arrays)
    return jax.lax.map(lambda prompt: core(*prompt), arrays, batch_size=_CHUNK)
