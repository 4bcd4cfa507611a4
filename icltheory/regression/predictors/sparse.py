"""The Lasso, by following its solution path from the largest penalty."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int, checked, nonnegative, scalar
from icltheory._core import Record
from icltheory._typing import Array, Bool, Float, Int
from icltheory.regression._linalg import dot, einsum, is_zero
from icltheory.regression.predictors._homotopy import lasso_path_end
from icltheory.regression.predictors.base import (
    LinearPredictor,
    prefix_counts,
    shift_down,
)
from icltheory.regression.predictors.least_squares import LeastSquares

__all__ = ["Lasso", "LassoFit"]


class LassoFit(Record):
    r"""Lasso weights and their duality gap.

    .. math:: \text{gap} = \frac{P(w) - D(s r)}{|y|^2 / 2N}, \quad r = y - X w, \quad
        s = \min\{1, N \lambda / \max_j |X_j^\top r|\}, \quad
        D(\theta) = \frac{|y|^2 - |y - \theta|^2}{2N},

    P the objective of :class:`Lasso`: it exceeds its minimum by at most gap times that
    of w = 0 for no penalty.

    Args:
        w: Weights.
        gap: Relative duality gap; it bounds nothing where lambda = 0.
        steps: Steps along the path: coordinates that joined or left.
        converged: Whether the gap is below 100 eps.

    Source: Tibshirani (1996).
    """

    w: Float[Array, "d"]
    gap: Float[Array, ""]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


class Lasso(LinearPredictor):
    r"""The Lasso, with scikit-learn's scaling of the objective.

    .. math:: \hat w = \arg\min_w\ \frac{1}{2N} |X w - y|^2 + \lambda |w|_1.

    Follows the piecewise linear path of solutions from lambda = max |X'y| / N, where
    w = 0, down to the penalty (least-angle regression with the Lasso's rule for leaving
    coordinates): exact up to rounding, with no tolerance to tune. A path has about as
    many steps as coordinates that join and leave, each O(d^2); no factorisation. First
    derivatives are exact where the active set does not change. Works on the Gram
    matrix, so the rounding error grows with the square of the condition number of the
    active columns: for columns that are equal to 1 %, float32 misses steps of the path,
    and ``fit(X, y).converged`` is false. Pass float64 for such data. No examples
    predict 0.

    Args:
        penalty: lambda >= 0; a known 0 is least squares, a traced one must be positive.
        max_steps: Largest number of steps along the path; 8 d if None.

    Example:
        >>> fit = Lasso(1.0).fit(2 * jnp.eye(2), jnp.array([4.0, 1.0]))
        >>> fit.w.tolist(), int(fit.steps), bool(fit.converged)
        ([1.5, 0.0], 1, True)

    Source: Efron et al. (2004), Section 3; objective of Garg et al. (2022), Section 5.
    """

    penalty: Any
    max_steps: int | None = eqx.field(static=True, default=None)
    is_least_squares: bool = eqx.field(static=True, init=False, repr=False)

    def __post_init__(self):
        self.is_least_squares = is_zero(self.penalty)
        self.penalty = checked("penalty", self.penalty, scalar & nonnegative)
        if self.max_steps is not None:
            check_positive_int("max_steps", self.max_steps)

    def fit(self, X: Array, y: Array) -> LassoFit:
        """The weights, with their duality gap; one prompt, (N, d) and (N,)."""
        count = max(X.shape[0], 1)
        gram = einsum("ni,nj->ij", X, X) / count
        moment = einsum("nd,n->d", X, y) / count
        w, taken = self._end(gram, moment, X.shape[0])
        gap = _gap(X, y, count * jnp.asarray(self.penalty, X.dtype), w)
        return LassoFit(w, gap, taken, gap < 100 * float(jnp.finfo(X.dtype).eps))

    def weights(self, X: Array, y: Array) -> Array:
        """The weight."""
        if self.is_least_squares:
            return LeastSquares().weights(X, y)
        return self.fit(X, y).w

    def prefix_weights(self, X: Array, y: Array) -> Array:
        """The weights of all prefixes, which follow their paths together."""
        if self.is_least_squares:
            return LeastSquares().prefix_weights(X, y)
        counts = prefix_counts(y)
        grams = shift_down(jnp.cumsum(X[:, :, None] * X[:, None, :], axis=0))
        moments = shift_down(jnp.cumsum(y[:, None] * X, axis=0)) / counts[:, None]
        ends = jax.vmap(lambda *one: self._end(*one)[0])
        return ends(grams / counts[:, None, None], moments, counts)

    def _end(self, gram, moment, count):
        steps = 8 * len(moment) if self.max_steps is None else self.max_steps
        amount = jnp.asarray(self.penalty, gram.dtype)
        return lasso_path_end(gram, moment, amount, count, steps)


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
