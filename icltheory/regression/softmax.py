"""One layer of softmax attention on regression prompts, to order 1/N and exactly.

A head has scores x_i' B x and values y_i. With many examples it is one gradient step;
with N its mean answer shrinks by the factor 1 - 1 / N_eff, and N_eff is about N e^{-S}
for scores of variance S.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory._checks import (
    check_shape,
    count,
    finite,
    is_tracer,
    nonnegative,
    real,
    scalar,
)
from icltheory._core import Record, calculator, where_valid
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._block_moments import weighted
from icltheory.regression._linalg import as_floats, einsum, finite_floats, is_isotropic
from icltheory.regression._softmax import (
    concentration,
    one_head,
    score_form,
    value_forms,
)
from icltheory.regression.depth import best_matrix
from icltheory.regression.measures import Optimum
from icltheory.regression.population import LinearPopulation, check_linear, step_risk
from icltheory.regression.predictors.base import (
    LinearInLabels,
    NoClosedForm,
    Predictor,
    check_gaussian,
)


class SoftmaxHeads(Predictor):
    r"""A layer of H softmax heads with scores :math:`x_i^\top B_h x` and values y_i.

    .. math:: \hat y = \sum_h v_h \sum_i p_i^h y_i , \qquad
        p_i^h = e^{x_i^\top B_h x} \Big/ \sum_j e^{x_j^\top B_h x} .

    B is ``(H, d, d)``, v ``(H,)``; v = ``None`` is the family of all, for ``optimum``.

    Example:
        >>> pair = SoftmaxHeads.pair(jnp.eye(2), 0.01)
        >>> X, y = jnp.array([[1.0, 0.0], [3.0, 0.0]]), jnp.array([1.0, 2.0])
        >>> x = jnp.array([1.0, 0.0])
        >>> f"{pair.predict(X, y, x):.3f} {DebiasedStep(jnp.eye(2)).predict(X, y, x)}"
        '0.500 0.5'
    """

    B: Any
    values: Any = None
    matrix: tuple = eqx.field(static=True, init=False, repr=False, default=("H",))

    def __post_init__(self):
        (self.B,) = finite_floats(B=real("B", self.B))
        check_shape("B", self.B, (*self.matrix, "d", "d"))
        if self.values is not None:
            (values,) = finite_floats(values=real("values", self.values))
            check_shape("values", values, self.B.shape[:-2])
            self.values = values.astype(self.B.dtype)

    @classmethod
    def pair(cls, Gamma: Any, scale: Any) -> "SoftmaxHeads":
        r"""Heads :math:`\pm c\,\Gamma^\top` with values :math:`\pm 1 / (2c)`.

        As c falls they become :class:`DebiasedStep`, with a difference of order c^2.
        """
        Gamma, half = as_floats(Gamma, 0.5 / scale)
        return SoftmaxHeads(scale * jnp.stack([Gamma.T, -Gamma.T]), [half, -half])

    def heads(self) -> tuple[Array, Array]:
        """B ``(H, d, d)`` and values ``(H,)``; raises for a family."""
        if self.values is None:
            raise ValueError(
                "values: expected numbers, got None: optimum(heads, population, "
                "num_examples).model has the best"
            )
        shape = -1, *self.B.shape[-2:]
        return jnp.reshape(self.B, shape), jnp.reshape(self.values, -1)

    def attention(self, X: Array, x_query: Array) -> Array:
        """Weights of the examples, summed over heads with their values, ``(N,)``."""
        B, values = self.heads()
        scores = einsum("nd,hde,e->hn", X, B.astype(X.dtype), x_query)
        return einsum("h,hn->n", values.astype(X.dtype), jax.nn.softmax(scores, axis=1))

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The mean label under the weights; 0 without examples."""
        if not len(y):
            return jnp.zeros_like(x_query, shape=())
        return einsum("n,n->", self.attention(X, x_query), y)


class SoftmaxHead(SoftmaxHeads):
    r"""One softmax head, :math:`\hat y = v \sum_i p_i y_i`, p_i from the scores.

    With c = E sum p_i^2 and k = E (sum p_i^2)^2 - E sum p_i^3 its moments are exactly

    .. math:: E \hat y = v\, m\, (1 - c) , \qquad E \hat y^2 = v^2 \bigl( m^2 (1 - c
        + 6 k) + (w^\top \Sigma w + \sigma^2)\, c \bigr) , \qquad m = w^\top \Sigma B x

    given w and x. So its ``risk`` is exact at every N where B' Sigma B is proportional
    to the inverse of Sigma. B is ``(d, d)``; v is a number, or
    ``None`` in the family whose v is free, such as ``optimum(SoftmaxHead(jnp.eye(d),
    None), population, N)``.

    Example:
        >>> from icltheory.regression import risk
        >>> head = SoftmaxHead(jnp.eye(5) / 3, 2.5)
        >>> f"{risk(head, LinearPopulation.isotropic(5, 0.25), 100):.3f}"
        '1.070'
    """

    values: Any = 1.0
    matrix: tuple = eqx.field(static=True, init=False, repr=False, default=())

    def check_exact(self, population: LinearPopulation, num_examples: Any) -> None:
        """Raises unless the scores of a query depend on its length alone."""
        super().check_exact(population, num_examples)
        if not _known_isotropic(self, population, True):
            raise NoClosedForm(
                "predictor: expected B' H B proportional to the inverse of input_cov, "
                "else use risk_expansion or estimate_risk(..., key=...)"
            )

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """The risk of isotropic scores, without the noise of the query."""
        v = self.heads()[1][0]
        line, form = one_head(self.B, population, jnp.maximum(k, 1))
        moved = jnp.where(k > 0, v**2 * form - 2 * v * line, 0)
        known = is_isotropic(score_form(self.B, population))
        return where_valid(population.signal + moved, known)


class DebiasedStep(LinearInLabels):
    r"""A gradient step on centred inputs, the limit of :meth:`SoftmaxHeads.pair`.

    .. math:: \hat w = \Gamma\, \frac1N \sum_i (x_i - \bar x)\, y_i .

    For Gaussian inputs the sum has the law of that of x_i y_i over N - 1 examples: the
    risk is that of the linear step (1 - 1/N) Gamma with one example less.

    Example:
        >>> from icltheory.regression import optimum
        >>> population = LinearPopulation.isotropic(5, noise_var=0.25)
        >>> best = optimum(DebiasedStep, population, 20)
        >>> f"{(best.risk - 0.25) / 5:.6f}"  # (d + 1 + s2) / (N + d + s2)
        '0.247525'
    """

    Gamma: Any

    def __post_init__(self):
        (self.Gamma,) = finite_floats(Gamma=real("Gamma", self.Gamma))
        check_shape("Gamma", self.Gamma, ("d", "d"))

    def weights(self, X: Array, y: Array) -> Array:
        """Gamma X'(y - mean y) / N."""
        N = max(len(y), 1)
        mean = einsum("nd,n->d", X, y - jnp.sum(y) / N) / N
        return einsum("ij,j->i", self.Gamma.astype(X.dtype), mean)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of the linear step with one example less."""
        fewer = jnp.maximum(k - 1, 0)
        return step_risk(population, self.Gamma * fewer / jnp.maximum(k, 1), fewer)


class RiskExpansion(Record):
    """A risk to order 1/N, ``limit + first_order / N``, with the query's noise.

    ``first_order`` is inf where the coefficient has no average over the query.
    """

    limit: Scalar
    first_order: Scalar
    num_examples: Scalar

    @property
    def risk(self) -> Scalar:
        """The risk to order 1/N at these examples."""
        return self.limit + self.first_order / self.num_examples


class AnswerExpansion(Record):
    """Moments of an answer to order 1/N, given the task and the query.

    ``limit`` is the answer as N grows, ``effective_examples`` N e^{-S} of each head.
    """

    limit: Scalar
    mean: Scalar
    variance: Scalar
    effective_examples: Float[Array, " H"]


@calculator(integers=("num_examples",), num_examples=count(1), w=finite, x_query=finite)
def answer_expansion(
    head: Any, population: Any, num_examples: Any, *, w: Any, x_query: Any
) -> AnswerExpansion:
    r"""Mean and variance of the answer of softmax heads to order 1/N.

    .. math:: E f = \sum_h v_h m_h \Bigl(1 - \frac{e^{S_{hh}}}{N}\Bigr) , \qquad
        \mathrm{Var} f = \frac1N \sum_{h, k} v_h v_k\, e^{S_{hk}}
        \bigl(w^\top \Sigma w + \sigma^2 + m_h m_k\bigr)

    with b_h = B_h x, :math:`S_{hk} = b_h^\top \Sigma b_k` and :math:`m_h = w^\top
    \Sigma b_h`, given the task w and the query x, ``(d,)`` each.

    Example:
        >>> population = LinearPopulation.isotropic(2)
        >>> head, x = SoftmaxHead(jnp.eye(2) / 2), jnp.array([1.0, 0.0])
        >>> found = answer_expansion(head, population, 100, w=x, x_query=x)
        >>> print(*(f"{x:.4f}" for x in (found.limit, found.mean, found.variance)))
        0.5000 0.4936 0.0161
    """
    B, v = _heads_of(head, population)
    H, N = population.input_cov, jnp.asarray(num_examples, population.dtype)
    for name, value in (("w", w), ("x_query", x_query)):
        check_shape(name, value, (population.dim,))
    w, x = (jnp.asarray(value, H.dtype) for value in (w, x_query))
    b = B @ x
    S, m = b @ H @ b.T, b @ H @ w
    own, noise = jnp.exp(jnp.diagonal(S)), population.noise_var
    spread = jnp.exp(S) * (w @ H @ w + noise + jnp.outer(m, m))
    mean, variance = jnp.sum(v * m * (1 - own / N)), weighted(spread, v) / N
    return AnswerExpansion(jnp.sum(v * m), mean, variance, N / own)


@calculator(integers=("num_examples",), num_examples=count(1))
def risk_expansion(head: Any, population: Any, num_examples: Any) -> RiskExpansion:
    r"""Risk of softmax heads to order 1/N, averaged over tasks and queries.

    .. math:: R = E (f_\infty - t)^2 + \sigma^2 + \frac1N E \Bigl[ \sum_{hk} v_h v_k
        e^{S_{hk}} (\mathrm{tr}(\Sigma M) + \sigma^2 + m_h m_k)
        - 2 (f_\infty - t) \sum_h v_h m_h e^{S_{hh}} \Bigr] + o(1/N)

    with t = <w, x>, f_inf = sum_h v_h m_h and M = E w w'. The averages over x exist
    where 2 B' Sigma B < Sigma^{-1} for every head that has a value: for larger B rare
    queries see one example only, and the excess falls more slowly than 1/N.

    Example:
        >>> population = LinearPopulation.isotropic(4, noise_var=0.25)
        >>> found = risk_expansion(SoftmaxHead(jnp.eye(4) / 2), population, 400)
        >>> print(*(f"{x:.4f}" for x in (found.limit, found.first_order, found.risk)))
        1.2500 41.0000 1.3525
        >>> float(risk_expansion(SoftmaxHead(jnp.eye(4)), population, 400).risk)
        inf
    """
    B, v = _heads_of(head, population)
    forms, zero = value_forms(B, population), population.signal + population.noise_var
    limit = zero - 2 * jnp.sum(forms.line * v) + weighted(forms.form, v)
    first = 2 * jnp.sum(forms.line_1 * v) + weighted(forms.form_1, v)
    exists = jnp.all(forms.exists | (v == 0))
    first = jnp.where(exists, first, jnp.inf)
    return RiskExpansion(limit, first, jnp.asarray(num_examples, limit.dtype))


@calculator(
    integers=("num_examples",), num_examples=count(1), score_var=scalar & nonnegative
)
def effective_examples(score_var: Any, num_examples: Any) -> Scalar:
    r"""Number of examples that softmax weights on scores N(0, S) amount to.

    .. math:: N_{\mathrm{eff}} = \frac{1}{E \sum_i p_i^2} \approx N e^{-S} ,

    by quadrature at any N. A head's mean answer is exactly :math:`m (1 - 1 /
    N_{\mathrm{eff}})`, and the share of the label noise :math:`\sigma^2 /
    N_{\mathrm{eff}}`.

    Example:
        >>> [f"{effective_examples(1.0, N):.4g}" for N in (1, 10, 1000)]
        ['1', '5.136', '370.6']
    """
    (S,) = as_floats(score_var)
    return 1 / concentration(S, jnp.asarray(num_examples, S.dtype))[0]


def best_softmax(family: Any, population: Any, num_examples: Any) -> Optimum:
    """The best temperature, and values where the family has none; or debiased step."""
    if family is DebiasedStep:
        fewer = jnp.maximum(num_examples - 1, 0)
        Gamma, least = best_matrix(population, fewer)
        why = "closed form: the best linear step with one example less"
        model = DebiasedStep(Gamma * num_examples / jnp.maximum(fewer, 1))
        return Optimum(model, least, why)
    one = isinstance(family, SoftmaxHead)
    exact = one and _known_isotropic(family, population, False)
    scale, values, least = _best_scale(family, population, num_examples, exact)
    if not is_tracer(least) and jnp.isnan(least):
        expected = "more than 4, for the order 1/N, and a B that is not 0"
        raise ValueError(f"num_examples: expected {expected}, got {num_examples}")
    model = type(family)(scale * family.B, jnp.reshape(values, family.B.shape[:-2]))
    risks = "exact risks" if exact else "risks to order 1/N, while E e^S <= N/4"
    return Optimum(model, least, f"a search of the scale of B: {risks}")


# Scales of B relative to the largest at which an average over the query exists.
_SMALLEST, _LARGEST, _CANDIDATES, _ROUNDS = 0.02, 1.6, 13, 4


@calculator(static=("exact",), integers=("num_examples",), num_examples=count(1))
def _best_scale(family, population, num_examples, exact):
    B = jnp.reshape(family.B, (-1, *family.B.shape[-2:])).astype(population.dtype)
    forms = jax.vmap(lambda B: score_form(B, population))(B)
    unit = 1 / jnp.sqrt(2 * jnp.max(jnp.linalg.eigvalsh(forms)))
    zero = population.signal + population.noise_var
    N = jnp.asarray(num_examples, zero.dtype)

    def fit(log_scale):
        scaled, usable = jnp.exp(log_scale) * unit * B, True
        if exact:
            line, form = one_head(scaled[0], population, N)
            line, form = line[None], form[None, None]
        else:
            forms = value_forms(scaled, population)
            line, form = forms.line - forms.line_1 / N, forms.form + forms.form_1 / N
            usable = jnp.all(forms.exists & (forms.weight <= N / 4))
        if family.values is not None:
            values = jnp.reshape(family.values, (-1,))
        else:  # truncated at order 1/N the form need not be positive
            usable &= jnp.all(jnp.linalg.eigvalsh(form) > 0)
            safe = jnp.where(usable, form, jnp.eye(len(form), dtype=form.dtype))
            values = jnp.linalg.solve(safe, line)
        risk = zero - 2 * jnp.sum(values * line) + weighted(form, values)
        return jnp.where(usable, risk, jnp.inf), values

    def refine(interval, _):
        grid = jnp.linspace(interval[0], interval[1], _CANDIDATES)
        risks, values = jax.lax.map(fit, grid)
        i, step = jnp.argmin(risks), grid[1] - grid[0]
        return (grid[i] - step, grid[i] + step), (grid[i], values[i], risks[i])

    ends = jnp.log(jnp.array([_SMALLEST, _LARGEST if exact else 1.0], zero.dtype))
    _, found = jax.lax.scan(refine, tuple(ends), length=_ROUNDS)
    log_scale, values, risk = (part[-1] for part in found)
    found = jnp.exp(log_scale) * unit, values, risk
    return where_valid(found, jnp.isfinite(risk))


def _known_isotropic(head, population, unknown):
    check_shape("B", head.B, (population.dim,) * 2)
    fits = is_isotropic(score_form(head.B, population))
    return unknown if is_tracer(fits) else bool(fits)


def _heads_of(head, population):
    if not isinstance(head, SoftmaxHeads):
        raise ValueError(f"head: expected softmax heads, got {type(head).__name__}")
    check_linear("population", population)
    check_gaussian(population)
    B, v = head.heads()
    check_shape("B", B, ("H", population.dim, population.dim))
    return B.astype(population.dtype), v.astype(population.dtype)
