"""Families of algorithms with parameters to tune, as rows of a table."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import checked, positive, scalar
from icltheory._core import Record
from icltheory._typing import Array, Float
from icltheory.regression import (
    Averaging,
    Bayes,
    DeltaRule,
    DiscreteMMSE,
    Lasso,
    LeastSquares,
    LinearPopulation,
    NearestNeighbors,
    Newton,
    Predictor,
    Ridge,
    Steps,
    TaskPool,
    Zero,
)
from icltheory.regression._linalg import einsum
from icltheory.regression.predictors import LinearInLabels

_MOST_STEPS = 64
_STEPS = (*range(1, 13), 16, 24, 32, 48, _MOST_STEPS)


class Scale(NamedTuple):
    """Sizes of the prompts, in whose units the grids of parameters are."""

    top: Any  # mean of the largest eigenvalue of X'X / N
    size: Any  # mean of |x|^2
    label: Any  # mean of y^2
    count: Any  # N, or 1 without examples


class Parameter(NamedTuple):
    """A positive parameter: its name and the grid on which tuning begins.

    ``count`` values from ``low`` to ``high``, evenly in the logarithm, in units of
    ``unit(scale)``; ``most`` bounds it.
    """

    name: str
    low: float
    high: float
    count: int
    unit: Callable[[Scale], Any] = lambda scale: 1.0
    most: float = np.inf

    def grid(self, scale: Scale) -> Array:
        """Logarithms of the values."""
        places = np.linspace(np.log(self.low), np.log(self.high), self.count)
        return jnp.asarray(places) + jnp.log(self.unit(scale))


class Family(Record):
    """A family of predictors with positive parameters and at most one count.

    A subclass has ``path(values, state, x_query)``, the answers for all ``counts`` at
    once, where ``state = prepare(X, y)`` is found once for each prompt, and
    ``member(values, count)``, the predictor itself.
    """

    name: str = eqx.field(static=True)
    parameters: tuple[Parameter, ...] = eqx.field(static=True, default=(), kw_only=True)
    counts: tuple[int, ...] = eqx.field(static=True, default=(1,), kw_only=True)
    count_name: str = eqx.field(static=True, default="", kw_only=True)

    def prepare(self, X: Array, y: Array) -> Any:
        """What is computed once for a prompt."""
        return X, y

    @abc.abstractmethod
    def path(self, values: Array, state: Any, x_query: Array) -> Float[Array, " K"]:
        """Answers for all counts."""

    @abc.abstractmethod
    def member(self, values: Any, count: int) -> Predictor:
        """The member with these parameters."""

    def described(self, values: Any, count: int) -> dict[str, Any]:
        """The parameters by name."""
        known = {self.count_name: count} if self.count_name else {}
        names = [parameter.name for parameter in self.parameters]
        return known | dict(zip(names, map(float, values), strict=True))


class Rule(Family):
    """Predictors made by a function of their parameters, ``make(*given, *values)``.

    Example:
        >>> penalty = Parameter("penalty", 0.01, 10.0, 5)
        >>> ridge = Rule("ridge", Ridge, parameters=(penalty,))
        >>> ridge.member([0.25], 1)
        Ridge(penalty=0.25)
    """

    make: Callable[..., Predictor] = eqx.field(static=True)
    given: tuple[Any, ...] = ()

    def path(self, values: Array, state: Any, x_query: Array) -> Float[Array, " K"]:
        """The answer of the one member."""
        X, y = state
        return self.make(*self.given, *values).answer(X, y, x_query)[None]

    def member(self, values: Any, count: int) -> Predictor:
        """The predictor."""
        return self.make(*self.given, *values)


class Filters(Family):
    r"""Weights that are a function of the spectrum of X'X / N, all counts at once.

    .. math:: \hat w = V \phi(\lambda) V^\top X^\top y / N , \qquad
        X^\top X / N = V \mathrm{diag}(\lambda) V^\top .

    ``filters(values, eigenvalues, N)`` returns phi for the counts ``first``, ``first``
    + 1, ..., and ``make(values, count)`` the predictor; ``None`` is :class:`Filtered`.
    """

    filters: Callable[..., Array] = eqx.field(static=True)
    make: Callable[..., Predictor] | None = eqx.field(static=True, default=None)
    first: int = eqx.field(static=True, default=1)

    def prepare(self, X: Array, y: Array) -> Any:
        """Filters need the eigenvectors V, lambda, V'X'y / N, and N."""
        return (*_spectrum(X, y), max(len(X), 1))

    def path(self, values: Array, state: Any, x_query: Array) -> Float[Array, " K"]:
        """The answers <w, x> for all counts."""
        V, eigenvalues, moment, count = state
        phi = self.filters(values, eigenvalues, count)[
            np.array(self.counts) - self.first
        ]
        return einsum("kd,d,d->k", phi, moment, einsum("de,d->e", V, x_query))

    def member(self, values: Any, count: int) -> Predictor:
        """The predictor."""
        if self.make is not None:
            return self.make(values, count)
        place = count - self.first + 1
        return Filtered(self.filters, jnp.asarray(values), place)


class Filtered(LinearInLabels):
    r"""The weight :math:`V \phi(\lambda) V^\top X^\top y / N` of filter ``count``.

    The filters count from 1.
    """

    filters: Callable[..., Array] = eqx.field(static=True)
    values: Any
    count: int = eqx.field(static=True, default=1)

    def weights(self, X: Array, y: Array) -> Array:
        """V phi V'X'y / N."""
        V, eigenvalues, moment = _spectrum(X, y)
        phi = self.filters(self.values, eigenvalues, max(len(X), 1))[self.count - 1]
        return einsum("de,e->d", V, phi * moment)


def _spectrum(X, y):
    count = max(len(X), 1)
    eigenvalues, V = jnp.linalg.eigh(einsum("ni,nj->ij", X, X) / count)
    moment = einsum("nd,n->d", X, y) / count
    return V, jnp.maximum(eigenvalues, 0), einsum("de,d->e", V, moment)


def _descent(values, eigenvalues, count):
    (eta,) = values

    def step(phi, _):
        phi = phi + eta * (1 - eigenvalues * phi)
        return phi, phi

    zeros = jnp.zeros_like(eigenvalues)
    return jax.lax.scan(step, zeros, length=_MOST_STEPS)[1]


def _descent_plus(values, eigenvalues, count):
    eta, gamma = values

    def step(state, _):
        phi, left, size = state  # left: of the residual, size: of the inputs
        now = eigenvalues * size**2
        phi = phi + eta * size**2 * left
        state = phi, left * (1 - eta * now), size * (1 - gamma * now)
        return state, phi

    ones = jnp.ones_like(eigenvalues)
    return jax.lax.scan(step, (0 * ones, ones, ones), length=8)[1]


def _newton(values, eigenvalues, count):
    (scale,) = values
    gram = count * eigenvalues
    size = jnp.sqrt(jnp.sum(gram**4))
    start = scale * gram / jnp.where(size > 0, size, 1)

    def step(inverse, _):
        return 2 * inverse - inverse**2 * gram, count * inverse

    return jax.lax.scan(step, start, length=17)[1]


def _ridge(values, eigenvalues, count):
    return 1 / (eigenvalues + values[0] / count)[None]


class KernelSmoother(Predictor):
    r"""The mean of the labels weighted by a Gaussian kernel; softmax attention.

    .. math:: \hat y = \frac{\sum_i k(x_i, x)\, y_i}{\sum_i k(x_i, x)}, \qquad
        k(x, x') = e^{-|x - x'|^2 / 2 h^2} .

    No examples predict 0. Source: Nadaraya (1964); Watson (1964).
    """

    width: Any

    def __post_init__(self):
        self.width = checked("width", self.width, scalar & positive)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The weighted mean."""
        if not len(y):
            return jnp.zeros((), y.dtype)
        closeness = -jnp.sum((X - x_query[None]) ** 2, axis=1) / (2 * self.width**2)
        return jnp.sum(jax.nn.softmax(closeness) * y)


class KernelRidge(Predictor):
    r"""Ridge regression with a Gaussian kernel.

    .. math:: \hat y = k(x)^\top (K + \lambda I)^{-1} y, \qquad
        k(x, x') = e^{-|x - x'|^2 / 2 h^2} .

    Source: Cheng et al. (2024), for kernels in context.
    """

    width: Any
    penalty: Any

    def __post_init__(self):
        self.width = checked("width", self.width, scalar & positive)
        self.penalty = checked("penalty", self.penalty, scalar & positive)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The answer."""

        def kernel(A, B):
            squares = jnp.sum((A[:, None] - B[None]) ** 2, axis=-1)
            return jnp.exp(-squares / (2 * self.width**2))

        K = kernel(X, X) + self.penalty * jnp.eye(len(X), dtype=X.dtype)
        factor = jnp.linalg.cholesky(K), True
        return jnp.sum(
            kernel(x_query[None], X)[0] * jax.scipy.linalg.cho_solve(factor, y)
        )


class Neighbors(Family):
    """The k nearest neighbours, for all k at once."""

    def path(self, values: Array, state: Any, x_query: Array) -> Float[Array, " K"]:
        """Mean labels of the nearest."""
        X, y = state
        if not len(y):
            return jnp.zeros(len(self.counts), y.dtype)
        order = jnp.argsort(jnp.sum((X - x_query[None]) ** 2, axis=1))
        means = jnp.cumsum(y[order]) / jnp.arange(1, len(y) + 1)
        return means[np.minimum(np.array(self.counts), len(y)) - 1]

    def member(self, values: Any, count: int) -> Predictor:
        """The predictor."""
        return NearestNeighbors(count)


def _same(predictor):
    return predictor


def _step_unit(scale):
    return 1 / scale.top


_STEP_SIZE = Parameter("step size", 0.02, 2.5, 20, _step_unit)
_INPUT_STEP = Parameter("input step", 0.005, 0.5, 7, _step_unit)
_SCALE = Parameter("initial scale", 0.1, 1.9, 9, most=2.0)
_PENALTY = Parameter("penalty", 1e-4, 10.0, 16, lambda s: s.top * s.count)
_WIDTH = Parameter("width", 0.1, 3.0, 9, lambda s: jnp.sqrt(s.size))
_WIDER = Parameter("width", 0.3, 10.0, 5, lambda s: jnp.sqrt(s.size))
_KERNEL_PENALTY = Parameter("penalty", 1e-3, 1.0, 4)
_GATE = Parameter("gate", 0.5, 1.0, 5, most=1.0)
_LASSO = Parameter("penalty", 1e-3, 1.0, 7, lambda s: jnp.sqrt(s.label * s.top))
_NOISE = Parameter("noise_var", 1e-3, 1.0, 7, lambda s: s.label)


def fixed(name: str, predictor: Predictor) -> Family:
    """A predictor without parameters as a family."""
    return Rule(name, _same, (predictor,))


# Rows from the simplest to the most general: of two that are equally close the first
# with the fewest parameters is named.
FAMILIES = (
    fixed("zero", Zero()),
    fixed("averaging", Averaging()),
    fixed("least squares", LeastSquares()),
    Filters(
        "gradient descent",
        _descent,
        lambda values, count: Steps(jnp.broadcast_to(values[0], count)),
        parameters=(_STEP_SIZE,),
        counts=_STEPS,
        count_name="steps",
    ),
    Filters(
        "GD++",
        _descent_plus,
        parameters=(_STEP_SIZE._replace(count=10), _INPUT_STEP),
        counts=tuple(range(1, 9)),
        count_name="steps",
    ),
    Filters(
        "Newton",
        _newton,
        lambda values, count: Newton(count, values[0]),
        first=0,
        parameters=(_SCALE,),
        counts=tuple(range(17)),
        count_name="steps",
    ),
    Filters(
        "ridge", _ridge, lambda values, count: Ridge(values[0]), parameters=(_PENALTY,)
    ),
    Rule("Lasso", Lasso, parameters=(_LASSO,)),
    Neighbors("nearest neighbours", counts=tuple(range(1, 9)), count_name="k"),
    Rule("kernel smoother", KernelSmoother, parameters=(_WIDTH,)),
    Rule("delta rule", DeltaRule, parameters=(_STEP_SIZE, _GATE)),
    Rule("kernel ridge", KernelRidge, parameters=(_WIDER, _KERNEL_PENALTY)),
)


def families_for(source: Any) -> tuple[Family, ...]:
    """The standard families, and what is optimal for the source where that is known.

    Example:
        >>> names = [f.name for f in families_for(LinearPopulation.isotropic(2))]
        >>> names[-2:], len(names)
        (['kernel ridge', 'Bayes'], 13)
    """
    if isinstance(source, LinearPopulation) and source.fourth_moment is None:
        return (*FAMILIES, fixed("Bayes", Bayes(source)))
    if isinstance(source, TaskPool) and isinstance(source.task, LinearPopulation):
        prior = fixed("Bayes without pool", Bayes(source.task))
        own = (source.pool,)
        pool = Rule("pool posterior", DiscreteMMSE, own, parameters=(_NOISE,))
        return (*FAMILIES, prior, pool)
    return FAMILIES
