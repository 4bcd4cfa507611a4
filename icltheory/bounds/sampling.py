"""Losses of an in-context learner on both demonstrations of each pair."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_positive_int, check_shape, checked, positive, unit
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.attention.stacks import AttentionStack
from icltheory.batching import wait
from icltheory.constructions import join_tokens, read_prediction

CHUNK = 256  # prompts that are evaluated together
KINDS = (
    "a function of (X, y, x_query), an attention stack or a pair of a model with "
    "`predict` and its parameters"
)


class ClippedSquaredError(Record):
    r"""Squared error, clipped and scaled to [0, 1].

    .. math:: \ell(\hat y, y) = \min\{(\hat y - y)^2, c\} / c .

    Args:
        limit: The largest squared error c.

    Example:
        >>> float(ClippedSquaredError(4.0)(1.0, 0.0))
        0.25
    """

    limit: float | Real[ArrayLike, ""]

    def __post_init__(self):
        self.limit = checked("limit", self.limit, positive)

    def __call__(self, prediction, label) -> Float[Array, "..."]:
        """The loss, elementwise."""
        error = (jnp.asarray(prediction) - label) ** 2
        return jnp.clip(error / self.limit, 0, 1)


@calculator
def sign_error(
    prediction: Real[ArrayLike, "..."], label: Real[ArrayLike, "..."]
) -> Float[Array, "..."]:
    r"""The 0-1 loss of a real prediction for a label of +1 or -1.

    .. math:: \ell(\hat y, y) = 1\{\hat y\, y \le 0\} ,

    1 where the sign is wrong or there is none.

    Example:
        >>> import jax.numpy as jnp
        >>> sign_error(jnp.array([0.3, -0.1]), jnp.array([1.0, 1.0])).tolist()
        [0.0, 1.0]
    """
    check_shape("label", label, jnp.shape(prediction))
    product = jnp.asarray(prediction, float) * jnp.asarray(label)
    return jnp.where(jnp.isnan(product), jnp.nan, (product <= 0).astype(product.dtype))


@calculator(
    compiled=False,
    static=("predictor", "task", "num_examples", "num_prompts", "loss"),
)
def supersample_losses(
    predictor: Any,
    task: Any,
    num_examples: int,
    num_prompts: int,
    loss: Callable[..., Any],
    *,
    key: PRNGKey,
) -> tuple[Float[Array, "B N 2"], Int[Array, "B N"]]:
    r"""Losses of an in-context learner on pairs of demonstrations, and the coins.

    .. math:: \ell_{ik} = \ell\big( f(x_{ik} \mid z_{1 U_1}, \dots, z_{N U_N}), y_{ik}
        \big) , \qquad U_i \in \{0, 1\} \text{ fair} .

    Each prompt has a new task and 2 N points of it, in N pairs. A coin chooses which
    point of pair i is the i-th demonstration. The learner reads these N demonstrations
    and then predicts all 2 N points; a causal model, too, sees its own demonstration
    again as the query, after all N. Returns losses and coins.

    Args:
        predictor: The learner. What has a method ``predict``, such as a predictor of
            :mod:`icltheory.regression`, or a function of ``(X, y, x_query)``, of one
            prompt or of a batch; an attention stack, which predicts minus the label
            slot of the query, with attention sums times 1/N; or a pair ``(model,
            params)`` of a model with a method ``predict``, or ``predict_queries``,
            which reads the demonstrations once for all queries.
        task: What has ``sample(key, num_examples, batch_size)``, such as a task of
            :mod:`icltheory.regression.sources`; or a function of ``(key, num_points,
            batch_size)`` that returns ``X``, ``(B, P, d)``, and ``y``, ``(B, P)``.
        num_examples: Number N of pairs.
        num_prompts: Number B of prompts, evaluated in chunks by one compiled program.
        loss: Elementwise function of predictions and labels with values in [0, 1], such
            as :class:`ClippedSquaredError`.
        key: Typed key.

    Example:
        >>> from icltheory import bounds
        >>> from icltheory.regression import LeastSquares, LinearPopulation
        >>> task = LinearPopulation.isotropic(2, 0.25)
        >>> given = LeastSquares(), task, 4, 2000, ClippedSquaredError(4)
        >>> losses, chosen = supersample_losses(*given, key=jax.random.key(0))
        >>> bound = bounds.supersample_bounds(losses, chosen, levels=16).variance
        >>> bool(0 < bound.error < bound.upper < 1)
        True

    Source: Steinke and Zakynthinou (2020), the supersample.
    """
    check_positive_int("num_examples", num_examples)
    check_positive_int("num_prompts", num_prompts)
    if not callable(loss):
        raise ValueError(f"loss: expected a function, got {loss!r}")
    size = min(num_prompts, CHUNK)
    parts = []
    for chunk in range(-(-num_prompts // size)):
        own = jax.random.fold_in(key, chunk)
        parts.append(_chunk(own, predictor, task, loss, num_examples, size))
        if len(parts) > 1:
            wait(parts[-2])  # limits the queue of programs
    joined = jax.tree.map(lambda *them: jnp.concatenate(them)[:num_prompts], *parts)
    losses, chosen = joined
    return checked("loss", losses, unit), chosen


@eqx.filter_jit
def _chunk(key, predictor, task, loss, N, B):
    """Losses and coins of B prompts."""
    of_points, of_coins = jax.random.split(key)
    X, y = _points(task, of_points, 2 * N, B)
    chosen = jax.random.bernoulli(of_coins, shape=(B, N)).astype(int)
    place = (2 * jnp.arange(N)[None] + chosen)[..., None]
    X_in = jnp.take_along_axis(X, place, axis=1)
    y_in = jnp.take_along_axis(y, place[..., 0], axis=1)
    losses = loss(answers(predictor, X_in, y_in, X), y)
    check_shape("losses of `loss`", losses, (B, 2 * N))
    return losses.reshape(B, N, 2), chosen


def _points(task, key, num_points, batch_size):
    """Draws inputs and labels of one task per prompt."""
    if hasattr(task, "sample"):
        X, y = task.sample(key, num_points - 1, batch_size).points()
    elif callable(task):
        X, y = task(key, num_points, batch_size)
    else:
        kind = type(task).__name__
        raise ValueError(f"task: expected a task or a sampler, got {kind}")
    check_shape("X of the task's points", X, (batch_size, num_points, "d"))
    check_shape("y of the task's points", y, (batch_size, num_points))
    return jnp.asarray(X), jnp.asarray(y)


def answers(predictor: Any, X: Array, y: Array, queries: Array) -> Array:
    """Predictions (B, Q) for queries (B, Q, d) after prompts (B, N, d), (B, N)."""
    if isinstance(predictor, AttentionStack):
        return _each(_read_stack(predictor), X, y, queries)
    if isinstance(predictor, tuple) and len(predictor) == 2:
        return _of_model(*predictor, X, y, queries)
    answers_one = hasattr(predictor, "predict_prefixes")  # as all of regression
    predictor = getattr(predictor, "predict", predictor)
    if not callable(predictor):
        kind = type(predictor).__name__
        raise ValueError(f"predictor: expected {KINDS}, got {kind}")
    one = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (X, y, queries[:, 0])]
    if answers_one or _shape(predictor, one) == ():
        return _each(predictor, X, y, queries)
    return _batches(predictor, X, y, queries)


def _of_model(model, params, X, y, queries):
    """Predictions of a model with separate parameters, as in Flax."""
    if hasattr(model, "predict_queries"):
        return model.apply({"params": params}, X, y, queries, method="predict_queries")
    if not (hasattr(model, "predict") and hasattr(model, "apply")):
        raise ValueError(f"predictor: expected {KINDS}, got {type(model).__name__}")

    def predict(X, y, x_query):
        return model.apply({"params": params}, X, y, x_query, method="predict")

    return _batches(predict, X, y, queries)


def _read_stack(stack: AttentionStack) -> Callable[..., Array]:
    """Predictions of a stack: minus the query's label slot, with scale 1/N."""

    def predict(X, y, x_query):
        tokens = join_tokens(X, y[:, None], x_query)
        out = stack.apply(*tokens, scale=1 / X.shape[0])
        return read_prediction(out.h_query[-1], X.shape[1])[0]

    return predict


def _each(predict, X, y, queries):
    """Predictions of a function of one prompt for all queries."""
    of_prompt = jax.vmap(predict, (None, None, 0))
    return jax.vmap(of_prompt)(X, y, queries)


def _batches(predict, X, y, queries):
    """Predictions of a function of a batch of prompts for all queries."""

    def checked(x_query):
        found = predict(X, y, x_query)
        check_shape("predictions of predictor", found, y.shape[:1])
        return found

    return jax.vmap(checked, 1, 1)(queries)


def _shape(predict, arguments):
    """Returns a result's shape, or ``None`` if the function rejects the arguments."""
    try:
        return getattr(jax.eval_shape(predict, *arguments), "shape", None)
    except (TypeError, ValueError, IndexError):
        return None
