"""What a predictor is: a value that maps labelled examples and a query to an answer."""

import abc
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_shape, one_line
from icltheory._core import OF_USER, Record, calculator, exact_products
from icltheory._typing import Array, Float
from icltheory.regression._linalg import as_floats, dot
from icltheory.regression.drift import correlation, population_of


class NoClosedForm(ValueError):
    """A predictor has no exact risk on this population; ``estimate_risk`` has one."""


class Predictor(Record):
    """A learner in context: examples and a query in, an answer out.

    A subclass has the method ``answer``, and ``answers`` where all prefixes cost less
    together. ``exact_risk(population, num_examples)`` and ``risk_given(population, X)``
    are the risks that it knows, without the noise of the query's label; the exact risk
    is for Gaussian inputs, unless ``of_any_inputs``, and for tasks that drift only if
    ``of_drifting_tasks``.
    """

    of_any_inputs = False
    of_drifting_tasks = False

    @calculator
    def predict(self, X: Any, y: Any, x_query: Any) -> Float[Array, ""]:
        """Answers a query after all examples: X (N, d), y (N,), x_query (d,)."""
        check_shape("X", X, ("N", "d"))
        check_shape("y", y, np.shape(X)[:1])
        check_shape("x_query", x_query, np.shape(X)[1:])
        return self.answer(*as_floats(X, y, x_query))

    @calculator
    def predict_prefixes(
        self, X: Any, y: Any, X_query: Any = None
    ) -> Float[Array, " P"]:
        """Answers a query after the first k = 0, ..., P - 1 examples.

        Query k is row k of ``X_query``, or of ``X`` if that is ``None``.
        """
        X_query = X if X_query is None else X_query
        check_shape("X", X, ("P", "d"))
        check_shape("y", y, np.shape(X)[:1])
        check_shape("X_query", X_query, np.shape(X))
        return self.answers(*as_floats(X, y, X_query))

    def check_exact(self, population: Any, num_examples: Any) -> None:
        """Raises :class:`NoClosedForm` where the exact risk is not known."""
        if not hasattr(self, "exact_risk"):
            raise NoClosedForm(
                f"predictor: expected one with an exact risk, got {type(self).__name__}"
                ": use estimate_risk(predictor, source, num_examples, key=...)"
            )
        if not self.of_any_inputs:
            check_gaussian(population)

    @abc.abstractmethod
    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """Answers one query; arrays of one floating dtype, N may be 0."""

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        """Answers of all prefixes, one prefix after the other."""
        found = [self.answer(X[:k], y[:k], X_query[k]) for k in range(len(y))]
        return jnp.stack(found) if found else jnp.zeros_like(y)


class LinearPredictor(Predictor):
    """A predictor whose answer is linear in the query: it finds a weight vector."""

    @abc.abstractmethod
    def weights(self, X: Array, y: Array) -> Array:
        """The weight, ``(d,)``."""

    def prefix_weights(self, X: Array, y: Array) -> Array:
        """Weights of all prefixes, ``(P, d)``."""
        found = [self.weights(X[:k], y[:k]) for k in range(len(y))]
        return jnp.stack(found) if found else jnp.zeros_like(X)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """<w, x>."""
        return dot(self.weights(X, y), x_query)

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        """<w_k, x_k>."""
        return dot(self.prefix_weights(X, y), X_query)


class LinearInLabels(LinearPredictor):
    r"""A predictor whose weight is linear in the labels, :math:`\hat w = b + L y`.

    Its risk given the inputs is exact: with :math:`D = L X - I`,

    .. math:: R(X) = |b + D \beta^*|_H^2 + \mathrm{tr}(H D \Psi D^\top)
        + \sigma^2\, \mathrm{tr}(H L L^\top) .

    Where the tasks drift, with correlations :math:`1 - q_{ij}` of the examples and the
    query, the middle term is less by :math:`\sum_{ij} q_{ij}\, L_i^\top H L_j\,
    x_i^\top \Psi x_j - 2 \sum_i q_{i,N+1}\, x_i^\top \Psi H L_i`.
    """

    def response(self, X: Array) -> Array:
        """The matrix L, ``(d, N)``."""
        start = self.weights(X, jnp.zeros_like(X[:, 0]))
        eye = jnp.eye(len(X), dtype=X.dtype)
        return jax.vmap(lambda y: self.weights(X, y) - start, out_axes=1)(eye)

    @exact_products
    def risk_given(self, population: Any, X: Array) -> Array:
        """The risk given the example inputs, without the noise of the query."""
        start = self.weights(X, jnp.zeros_like(X[:, 0]))
        L = self.response(X)
        D = L @ X - jnp.eye(X.shape[1], dtype=X.dtype)
        p, a = population_of(population)
        missed, X_Psi = start + D @ p.task_mean, X @ p.task_cov
        spread = D @ p.task_cov @ D.T + p.noise_var * L @ L.T
        if p is not population:
            lost = 1 - correlation(a, len(X))
            cross = L * lost[-1, :-1][None] @ X_Psi
            spread += cross + cross.T - L @ (lost[:-1, :-1] * (X_Psi @ X.T)) @ L.T
        return jnp.sum(p.input_cov * (spread + jnp.outer(missed, missed)))

    def risks_given(self, population: Any, X: Array) -> Array:
        """The same after every prefix of the inputs."""
        return jnp.stack([self.risk_given(population, X[:k]) for k in range(len(X))])


@contextlib.contextmanager
def noted(name: str, **arrays: Any) -> Iterator[None]:
    """Adds to an error of a user's function what it was called with."""
    try:
        yield
    except Exception as error:
        shapes = ", ".join(f"{n} {np.shape(v)}" for n, v in arrays.items())
        error.add_note(
            f"{OF_USER}{name}, called with {shapes}: it is traced and batched by JAX, "
            "with jax.numpy in place of NumPy and no float() or if on values; a model "
            "of NumPy or PyTorch is a microscope.NumpyModel or microscope.TorchModel"
        )
        raise


class Function(Predictor):
    """A function of one prompt, ``function(X, y, x_query)``, as a predictor."""

    function: Callable[..., Any] = eqx.field(static=True)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """What the function returns."""
        with noted("predictor", X=X, y=y, x_query=x_query):
            found = self.function(X, y, x_query)
        check_shape("what the predictor returns", found, ())
        return jnp.asarray(found, y.dtype)


def check_gaussian(population: Any) -> None:
    """Raises for a population whose inputs are known by their moments alone."""
    if getattr(population, "fourth_moment", None) is not None:
        raise NoClosedForm(
            "population: expected Gaussian inputs, got a fourth_moment, which only the "
            "risk and the optimum of one linear step from zero use"
        )


def predictor_of(predictor: Any) -> Predictor:
    """Returns a predictor as it is, and a function of (X, y, x_query) as one."""
    if isinstance(predictor, Predictor):
        return predictor
    if callable(predictor) and not isinstance(predictor, type):
        return Function(predictor)
    hint = ": pass its method predict" if hasattr(predictor, "predict") else ""
    if isinstance(predictor, type):
        hint = f": make one, {predictor.__name__}(...)"
    raise ValueError(
        "predictor: expected a predictor or a function of (X, y, x_query), got "
        f"{one_line(predictor)}{hint}"
    )


def shift_down(rows: Array) -> Array:
    """Shifts rows down by one, which makes an inclusive sum exclusive."""
    return jnp.concatenate([jnp.zeros_like(rows[:1]), rows[:-1]])


def before(num_points: int) -> Array:
    """Mask (P, P): entry (k, i) is true when example i is among the first k."""
    return jnp.tril(jnp.ones((num_points, num_points), bool), -1)


def prefix_counts(y: Array) -> Array:
    """Numbers of examples of all prefixes, with 1 in place of 0."""
    return jnp.maximum(jnp.arange(len(y)), 1).astype(y.dtype)
