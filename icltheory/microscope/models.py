"""Models of any framework: their answers, and how these respond to the prompt."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from icltheory._checks import check_positive_int, wrong
from icltheory._core import Record
from icltheory._typing import Array
from icltheory.batching import in_batches
from icltheory.regression import Predictor, PrefixPrompt, Prompt
from icltheory.regression.measures import draw_prompts
from icltheory.regression.predictors.base import predictor_of

# Of central differences, relative to the size of the labels or of the query: the error
# of the formula, h^2, and that of rounding, eps / h, are then equal in size.
_STEP = float(np.finfo(float).eps) ** (1 / 3)


class Responses(Record):
    r"""Answers of a model to S prompts, and their first derivatives.

    .. math:: f, \quad f(X, 0, x), \quad f(X, y, 0), \quad
        a = \partial f / \partial y, \quad b = \partial f / \partial x .

    Args:
        answers: f, ``(S,)``.
        without_labels: f(X, 0, x), ``(S,)``.
        at_origin: f(X, y, 0), ``(S,)``.
        label_weights: a, ``(S, N)``.
        query_weights: b, the induced weight, ``(S, d)``.

    Source: Akyurek et al. (2023), Section 4.1.
    """

    answers: Any
    without_labels: Any
    at_origin: Any
    label_weights: Any
    query_weights: Any


class WithParams(Predictor):
    """A function of (params, X, y, x_query), with its parameters, as a predictor.

    Models that share the function and differ in parameters are compiled once.

    Example:
        >>> model = WithParams(lambda w, X, y, x: w @ x, np.array([1.0, 2.0]))
        >>> float(model.predict(np.ones((3, 2)), np.ones(3), np.ones(2)))
        3.0
    """

    function: Callable[..., Any] = eqx.field(static=True)
    params: Any

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """What the function returns."""
        return self.function(self.params, X, y, x_query)


class _Hosted(Predictor):
    """A model outside JAX, as a predictor: NumPy arrays in, numbers out."""

    function: Callable[..., Any] = eqx.field(static=True)
    batched: bool = eqx.field(static=True, default=False)

    def __post_init__(self):
        if not callable(self.function):
            raise wrong("function", "one of (X, y, x_query)", self.function)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The model's answer, by a callback of JAX that gets whole batches."""

        def host(*given):
            given = [np.asarray(array) for array in given]
            batch, kind = given[1].shape[:-1], given[1].dtype
            size, axes = math.prod(batch), len(batch)
            rows = (array.reshape(size, *array.shape[axes:]) for array in given)
            return self.call(*rows).reshape(batch).astype(kind)

        # An error inside a callback is many lines long: a trial comes first.
        normal, shapes = np.random.default_rng(0).normal, map(np.shape, (X, y, x_query))
        self.call(*(normal(size=(2, *shape)).astype(y.dtype) for shape in shapes))
        one, method = jax.ShapeDtypeStruct((), y.dtype), "broadcast_all"
        return jax.pure_callback(host, one, X, y, x_query, vmap_method=method)

    @abc.abstractmethod
    def call(self, X: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> np.ndarray:
        """Answers of a batch."""

    @abc.abstractmethod
    def gradients(self, X: Any, y: Any, x_query: Any) -> tuple[Any, Any]:
        """Derivatives by the labels and by the query of a batch."""

    def _mapped(self, X, y, x_query):
        if self.batched:
            return self.function(X, y, x_query)
        return [self.function(*one) for one in zip(X, y, x_query, strict=True)]


class NumpyModel(_Hosted):
    """A model written in NumPy, whose derivatives are central differences.

    ``function(X, y, x_query)`` answers one prompt, or with ``batched`` a batch of them,
    (B, N, d), (B, N) and (B, d), in (B,). A prompt is answered 2 (N + d) + 3 times, so
    use a batched function or few prompts. As a predictor it has a risk and bounds.

    Example:
        >>> model = NumpyModel(lambda X, y, x: y.mean())
        >>> ones = np.ones((1, 2, 1)), np.ones((1, 2)), np.ones((1, 1))
        >>> prompt = Prompt(*map(jax.numpy.asarray, ones), jax.numpy.zeros(1), None)
        >>> responses(model, prompt).label_weights.round(6).tolist()
        [[0.5, 0.5]]
    """

    def call(self, X: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> np.ndarray:
        """Answers of a batch."""
        return _checked(np.asarray(self._mapped(X, y, x_query), float), X)

    def gradients(self, X: Any, y: Any, x_query: Any) -> tuple[Any, Any]:
        """Central differences, one coordinate of all prompts after the other."""

        def by(at, answers):
            if not at.size:
                return np.zeros_like(at)
            h = _STEP * (float(np.sqrt(np.mean(at**2))) or 1.0)  # 1 where all are 0
            moves = h * np.eye(at.shape[1])
            found = [(answers(at + e) - answers(at - e)) / (2 * h) for e in moves]
            return np.stack(found, axis=1)

        by_label = by(y, lambda y: self.call(X, y, x_query))
        return by_label, by(x_query, lambda x: self.call(X, y, x))


class TorchModel(_Hosted):
    """A model written in PyTorch, differentiated by PyTorch.

    ``function(X, y, x_query)`` takes tensors of the dtype of the prompts and returns a
    tensor: a scalar for one prompt, or with ``batched`` (B,) for a batch, whose prompts
    must not influence each other.

    Example::

        found = identify(TorchModel(model, batched=True), source, num_examples=10,
                         key=jax.random.key(0))
    """

    def __post_init__(self):
        super().__post_init__()
        try:
            import torch  # noqa: F401 - used by the methods
        except ImportError:
            raise ImportError("TorchModel needs torch: pip install torch") from None

    def call(self, X: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> np.ndarray:
        """Answers of a batch."""
        import torch

        with torch.no_grad():
            found = self._stacked(*map(torch.tensor, (X, y, x_query)))
            return _checked(found.cpu().numpy(), X)

    def gradients(self, X: Any, y: Any, x_query: Any) -> tuple[Any, Any]:
        """PyTorch's own gradients of the sum of the answers."""
        import torch

        X, y, x = map(torch.tensor, (X, y, x_query))
        y.requires_grad_()
        x.requires_grad_()
        total = self._stacked(X, y, x).sum()
        found = torch.autograd.grad(total, (y, x), materialize_grads=True)
        return tuple(part.numpy() for part in found)

    def _stacked(self, X, y, x_query) -> Any:
        import torch

        found: Any = self._mapped(X, y, x_query)
        return found if self.batched else torch.stack([f.reshape(()) for f in found])


def responses(model: Any, prompt: Any, *, batch_size: int = 256) -> Responses:
    r"""Answers of a model to prompts, with their derivatives.

    .. math:: a = \partial f / \partial y, \qquad b = \partial f / \partial x .

    Of a JAX function or a predictor by one vector-Jacobian product a prompt.

    Args:
        model: A predictor, a JAX function of one prompt (X (N, d), y (N,), x (d,)), or
            a :class:`NumpyModel` or :class:`TorchModel`.
        prompt: A batch of prompts with one query each.
        batch_size: Prompts answered side by side by a JAX model.

    Example:
        >>> from icltheory.regression import Averaging
        >>> ones = np.ones((1, 2, 1)), np.ones((1, 2)), np.ones((1, 1))
        >>> prompt = Prompt(*map(jax.numpy.asarray, ones), jax.numpy.zeros(1), None)
        >>> responses(Averaging(), prompt).label_weights.tolist()
        [[0.5, 0.5]]

    Source: Akyurek et al. (2023), Section 4.1.
    """
    check_positive_int("batch_size", batch_size)
    X, y, x = prompt.X, prompt.y, prompt.x_query
    if isinstance(model, _Hosted):
        X, y, x = map(np.asarray, (X, y, x))
        given = model.call(X, y, x), model.call(X, 0 * y, x), model.call(X, y, 0 * x)
        return Responses(*given, *model.gradients(X, y, x))
    learner = predictor_of(model)
    run = functools.partial(_respond, learner)
    return Responses(*in_batches(run, batch_size, X, y, x))


@jax.jit
def _respond(learner, X, y, x_query):
    def one(X, y, x):
        value, found = jax.value_and_grad(learner.answer, (1, 2))(X, y, x)
        zeros = learner.answer(X, 0 * y, x), learner.answer(X, y, 0 * x)
        return value, *zeros, *found

    return jax.vmap(one)(X, y, x_query)


def draw(source: Any, num_examples: int, num_prompts: int, key: Any) -> PrefixPrompt:
    """Draws prompts with a query after each of 0, ..., ``num_examples`` examples."""
    if isinstance(source, Prompt):
        source = source.prefixes()
    if not isinstance(source, PrefixPrompt):
        return draw_prompts(source, key, num_examples, num_prompts, prefixes=True)
    if source.num_points <= num_examples:
        raise ValueError(
            f"num_examples: expected fewer than the prompts' {source.num_points} "
            f"points, got {num_examples}"
        )
    return source


def _checked(found: np.ndarray, X: np.ndarray) -> np.ndarray:
    if found.shape != X.shape[:1]:
        raise ValueError(
            f"what the model returns: expected one number per prompt, {X.shape[:1]}, "
            f"got {found.shape}"
        )
    return found
