"""Losses of an in-context learner on both demonstrations of each pair."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_key, check_positive_int, check_shape
from icltheory._noted import check_positive, check_unit
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.batching import wait
from icltheory.bounds.supersample._learners import answers

__all__ = ["ClippedSquaredError", "sign_error", "supersample_losses"]

# Number of prompts that are evaluated together.
CHUNK = 256


@pytree
class ClippedSquaredError:
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
        check_positive("limit", self.limit)

    def __call__(self, prediction, label) -> Float[Array, "..."]:
        """The loss, elementwise."""
        error = (jnp.asarray(prediction) - label) ** 2
        return jnp.clip(error / self.limit, 0, 1)


@calculator
def sign_error(
    prediction: Real[ArrayLike, "..."], label: Real[ArrayLike, "..."]
) -> Float[Array, "..."]:
    r"""The 0-1 loss of a real prediction for a label of +1 or -1.

    .. math:: \ell(\hat y, y) = 1\{\hat y\, y \le 0\} .

    Args:
        prediction: Predictions.
        label: Labels.

    Returns:
        1 where the sign is wrong or there is none, and 0 elsewhere.

    Example:
        >>> import jax.numpy as jnp
        >>> sign_error(jnp.array([0.3, -0.1]), jnp.array([1.0, 1.0])).tolist()
        [0.0, 1.0]
    """
    check_shape("label", label, jnp.shape(prediction))
    product = jnp.asarray(prediction, float) * jnp.asarray(label)
    return jnp.where(jnp.isnan(product), jnp.nan, (product <= 0).astype(product.dtype))


@calculator(compiled=False)
def supersample_losses(
    key: PRNGKey,
    predictor: Any,
    task: Any,
    num_examples: int,
    num_prompts: int,
    loss: Callable[..., Any],
) -> tuple[Float[Array, "B N 2"], Int[Array, "B N"]]:
    r"""Losses of an in-context learner on pairs of demonstrations, and the coins.

    .. math:: \ell_{ik} = \ell\big( f(x_{ik} \mid z_{1 U_1}, \dots, z_{N U_N}), y_{ik}
        \big) , \qquad U_i \in \{0, 1\} \text{ fair} .

    Each prompt has a new task and 2 N points of it, in N pairs. A coin chooses which
    point of pair i is the i-th demonstration. The learner reads these N demonstrations
    and is then asked for all 2 N points. For a causal model, too, the error on its own
    demonstration is that of the same demonstration asked again as the query, after all
    N demonstrations.

    Prompts are evaluated in chunks by one compiled program, which the next call with
    the same kinds of arguments uses again. A model with a method ``predict_queries``,
    such as :class:`icltheory.models.GPT2`, reads the demonstrations once for all
    queries.

    Args:
        key: Typed key.
        predictor: The learner. A function of ``(X, y, x_query)``, of one prompt or of a
            batch, such as those of :mod:`icltheory.regression.predictors`; an attention
            stack, whose prediction is minus the label slot of the query, with attention
            sums times 1/N; or a pair ``(model, params)`` of a model with a method
            ``predict`` and its parameters.
        task: What has ``sample(key, num_examples, batch_size)``, such as
            :class:`icltheory.regression.tasks.LinearRegression`; or a function of
            ``(key, num_points, batch_size)`` that returns ``X``, ``(B, P, d)``, and
            ``y``, ``(B, P)``: points of one task per prompt.
        num_examples: Number N of pairs.
        num_prompts: Number B of prompts.
        loss: Elementwise function of predictions and labels with values in [0, 1], such
            as :class:`ClippedSquaredError`.

    Returns:
        Losses, ``(B, N, 2)``, and coins, ``(B, N)``.

    Example:
        >>> from icltheory import bounds
        >>> from icltheory.regression import predictors, tasks
        >>> task = tasks.LinearRegression.isotropic(2, 0.25)
        >>> losses, chosen = supersample_losses(
        ...     jax.random.key(0), predictors.ols, task, 4, 2000, ClippedSquaredError(4)
        ... )
        >>> bound = bounds.variance_bound(losses, chosen, levels=16)
        >>> bool(0 < bound.error < bound.upper < 1)
        True

    Source: Steinke and Zakynthinou (2020), the supersample.
    """
    check_key("key", key)
    check_positive_int("num_examples", num_examples)
    check_positive_int("num_prompts", num_prompts)
    if not callable(loss):
        raise ValueError(f"loss: expected a function, got {loss!r}")
    leaves, tree = jax.tree.flatten((predictor, task, loss))
    arrays = [leaf if _is_array(leaf) else None for leaf in leaves]
    static = tuple(None if _is_array(leaf) else leaf for leaf in leaves)
    size = min(num_prompts, CHUNK)
    parts = []
    for chunk in range(-(-num_prompts // size)):
        own = jax.random.fold_in(key, chunk)
        parts.append(_chunk(own, arrays, static, tree, num_examples, size))
        if len(parts) > 1:
            wait(parts[-2])  # limits the queue of programs
    joined = jax.tree.map(lambda *them: jnp.concatenate(them)[:num_prompts], *parts)
    losses, chosen = joined
    check_unit("loss", losses)
    return losses, chosen


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _chunk(key, arrays, static, tree, N, B):
    """Losses and coins of B prompts."""
    pairs = zip(arrays, static, strict=True)
    leaves = [one if array is None else array for array, one in pairs]
    predictor, task, loss = jax.tree.unflatten(tree, leaves)
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


def _is_array(leaf) -> bool:
    return isinstance(leaf, jax.Array) or hasattr(leaf, "__array__")
