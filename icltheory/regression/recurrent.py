"""Recurrent learners: linear attention, the delta rule, their gates, and Mesa.

Their exact risks are affine recursions on second moments of state and task, of which
the diagonals suffice in the eigenbasis of the Gaussian inputs' covariance.
"""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import (
    check_choice,
    check_positive_int,
    check_shape,
    checked,
    finite,
    is_tracer,
    one_line,
    positive,
    real,
    scalar,
    unit,
)
from icltheory._core import calculator
from icltheory._typing import Array, Float
from icltheory.regression._linalg import as_floats, dot, einsum, ridge_weights
from icltheory.regression.drift import (
    DriftingTasks,
    demonstration_moments,
    population_of,
    repeated,
)
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import (
    LinearInLabels,
    NoClosedForm,
    check_gaussian,
)


class _Recurrent(LinearInLabels):
    """A state w that is read by the query: W <- g W + x u, u linear in W and y."""

    step_size: Any
    gate: Any = 1.0

    of_drifting_tasks = True

    def __post_init__(self):
        if isinstance(self.step_size, str):
            check_choice("step_size", self.step_size, ("schedule",))
        elif self.step_size is not None:
            size = jnp.asarray(real("step_size", self.step_size))
            check_shape("step_size", size, ("T",) if size.ndim else ())
            self.step_size = checked("step_size", size, finite)
        if self.gate is not None:
            self.gate = checked("gate", real("gate", self.gate), scalar & unit)

    def sizes(self, num_examples: int, dtype: Any) -> Array:
        """Step sizes of the examples of a prompt, the first of a schedule."""
        size, n = self.known()[0].astype(dtype), num_examples
        if size.ndim and len(size) < n:
            raise ValueError(f"step_size: expected at least {n}, got {len(size)}")
        return size[:n] if size.ndim else jnp.full(n, size)

    def known(self) -> tuple[Array, ...]:
        """Step size and gate as arrays; raises for a family."""
        if self.gate is None or isinstance(self.step_size, str | None):
            raise ValueError(
                "step_size, gate: expected numbers, got a family: "
                "optimum(family, source, num_examples).model has the best"
            )
        return tuple(as_floats(self.step_size, self.gate))

    def prefix_sizes(self, y: Array) -> Array:
        """Sizes for prefixes, whose last point is no example."""
        return jnp.pad(self.sizes(max(len(y) - 1, 0), y.dtype), (0, 1))[: len(y)]

    def weights(self, X: Array, y: Array) -> Array:
        return self._states(X, y, self.sizes(len(y), X.dtype))[0]

    def prefix_weights(self, X: Array, y: Array) -> Array:
        return self._states(X, y, self.prefix_sizes(y))[1]

    def _states(self, X, y, sizes):
        def step(w, row):
            return self.update(w, *row), w

        return jax.lax.scan(step, jnp.zeros_like(X, shape=X.shape[1:]), (X, y, sizes))

    def chunk(self, w: Array, X: Array, y: Array, Q: Array, size: Array) -> Any:
        """The state after a chunk, and the answers before each of its examples."""
        gate = self.known()[1].astype(X.dtype)
        at, n = jnp.arange(len(y)), len(y)
        added = self.added(w, X, y, size, gate)
        answers = gate**at * (Q @ w) + _faded(gate, n) * (Q @ X.T) @ added
        return gate**n * w + (gate ** (n - 1 - at) * added) @ X, answers

    def start(self, dim: int, dtype: Any) -> Any:
        """The state before the first example."""
        return jnp.zeros(dim, dtype)

    def check_exact(self, population: Any, num_examples: Any) -> None:
        """Raises for inputs that are not Gaussian and too short a schedule."""
        self.check_source(population)
        if self.known()[0].ndim and not is_tracer(num_examples):
            self.sizes(num_examples, float)

    def check_source(self, population: Any) -> None:
        """Raises unless exact risks on a source are known."""
        if not isinstance(population, LinearPopulation | DriftingTasks):
            got = type(population).__name__
            raise NoClosedForm(f"population: expected DriftingTasks, got {got}")
        check_gaussian(population_of(population)[0])


class DeltaRule(_Recurrent):
    r"""The delta rule: each example moves the weight against its own error.

    .. math:: W_t = g\, W_{t-1} + \beta_t\, x_t
        \bigl(y_t - g\, \langle x_t, W_{t-1}\rangle\bigr), \qquad
        \hat y = \langle W_N, x\rangle ,

    which is stochastic gradient descent through the prompt; with a gate g in [0, 1) the
    gated delta rule. The step size is one beta or one for each example. ``None`` and
    ``"schedule"`` are families, of constant and of any sizes, and a gate ``None`` that
    of all gates; ``optimum`` finds the best of a family.

    Example:
        >>> from icltheory.regression import DriftingTasks, optimum, risk
        >>> rule = DeltaRule(0.12)
        >>> population = LinearPopulation.isotropic(5, 0.25)
        >>> print(f"{(risk(rule, population, 20) - 0.25) / 5:.6f}")
        0.074465
        >>> drift = DriftingTasks(5, 0.25, persistence=0.95)
        >>> print(f"{(risk(DeltaRule(0.12, 0.97), drift, 60) - 0.25) / 5:.6f}")
        0.461572
        >>> best = optimum(DeltaRule, drift, 400)
        >>> size, gate = best.model.step_size, best.model.gate
        >>> print(f"{size:.4f} {gate:.4f} {(best.risk - 0.25) / 5:.6f}")
        0.1272 0.9457 0.449940

    Source: Schlag, Irie and Schmidhuber (2021); Yang, Kautz and Hatamizadeh (2025).
    """

    def update(self, w: Array, x: Array, y: Array, size: Array) -> Array:
        """The state after one more example."""
        w = self.known()[1].astype(w.dtype) * w
        return w + size * x * (y - dot(w, x))

    def added(self, w: Array, X: Array, y: Array, size: Array, gate: Array) -> Array:
        """Multiples of the inputs that a chunk adds, by one triangular system."""
        C = len(y)
        own = size[:, None] * gate * _faded(gate, C) * (X @ X.T)
        missed = y - gate ** (1 + jnp.arange(C)) * (X @ w)
        own = own + jnp.eye(C, dtype=y.dtype)
        return jax.scipy.linalg.solve_triangular(own, size * missed, lower=True)

    def exact_risk(self, population: Any, k: Array) -> Array:
        r"""By recursion on the diagonals of the second moments.

        In the eigenbasis of H, with :math:`c_i = E W_i w_i` and :math:`s_i = E W_i^2`
        of the decayed state g W and the example's task, :math:`M = E w w^\top`, and
        :math:`e = M_{ii} - 2 c + s`,

        .. math:: c \leftarrow c + \beta \lambda (M_{ii} - c), \quad
            s \leftarrow s + 2 \beta \lambda (c - s) + \beta^2 \lambda
            (2 \lambda e + \textstyle\sum_j \lambda_j e_j + \sigma^2), \quad
            R = \sum_i \lambda_i e_i .
        """
        p, a = population_of(population)
        size, g = (value.astype(p.dtype) for value in self.known())
        values, U = jnp.linalg.eigh(p.input_cov)
        m = p.task_mean @ U
        M = jnp.sum(U * (p.task_cov @ U), axis=0) + m**2

        def next_task(mu, c):
            return a * c + (1 - a) * m * mu

        def step(state, beta):
            mu, c, s = state
            mu, c, s = g * mu, g * next_task(mu, c), g**2 * s
            e = M - 2 * c + s
            noisy = 2 * values * e + jnp.sum(values * e) + p.noise_var
            s = s + 2 * beta * values * (c - s) + beta**2 * values * noisy
            c = c + beta * values * (M - c)
            return mu + beta * values * (m - mu), c, s

        zero = jnp.zeros_like(M)
        mu, c, s = repeated(step, (zero, zero, zero), size, k)
        return jnp.sum(values * (M - 2 * next_task(mu, c) + s))


class GatedLinearAttention(_Recurrent):
    r"""Linear attention that forgets; with a gate of 1, linear attention.

    .. math:: W_t = g\, W_{t-1} + \beta_t\, x_t y_t , \qquad \hat y = \langle W_N, x
        \rangle = \sum_i \beta_i\, g^{N-i}\, y_i \langle x_i, x\rangle .

    Step sizes and gate, and the families that ``None`` and ``"schedule"`` stand for,
    are as for :class:`DeltaRule`; of a schedule the gate is a part.

    Example:
        >>> from icltheory.regression import DriftingTasks, optimum
        >>> drift = DriftingTasks(5, 0.25, persistence=0.9)
        >>> families = [GatedLinearAttention(s, g) for s, g in (
        ...     (None, 1.0), (None, None), ("schedule", 1.0))]
        >>> risks = [optimum(family, drift, 10).risk for family in families]
        >>> print(*(f"{(risk - 0.25) / 5:.6f}" for risk in risks))
        0.745961 0.703633 0.703579

    Source: Yang et al. (2024); Li, Tarzanagh, Rawat, Fazel and Oymak (2025).
    """

    def update(self, w: Array, x: Array, y: Array, size: Array) -> Array:
        """The state after one more example."""
        return self.known()[1].astype(w.dtype) * w + size * x * y

    def added(self, w: Array, X: Array, y: Array, size: Array, gate: Array) -> Array:
        """Multiples of the inputs that a chunk adds."""
        return size * y

    def exact_risk(self, population: Any, k: Array) -> Array:
        r"""That of weighted demonstrations, :math:`\omega_i = \beta_i g^{N-i}`.

        .. math:: R = \mathrm{tr}\, H M - 2\,\mathrm{tr}\, H^2 \bigl(\omega^\top r\,
            \Psi + (1^\top \omega)\, m\bigr) + \mathrm{tr}\, H^3 \bigl(\omega^\top R\,
            \omega\, \Psi + (1^\top \omega)^2 m\bigr) + |\omega|^2\, \mathrm{tr}\, H^2
            (H M + \tau I)

        with R the correlation of the tasks, r that with the query's, :math:`m =
        \beta^* \beta^{*\top}`, M = Psi + m and :math:`\tau = \mathrm{tr}\, H M +
        \sigma^2`.
        """
        p, a = population_of(population)
        size, g = (value.astype(p.dtype) for value in self.known())

        def step(state, beta):
            total, squares, last, square = state
            square = g**2 * square + 2 * g * beta * a * last + beta**2
            grown = g * total + beta, g**2 * squares + beta**2
            return *grown, g * a * last + beta, square

        zero = jnp.zeros((), p.dtype)
        start = (zero, zero, zero, zero)
        total, squares, last, square = repeated(step, start, size, k)
        first, second, own = demonstration_moments(p)
        linear = a * last * first[0] + total * first[1]
        both = square * second[0] + total**2 * second[1]
        return p.signal - 2 * linear + both + squares * own


class Mesa(LinearInLabels):
    r"""Ridge regression that forgets: a Mesa layer.

    .. math:: \hat w = \Bigl(\sum_i \gamma^{N-i} x_i x_i^\top + \lambda I\Bigr)^{-1}
        \sum_i \gamma^{N-i} y_i x_i .

    The penalty lambda > 0 does not fade; with a forgetting gamma of 1 it is
    :class:`Ridge`. One prompt by the QR factorisation of the weighted examples; the
    prefixes carry both sums and solve once each, O(d^3).

    Example:
        >>> X, y = jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0])
        >>> print(f"{Mesa(2.0, 0.5).predict(X, y, jnp.array([1.0])):.6f}")
        1.000000

    Source: von Oswald et al. (2025), MesaNet.
    """

    penalty: Any
    forgetting: Any

    def __post_init__(self):
        for name, rule in (("penalty", positive), ("forgetting", unit)):
            value = real(name, getattr(self, name))
            setattr(self, name, checked(name, value, scalar & rule))

    def weights(self, X: Array, y: Array) -> Array:
        gamma = jnp.asarray(self.forgetting, X.dtype)
        half = gamma ** (jnp.arange(len(y), dtype=X.dtype)[::-1] / 2)
        penalty = jnp.asarray(self.penalty, X.dtype)
        return ridge_weights(half[:, None] * X, half * y, penalty)

    def prefix_weights(self, X: Array, y: Array) -> Array:
        gamma = jnp.asarray(self.forgetting, X.dtype)

        def step(state, row):
            (H, G), (x, target) = state, row
            after = gamma * H + x[:, None] * x[None], gamma * G + x * target
            return after, self._solved(H, G)

        return jax.lax.scan(step, self.start(X.shape[1], X.dtype), (X, y))[1]

    def chunk(self, state: Any, X: Array, y: Array, Q: Array, size: Array) -> Any:
        """The sums after a chunk, and the answers before each of its examples."""
        gamma = jnp.asarray(self.forgetting, X.dtype)
        n, (H, G) = len(y), state
        weight, fade = _faded(gamma, n + 1)[:, :n], gamma ** jnp.arange(n + 1)
        H = fade[:, None, None] * H[None] + einsum("cn,ni,nj->cij", weight, X, X)
        G = fade[:, None] * G[None] + einsum("cn,ni,n->ci", weight, X, y)
        return (H[-1], G[-1]), dot(jax.vmap(self._solved)(H[:-1], G[:-1]), Q)

    def start(self, dim: int, dtype: Any) -> Any:
        """The sums before the first example."""
        return jnp.zeros((dim, dim), dtype), jnp.zeros(dim, dtype)

    def prefix_sizes(self, y: Array) -> Array:
        """Zeros, as there are no step sizes."""
        return jnp.zeros_like(y)

    def _solved(self, H, G):
        H = H + jnp.asarray(self.penalty, H.dtype) * jnp.eye(len(H), dtype=H.dtype)
        return jax.scipy.linalg.solve(H, G, assume_a="pos")


@calculator(static=("chunk_size",))
def chunked_predictions(
    predictor: Any, X: Any, y: Any, X_query: Any = None, *, chunk_size: int = 64
) -> Float[Array, " P"]:
    r"""Answers of a recurrent learner after every prefix, chunk by chunk.

    Those of ``predictor.predict_prefixes(X, y, X_query)``, C examples at once by
    products of matrices: of the delta rule the multiples u of the inputs that they add
    solve one triangular system,

    .. math:: u_i + \beta_i \sum_{j < i} g^{i-j} \langle x_i, x_j\rangle u_j
        = \beta_i \bigl(y_i - g^i \langle x_i, W_0\rangle\bigr) , \qquad
        W_i = g^i W_0 + \sum_{j \le i} g^{i-j} x_j u_j .

    Example:
        >>> X, y = jnp.ones((3, 2)), jnp.array([1.0, 2.0, 3.0])
        >>> rule = DeltaRule(0.25, 0.5)
        >>> chunked_predictions(rule, X, y, chunk_size=2).tolist()
        [0.0, 0.5, 1.125]
        >>> rule.predict_prefixes(X, y).tolist()
        [0.0, 0.5, 1.125]

    Source: Yang, Wang, Zhang, Shen and Kim (2024), for the delta rule.
    """
    if not isinstance(predictor, _Recurrent | Mesa):
        wanted = "DeltaRule, GatedLinearAttention or Mesa"
        raise ValueError(f"predictor: expected {wanted}, got {one_line(predictor)}")
    check_positive_int("chunk_size", chunk_size)
    check_shape("X", X, ("P", "d"))
    check_shape("y", y, X.shape[:1])
    X_query = X if X_query is None else X_query
    check_shape("X_query", X_query, X.shape)
    X, y, X_query = as_floats(X, y, X_query)
    (P, d), C = X.shape, min(chunk_size, max(len(y), 1))
    rows = X, y, X_query, predictor.prefix_sizes(y)
    # Rows of zeros after the last point change no answer before them.
    padded = (jnp.pad(r, ((0, -P % C), *((0, 0),) * (r.ndim - 1))) for r in rows)
    chunks = tuple(jnp.reshape(r, (-1, C, *r.shape[1:])) for r in padded)

    def step(state, chunk):
        return predictor.chunk(state, *chunk)

    found = jax.lax.scan(step, predictor.start(d, X.dtype), chunks)[1]
    return jnp.ravel(found)[:P]


def _faded(gate: Array, n: int) -> Array:
    """What example j counts before example i: g^(i - 1 - j) for j < i, else 0."""
    age = jnp.arange(n)[:, None] - 1 - jnp.arange(n)[None]
    return jnp.where(age >= 0, gate ** jnp.maximum(age, 0), 0)
