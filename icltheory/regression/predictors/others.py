"""Nearest neighbours, the Bayes predictor of a finite pool, and the Lasso."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    checked,
    finite,
    nonnegative,
    scalar,
)
from icltheory._core import Record, exact_products
from icltheory._typing import Array, Bool, Float, Int
from icltheory.regression._linalg import as_floats, dot, einsum, is_zero, quotient
from icltheory.regression.predictors.base import (
    LinearPredictor,
    Predictor,
    before,
    prefix_counts,
    shift_down,
)
from icltheory.regression.predictors.least_squares import LeastSquares

_POSITIVE = Check(
    lambda variance: variance > 0,
    "a value > 0 (the noiseless posterior is decided by rounding; use a small positive "
    "variance)",
)


class NearestNeighbors(Predictor):
    r"""Mean label of the k examples nearest to the query.

    .. math:: \hat y = \frac1m \sum_{i \in S} y_i, \qquad m = \min(k, N),

    with S the m examples of least Euclidean distance (the earlier one on a tie). No
    examples predict 0. One prompt costs O(N d), all its prefixes O(P^2 d). An input
    that is not finite makes the answer NaN.

    Example:
        >>> X, y = jnp.array([[0.0], [1.0], [9.0]]), jnp.array([1.0, 3.0, 50.0])
        >>> float(NearestNeighbors(2).predict(X, y, jnp.array([0.5])))
        2.0

    Source: Garg et al. (2022), Section 3.
    """

    k: int = eqx.field(static=True, default=3)

    def __post_init__(self):
        check_positive_int("k", self.k)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        X, x_query = _scaled(X, x_query)
        distances = jnp.sum((X - x_query[None]) ** 2, axis=-1)
        return self._mean_of_nearest(distances, y, jnp.ones_like(y, bool))

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        X, X_query = _scaled(X, X_query)
        distances = jnp.sum((X_query[:, None] - X[None]) ** 2, axis=-1)
        rows = jnp.broadcast_to(y[None], distances.shape)
        return self._mean_of_nearest(distances, rows, before(y.shape[0]))

    def _mean_of_nearest(self, distances: Array, y: Array, allowed: Array) -> Array:
        """Mean of y over the k least allowed distances along the last axis."""
        if not y.shape[-1]:
            return jnp.zeros(y.shape[:-1], y.dtype)
        closeness = jnp.where(allowed, -distances, -jnp.inf)
        best, index = jax.lax.top_k(closeness, min(self.k, y.shape[-1]))
        chosen = jnp.where(best > -jnp.inf, jnp.take_along_axis(y, index, axis=-1), 0)
        count = jnp.sum(best > -jnp.inf, axis=-1)
        mean = jnp.sum(chosen, axis=-1) / jnp.maximum(count, 1).astype(y.dtype)
        known = jnp.all(jnp.isfinite(jnp.where(allowed, distances, 0)), axis=-1)
        return jnp.where(known, mean, jnp.nan)


class DiscreteMMSE(Predictor):
    r"""The posterior mean when the task is uniform on a finite pool (dMMSE).

    .. math:: \hat y = \frac{\sum_m e^{\ell_m} \langle w_m, x_{query}\rangle}
        {\sum_m e^{\ell_m}}, \qquad
        \ell_m = -\frac{1}{2\sigma^2} \sum_{i=1}^N (y_i - \langle w_m, x_i\rangle)^2.

    The pool, ``(M, d)``, passes in chunks through an online log-sum-exp: exact for any
    pool size, in O(chunk_size) memory and O(N M d) time, forwards and backwards.
    Without noise rounding would decide among exact fits: refused.

    Example:
        >>> rule = DiscreteMMSE(jnp.array([[1.0], [-1.0]]), 2.0)
        >>> round(float(rule.predict(jnp.ones((1, 1)), jnp.ones(1), jnp.ones(1))), 6)
        0.462117

    Source: Raventos et al. (2023), eq. 3.
    """

    pool: Any
    noise_var: Any
    chunk_size: int = eqx.field(static=True, default=512)

    def __post_init__(self):
        check_shape("pool", self.pool, ("M", "d"))
        check_positive_int("pool size", jnp.shape(self.pool)[0])
        check_positive_int("chunk_size", self.chunk_size)
        (self.pool,) = as_floats(self.pool)
        rule = scalar & finite & _POSITIVE
        self.noise_var = checked("noise_var", self.noise_var, rule)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        def chunk(w):
            squares = (y[:, None] - einsum("nd,md->nm", X, w)) ** 2
            return jnp.sum(squares, axis=0), einsum("d,md->m", x_query, w)

        return self._stream(chunk, (), X.dtype)

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        def chunk(w):
            squares = (y[:, None] - einsum("nd,md->nm", X, w)) ** 2
            total = shift_down(jnp.cumsum(squares, axis=0))
            return total, einsum("nd,md->nm", X_query, w)

        return self._stream(chunk, y.shape, X.dtype)

    def _stream(self, chunk, shape, dtype) -> Array:
        """Mean of predictions weighted by their likelihood, chunk by chunk."""
        pool = self.pool.astype(dtype)
        precision = 1 / jnp.asarray(self.noise_var, dtype)
        size = min(self.chunk_size, len(pool))
        missing = -len(pool) % size
        padded = jnp.pad(pool, ((0, missing), (0, 0))).reshape(-1, size, pool.shape[1])
        present = (jnp.arange(len(pool) + missing) < len(pool)).reshape(-1, size)

        def body(state, part):
            top, total, mean = state
            w, real = part
            squares, predictions = chunk(w)
            seen = jnp.broadcast_to(real, squares.shape)
            fit = jnp.where(seen, -0.5 * precision * squares, -jnp.inf)
            new_top = jnp.maximum(top, jax.lax.stop_gradient(jnp.max(fit, axis=-1)))
            weights = jnp.exp(fit - new_top[..., None])
            kept = jnp.exp(top - new_top)
            total = total * kept + jnp.sum(weights, axis=-1)
            mean = mean * kept + jnp.sum(weights * predictions, axis=-1)
            return (new_top, total, mean), None

        zeros = jnp.zeros(shape, dtype)
        start, parts = (zeros - jnp.inf, zeros, zeros), (padded, present)
        (_, total, mean), _ = jax.lax.scan(jax.checkpoint(body), start, parts)
        return mean / total


def _scaled(*arrays: Array) -> list[Array]:
    """Divides inputs by a power of two so that squared distances are finite.

    It is 1 for inputs below about 1e18 in float32, whose distances keep every bit.
    """
    dtype, dim = arrays[0].dtype, arrays[0].shape[-1]
    largest = jnp.stack([jnp.max(jnp.abs(a), initial=0) for a in arrays]).max()
    exponent = jnp.frexp(largest)[1]
    # An entry of a difference is below twice the largest, and d squares are added.
    room = (jnp.finfo(dtype).maxexp - 1 - max(dim - 1, 0).bit_length()) // 2 - 1
    factor = jnp.ldexp(jnp.ones((), dtype), jnp.minimum(room - exponent, 0))
    return [factor * array for array in arrays]


class LassoFit(Record):
    r"""Lasso weights and their duality gap.

    .. math:: \text{gap} = \frac{P(w) - D(s r)}{|y|^2 / 2N}, \quad r = y - X w, \quad
        s = \min\{1, N \lambda / \max_j |X_j^\top r|\}, \quad
        D(\theta) = \frac{|y|^2 - |y - \theta|^2}{2N},

    P the objective of :class:`Lasso`; it bounds nothing where lambda = 0. A step is a
    coordinate that joins or leaves; ``converged`` is a gap below 100 eps.
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
    coordinates): exact up to rounding, a step O(d^2). First derivatives are exact where
    the active set does not change. It works on the Gram matrix: for columns that are
    equal to 1 %, float32 misses steps of the path, and ``fit(X, y).converged`` is
    false. No examples predict 0. A known penalty 0 is least squares.

    Example:
        >>> fit = Lasso(1.0).fit(2 * jnp.eye(2), jnp.array([4.0, 1.0]))
        >>> fit.w.tolist(), int(fit.steps), bool(fit.converged)
        ([1.5, 0.0], 1, True)

    Source: Efron et al. (2004), Section 3; objective of Garg et al. (2022), Section 5.
    """

    penalty: Any
    is_least_squares: bool = eqx.field(static=True, init=False, repr=False)

    def __post_init__(self):
        self.is_least_squares = is_zero(self.penalty)
        self.penalty = checked("penalty", self.penalty, scalar & nonnegative)

    @exact_products
    def fit(self, X: Array, y: Array) -> LassoFit:
        """The weights, with their duality gap; one prompt, (N, d) and (N,)."""
        count = max(X.shape[0], 1)
        gram, moment = X.T @ X / count, y @ X / count
        penalty = jnp.asarray(self.penalty, X.dtype)
        w, taken = lasso_path_end(gram, moment, penalty, X.shape[0])
        gap = duality_gap(X, y, count * penalty, w)
        return LassoFit(w, gap, taken, gap < 100 * float(jnp.finfo(X.dtype).eps))

    def weights(self, X: Array, y: Array) -> Array:
        if self.is_least_squares:
            return LeastSquares().weights(X, y)
        return self.fit(X, y).w

    def prefix_weights(self, X: Array, y: Array) -> Array:
        if self.is_least_squares:
            return LeastSquares().prefix_weights(X, y)
        counts = prefix_counts(y)
        grams = shift_down(jnp.cumsum(X[:, :, None] * X[:, None, :], axis=0))
        moments = shift_down(jnp.cumsum(y[:, None] * X, axis=0)) / counts[:, None]
        penalty = jnp.asarray(self.penalty, X.dtype)
        ends = jax.vmap(lambda G, m, k: lasso_path_end(G, m, penalty, k)[0])
        return ends(grams / counts[:, None, None], moments, counts)


def duality_gap(X: Array, y: Array, penalty: Array, w: Array) -> Array:
    """Duality gap over that of w = 0, for the objective times N."""
    residual = y - X @ w
    largest = jnp.max(jnp.abs(residual @ X), initial=0)
    above = largest > penalty
    share = jnp.where(above, penalty / jnp.where(above, largest, 1), 1)
    # P - D without the difference of two numbers of the size of |y|^2.
    gap = (1 - share) ** 2 * dot(residual, residual) / 2
    gap = gap + penalty * jnp.sum(jnp.abs(w)) - share * dot(residual, y - residual)
    size = dot(y, y)
    return 2 * gap / jnp.where(size > 0, size, 1)


@exact_products
def lasso_path_end(
    gram: Array, moment: Array, penalty: Array, rank: Array | int
) -> tuple[Array, Array]:
    """Lasso minimiser of w'Gw/2 - m'w + penalty |w|_1, and the steps taken.

    A step goes to the next penalty at which a coordinate joins or leaves the active
    set, and updates the inverse of the active block by a matrix of rank one. At the end
    the inverse refines the solution of the last linear system, which also carries the
    (first) derivatives. ``rank`` bounds the rank of G and so the active set.
    """
    fixed = jax.lax.stop_gradient((gram, moment, penalty))
    path = jax.lax.stop_gradient(_follow(*fixed, rank))
    followed, signs, inverse, steps = path

    def correction(w, gram, moment, penalty):
        return inverse @ (moment - penalty * signs - gram @ w)

    refined = followed + correction(followed, *fixed)
    refined = refined + correction(refined, *fixed)
    # The refinement is rejected where the inverse has lost its accuracy.
    wins = violation(*fixed, refined) < violation(*fixed, followed)
    w = jnp.where(wins, refined, followed)
    moved = correction(w, gram, moment, penalty)
    w = w + (moved - jax.lax.stop_gradient(moved))
    return w, steps


def violation(gram: Array, moment: Array, penalty: Array, w: Array) -> Array:
    """Largest distance of the gradient from -penalty times the subdifferential."""
    force = moment - gram @ w
    inactive = jnp.maximum(jnp.abs(force) - penalty, 0)
    active = jnp.abs(force - penalty * jnp.sign(w))
    return jnp.max(jnp.where(w != 0, active, inactive), initial=0)


def _follow(gram, moment, penalty, rank) -> tuple[Array, Array, Array, Array]:
    """Follows the path; returns solution, signs, inverse active block, and steps."""
    dim, dtype = moment.shape[0], moment.dtype
    places, max_steps = jnp.arange(dim), 8 * dim
    floor = dim * jnp.finfo(dtype).eps * jnp.diagonal(gram)

    def unfinished(state):
        level, *_, steps = state
        return (level > penalty) & (steps < max_steps)

    def advance(state):
        level, w, signs, inverse, last, steps = state
        force, move = moment - gram @ w, inverse @ signs
        slope = gram @ move
        join, leave = _events(level, w, signs, move, force, slope, last)
        join = jnp.where(jnp.count_nonzero(signs) < rank, join, jnp.inf)
        first_join, first_leave = jnp.min(join), jnp.min(leave)
        length = jnp.minimum(jnp.minimum(first_join, first_leave), level - penalty)
        joins = (first_join <= length) & (first_join <= first_leave)
        leaves = (first_leave <= length) & ~joins
        j = jnp.where(joins, jnp.argmin(join), jnp.argmin(leave))
        here = places == j
        moved = jnp.where(leaves & here, 0, w + length * move)
        row = jnp.where(signs != 0, gram[j], 0)
        opened = here - inverse @ row
        schur = gram[j, j] - dot(row, inverse @ row)
        allowed = joins & (schur > floor[j])
        v = jnp.where(allowed, opened, jnp.where(leaves, inverse[j], 0))
        pivot = jnp.where(allowed, schur, jnp.where(leaves, -inverse[j, j], 1))
        updated = inverse + v[:, None] * (v / pivot)[None, :]
        kept = ~(leaves & here)
        updated = jnp.where(kept[:, None] & kept[None, :], updated, 0)
        side = jnp.sign(force - length * slope)
        turned = jnp.where(here & allowed, side, jnp.where(kept, signs, 0))
        last = jnp.where((joins & ~allowed) | leaves, j, -1)
        sound = jnp.isfinite(jnp.sum(updated) + jnp.sum(moved))
        new = (level - length, moved, turned, updated, last, steps + 1)
        stop = (level, w, signs, inverse, last, max_steps)
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, stop)

    zeros = jnp.zeros_like(moment)
    if not moment.size:  # the inputs have dimension 0
        return zeros, zeros, jnp.zeros_like(gram), jnp.asarray(0)
    j = jnp.argmax(jnp.abs(moment))
    level = jnp.abs(moment[j])
    here = (places == j) & (level > penalty)
    inverse = jnp.diag(jnp.where(here, 1 / jnp.where(level > 0, gram[j, j], 1), 0))
    start = (level, zeros, jnp.where(here, jnp.sign(moment), 0), inverse, -1, 0)
    _, w, signs, inverse, _, steps = jax.lax.while_loop(unfinished, advance, start)
    return w, signs, inverse, jnp.asarray(steps)


def _events(level, w, signs, move, force, slope, last):
    """Decrease of the penalty at which each coordinate would become active or leave."""
    active = signs != 0

    def positive(top, bottom):
        return quotient(jnp.maximum(top, 0), bottom, jnp.inf)

    upper = positive(level - force, 1 - slope)
    lower = positive(level + force, 1 + slope)
    # A coordinate that has just left is still on its boundary.
    fresh = jnp.arange(w.shape[0]) == last
    upper = jnp.where(fresh & (force > 0), jnp.inf, upper)
    lower = jnp.where(fresh & (force < 0), jnp.inf, lower)
    join = jnp.where(active, jnp.inf, jnp.minimum(upper, lower))
    shrinking = active & (w * move < 0)
    leave = jnp.where(shrinking, -w / jnp.where(shrinking, move, 1), jnp.inf)
    return join, leave
