"""Gradient and Newton steps from zero, linear attention, averaging, and zero."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    check_nonnegative_int,
    check_positive_int,
    check_shape,
    checked,
    nonnegative,
    scalar,
)
from icltheory._core import calculator, exact_products
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import as_floats, einsum, finite_floats
from icltheory.regression.population import LinearPopulation, step_risk
from icltheory.regression.predictors.base import (
    LinearInLabels,
    NoClosedForm,
    before,
    prefix_counts,
    shift_down,
)


class Zero(LinearInLabels):
    """Predicts 0 for any examples.

    Example:
        >>> float(Zero().predict(jnp.ones((3, 2)), jnp.ones(3), jnp.ones(2)))
        0.0

    Source: Garg et al. (2022), Figure 2.
    """

    of_any_inputs = True

    def weights(self, X: Array, y: Array) -> Array:
        return jnp.zeros_like(X, shape=X.shape[1:])

    def prefix_weights(self, X: Array, y: Array) -> Array:
        return jnp.zeros_like(X)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """The variance of the labels, tr(H E w w')."""
        return population.signal


class Averaging(LinearInLabels):
    r"""The weight is the mean of label-weighted inputs, :math:`X^\top y / N`.

    It is one gradient step of size 1 from zero. All prefixes by one cumulative sum,
    O(P d).

    Example:
        >>> X, y = jnp.array([[1.0], [2.0]]), jnp.array([1.0, 2.0])
        >>> float(Averaging().predict(X, y, jnp.array([2.0])))
        5.0

    Source: Garg et al. (2022), Section 3.
    """

    of_any_inputs = True

    def weights(self, X: Array, y: Array) -> Array:
        return einsum("nd,n->d", X, y) / max(X.shape[0], 1)

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        sums = shift_down(jnp.cumsum(y[:, None] * X, axis=0))
        return jnp.sum(sums * X_query, axis=-1) / prefix_counts(y)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of a linear step with Gamma = I."""
        return step_risk(population, jnp.eye(population.dim), k)


class Steps(LinearInLabels):
    r"""Gradient descent from zero on :math:`|X w - y|^2 / (2N)`.

    .. math:: w_0 = 0, \qquad w_{t+1} = w_t - \eta_t\, A\, \frac1N X^\top (X w_t - y) .

    One prompt costs O(T N d), all its prefixes together O(T P^2 d). ``Steps(3)``, with
    a whole number, is the family of three steps of any sizes, of which ``optimum``
    finds the best. The risk of one step is exact. A is the identity if ``None``.

    Example:
        >>> X, y = jnp.eye(2), jnp.array([1.0, 4.0])
        >>> float(Steps([1.0]).predict(X, y, jnp.array([0.0, 1.0])))
        2.0
        >>> ones = jnp.ones((3, 1)), jnp.ones(3)
        >>> Steps([0.5, 0.5]).predict_prefixes(*ones).tolist()
        [0.0, 0.75, 0.75]

    Source: von Oswald et al. (2023), eq. 3.
    """

    step_sizes: Any
    preconditioner: Any = None
    num_steps: int = eqx.field(static=True, init=False, repr=False)

    of_any_inputs = True

    def __post_init__(self):
        if isinstance(self.step_sizes, int):
            check_nonnegative_int("step_sizes", self.step_sizes)
            self.num_steps, self.step_sizes = self.step_sizes, None
            return
        (sizes,) = finite_floats(step_sizes=jnp.asarray(self.step_sizes))
        check_shape("step_sizes", sizes, ("T",))
        self.step_sizes, self.num_steps = sizes, len(sizes)
        if self.preconditioner is not None:
            check_shape("preconditioner", self.preconditioner, ("d", "d"))
            self.preconditioner = jnp.asarray(self.preconditioner)

    def weights(self, X: Array, y: Array) -> Array:
        def step(w, eta):
            residual = einsum("nd,d->n", X, w) - y
            gradient = einsum("nd,n->d", X, residual) / max(X.shape[0], 1)
            return w - eta * self._turned(gradient), None

        start = jnp.zeros_like(X, shape=X.shape[1:])
        return jax.lax.scan(step, start, self._sizes(X.dtype))[0]

    def prefix_weights(self, X: Array, y: Array) -> Array:
        mean = before(len(y)) / prefix_counts(y)[:, None]

        def step(W, eta):
            residuals = (einsum("kd,nd->kn", W, X) - y[None]) * mean
            gradients = einsum("kn,nd->kd", residuals, X)
            return W - eta * self._turned(gradients), None

        return jax.lax.scan(step, jnp.zeros_like(X), self._sizes(X.dtype))[0]

    def check_exact(self, population: LinearPopulation, num_examples: Any) -> None:
        if jnp.shape(self._sizes(population.dtype)) != (1,):
            raise NoClosedForm(
                "predictor: expected one step of one size for an exact risk, got "
                f"{self.num_steps} steps: use estimate_risk(predictor, source, "
                "num_examples, key=...)"
            )

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of a linear step, for one step of one size."""
        size = self._sizes(population.dtype)[0]
        if self.preconditioner is None:
            return step_risk(population, size * jnp.eye(population.dim), k)
        return step_risk(population, size * self.preconditioner, k)

    def _sizes(self, dtype):
        if self.step_sizes is None:
            raise ValueError(
                f"step_sizes: expected numbers, got a family of {self.num_steps} steps"
            )
        return jnp.asarray(self.step_sizes, dtype)

    def _turned(self, rows):
        if self.preconditioner is None:
            return rows
        return einsum("...j,ij->...i", rows, self.preconditioner.astype(rows.dtype))


class Newton(LinearInLabels):
    r"""Newton-Schulz steps towards the inverse Gram matrix.

    .. math:: S = X^\top X, \quad M_0 = \frac{c}{\|S S^\top\|_F} S, \quad
        M_{t+1} = 2 M_t - M_t S M_t, \quad \hat w = M_T X^\top y .

    Computed as w_{t+1} = w_t + E_t w_t with E_t = I - S M_t = (I - S M_0)^{2^t}. It
    converges to least squares for an ``initial_scale`` 0 < c < 2. Published code takes
    c = 2, for which examples of rank one predict 0 for ever. Where the examples are of
    deficient rank, rounding errors double with every step: use float64 there.

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([1.0, 3.0])
        >>> at = jnp.array([0.0, 1.0])
        >>> [round(float(Newton(t).predict(X, y, at)), 4) for t in (0, 4, 8)]
        [1.0211, 1.2912, 1.9959]

    Source: Fu et al. (2024), eq. 6.
    """

    steps: int = eqx.field(static=True)
    initial_scale: Any = 1.0

    def __post_init__(self):
        check_nonnegative_int("steps", self.steps)
        rule = scalar & nonnegative
        self.initial_scale = checked("initial_scale", self.initial_scale, rule)

    @exact_products
    def weights(self, X: Array, y: Array) -> Array:
        if X.shape[0] < X.shape[1]:
            return self._iterate(X @ X.T, y) @ X
        return self._iterate(X.T @ X, y @ X)

    @exact_products
    def prefix_weights(self, X: Array, y: Array) -> Array:
        """M_T X'y of all prefixes, one after the other to bound the memory.

        Those shorter than d use the Gram matrix of the examples, of full rank.
        """
        num_points, dim = X.shape
        head = min(num_points, dim)
        first = jnp.pad(X[:head], ((0, dim - head), (0, 0)))
        first_y = jnp.pad(y[:head], (0, dim - head))
        K = first @ first.T
        moments = shift_down(jnp.cumsum(y[:, None] * X, axis=0))

        def at_prefix(gram, row):
            k, x, moment = row
            seen, few = jnp.arange(dim) < k, k < dim
            A = jnp.where(few, jnp.where(seen[:, None] & seen[None, :], K, 0), gram)
            b = jnp.where(few, jnp.where(seen, first_y, 0), moment)
            v = self._iterate(A, b)
            w = jnp.where(few, v @ first, v)
            return gram + x[:, None] * x[None, :], w

        rows = (jnp.arange(num_points), X, moments)
        return jax.lax.scan(at_prefix, jnp.zeros((dim, dim), X.dtype), rows)[1]

    def _iterate(self, gram: Array, b: Array) -> Array:
        """M_T b for a symmetric Gram matrix; 0 where the matrix is 0."""
        square = gram @ gram
        size = jnp.sum(square**2)  # the root of 0 has no derivative
        norm = jnp.sqrt(jnp.where(size > 0, size, 1))
        scale = jnp.asarray(self.initial_scale, b.dtype) / norm
        error = jnp.eye(b.shape[0], dtype=b.dtype) - scale * square

        def step(_, state):
            v, E = state
            return v + E @ v, E @ E

        start = scale * gram @ b, error
        return jax.lax.fori_loop(0, self.steps, step, start)[0]


_ROUNDS, _CANDIDATES = 4, 33


@calculator(static=("steps",))
def tune_step_size(X: Any, y: Any, x_query: Any, y_query: Any, steps: int) -> Scalar:
    r"""Step size, the same in all steps, with the least error on a batch of prompts.

    .. math:: \hat\eta = \arg\min_\eta\ \frac1B \sum_b
        \bigl(\hat y_b(\eta) - y^{query}_b\bigr)^2.

    For one step the loss is a parabola in eta, solved exactly. Otherwise a grid on
    [0, 4 sqrt(d) / mean Frobenius norm of X'X/N] is refined around its best point. Uses
    the labels of the queries: judge the result on other prompts. Where no step size
    moves an answer it is 0. X is ``(B, N, d)``, the others likewise.

    Example:
        >>> X, y = jnp.ones((1, 2, 1)), jnp.ones((1, 2))
        >>> args = X, y, jnp.ones((1, 1)), jnp.ones(1)
        >>> [round(float(tune_step_size(*args, steps)), 3) for steps in (1, 2)]
        [1.0, 1.0]

    Source: von Oswald et al. (2023), Appendix A.
    """
    check_shape("X", X, ("B", "N", "d"))
    B, N, d = np.shape(X)
    check_shape("y", y, (B, N))
    check_shape("x_query", x_query, (B, d))
    check_shape("y_query", y_query, (B,))
    check_positive_int("steps", steps)
    X, y, x_query, target = as_floats(X, y, x_query, y_query)

    def predict(eta):
        rule = Steps(jnp.broadcast_to(eta, (steps,)))
        return jax.vmap(rule.answer)(X, y, x_query)

    if steps == 1:
        slope = predict(jnp.ones((), X.dtype))
        square = jnp.sum(slope**2)
        return jnp.sum(slope * target) / jnp.where(square > 0, square, 1)
    bounded = jnp.swapaxes(X, 1, 2) @ X / max(N, 1)
    largest = jnp.mean(jnp.linalg.norm(bounded, axis=(1, 2)))

    def refine(interval, _):
        low, high = interval
        grid = jnp.linspace(low, high, _CANDIDATES)
        errors = jax.lax.map(lambda eta: jnp.mean((predict(eta) - target) ** 2), grid)
        best = grid[jnp.nanargmin(errors)]
        width = 2 * (high - low) / (_CANDIDATES - 1)
        return (jnp.maximum(best - width, 0), best + width), best

    top = 4 * np.sqrt(d) / jnp.where(largest > 0, largest, 1)
    return jax.lax.scan(refine, (jnp.zeros_like(top), top), length=_ROUNDS)[1][-1]


class LinearStep(LinearInLabels):
    r"""One layer of linear attention: a preconditioned gradient step from zero.

    .. math:: \hat w = \Gamma X^\top y / N .

    From another start it is ``regression.GDBeta``. Its risk is exact for inputs of any
    known fourth moments, ``population.with_(fourth_moment=...)``.

    Example:
        >>> from icltheory.regression import risk
        >>> population = LinearPopulation.isotropic(5)
        >>> signs = population.with_(fourth_moment=1.0)  # inputs 1 and -1
        >>> step = LinearStep(20 / 26 * jnp.eye(5))
        >>> [f"{risk(step, inputs, 20):.4f}" for inputs in (population, signs)]
        ['1.1538', '0.8580']

    Source: Ahn et al. (2023), Theorem 1; Wu et al. (2024), Section 3.
    """

    Gamma: Any

    of_any_inputs = True

    def __post_init__(self):
        (self.Gamma,) = finite_floats(Gamma=self.Gamma)
        check_shape("Gamma", self.Gamma, ("d", "d"))

    def weights(self, X: Array, y: Array) -> Array:
        mean = einsum("nd,n->d", X, y) / max(X.shape[0], 1)
        return einsum("ij,j->i", self.Gamma.astype(X.dtype), mean)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """R = tr H M - 2 tr H Gamma H M + tr H Gamma S Gamma', M = E w w'.

        S is the second moment of X'y / N.
        """
        return step_risk(population, self.Gamma, k)

    def masked_weights(self) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        r"""P and Q of a layer :math:`-[Z + P Z M Z^\top Q Z / N]_{d+1, N+1}`.

        .. math:: P = e_{d+1} e_{d+1}^\top, \qquad
            Q = -\begin{pmatrix} \Gamma^\top & 0 \\ 0 & 0 \end{pmatrix},

        with the mask M = diag(1, ..., 1, 0).
        """
        P = jnp.zeros((len(self.Gamma) + 1,) * 2, self.Gamma.dtype).at[-1, -1].set(1)
        return P, -jnp.pad(self.Gamma.T, ((0, 1), (0, 1)))
