"""Objective of pretraining and errors of trained models, over prefixes of a prompt."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from icltheory._checks import check_choice, check_shape, is_tracer, within
from icltheory._core import calculator, exact_products
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import Bayes
from icltheory.regression.sources import PrefixPrompt

LOSSES = {
    "squared": lambda guess, y: jnp.square(guess - y),
    "logistic": lambda guess, y: optax.sigmoid_binary_cross_entropy(guess, (y + 1) / 2),
    "hinge": lambda guess, y: jax.nn.relu(1 - y * guess),
}


def _up_to_points(name, value, given):
    check_shape("y", given["y"], ("B", "P"))
    return within(1, jnp.shape(given["y"])[1])(name, value)


@calculator(static=("loss",), integers=("active_points",), active_points=_up_to_points)
def in_context_loss(
    predictions: Float[Array, "B P"],
    y: Float[Array, "B P"],
    active_points: Int[Array, ""] | int,
    loss: str = "squared",
) -> Float[Array, ""]:
    r"""In-context loss over the active points, Garg's training objective.

    .. math:: \frac{1}{B\,p} \sum_{b=1}^{B} \sum_{k=0}^{p-1} \ell(\hat y_{bk}, y_{bk})

    with :math:`\ell` the ``"squared"`` error, or for labels :math:`y = \pm 1` the
    ``"logistic"`` loss :math:`\log(1 + e^{-y \hat y})` or the ``"hinge"`` loss
    :math:`\max(0, 1 - y \hat y)`. Points beyond the ``active_points`` p are multiplied
    by 0, and must be finite.

    Example:
        >>> import jax.numpy as jnp
        >>> float(in_context_loss(jnp.zeros((1, 3)), jnp.array([[1.0, 2.0, 9.0]]), 2))
        2.5

    Source: Garg et al. 2022, equation (2); Li et al. 2024, Section 2 (hinge).
    """
    check_choice("loss", loss, tuple(LOSSES))
    check_shape("predictions", predictions, y.shape)
    if not len(y):
        raise ValueError(f"y: expected at least one prompt, got shape {y.shape}")
    losses = LOSSES[loss](predictions, y)
    active = (jnp.arange(y.shape[1]) < active_points).astype(losses.dtype)
    return jnp.sum(losses * active[None]) / (y.shape[0] * jnp.sum(active))


@exact_products
def bayes_targets(
    task: Any, X: Float[Array, "B P d"], y: Float[Array, "B P"]
) -> Float[Array, "B P"]:
    r"""Posterior means as targets: the same mean gradient as labels, with less noise.

    .. math:: E\,\nabla_\theta (\hat y_{bk} - y_{bk})^2
              = E\,\nabla_\theta
              \left(\hat y_{bk} - E[y_{bk} \mid x_{bi}, y_{bi}, i<k;\ x_{bk}]\right)^2

    for a :class:`LinearPopulation`, whose noise may be traced. The squared loss then is
    the excess over Bayes, and its gradients vanish together with that excess.

    On a CPU these are those of :class:`~icltheory.regression.Bayes`, a scan over the
    prompt. Elsewhere one triangular factor answers all prefixes in a few
    batched launches.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.regression.population import LinearPopulation
        >>> X, y = jnp.ones((1, 3, 1)), jnp.full((1, 3), 2.0)
        >>> bayes_targets(LinearPopulation.isotropic(1), X, y).round(3).tolist()
        [[0.0, 2.0, 2.0]]

    Source: The tower rule; Zhang et al. 2024, Lemma 6.1 (posterior mean).
    """
    if not isinstance(task, LinearPopulation):
        raise TypeError(f"task: expected a LinearPopulation, got {type(task).__name__}")
    scanned = jax.vmap(Bayes(task).predict_prefixes)
    return jax.lax.platform_dependent(X, y, cpu=scanned, default=_factored(task))


def _factored(task: LinearPopulation) -> Callable[[Array, Array], Array]:
    r"""Posterior means of labels by innovations, where cov(y) = L L^T.

    L is the triangle of the roots, stacked, which is never squared: its condition
    number is that of the inputs. Without noise it has as many columns as dimensions.
    """

    def means(X: Array, y: Array) -> Array:
        mean, root = X @ task.task_mean, task.task_root
        rows = X * root[None, None] if root.ndim == 1 else X @ root
        stacked = rows.mT
        if is_tracer(task.noise_var) or np.asarray(task.noise_var) > 0:
            own = jnp.sqrt(task.noise_var) * jnp.eye(y.shape[1], dtype=y.dtype)
            own = jnp.broadcast_to(own[None], (len(y), *own.shape))
            stacked = jnp.concatenate([stacked, own], axis=1)
        L = jnp.linalg.qr(stacked, mode="r").mT
        rank = L.shape[2]
        z = _solve_lower(L[:, :rank], (y - mean)[:, :rank])
        return mean + (jnp.tril(L, -1) @ z[..., None])[..., 0]

    return means


def _solve_lower(L: Array, b: Array) -> Array:
    """Solves L z = b; z is 0 where a pivot is at rounding level."""
    pivots = jnp.abs(jnp.diagonal(L, axis1=1, axis2=2))
    sizes = jnp.linalg.norm(L, axis=2)
    nothing = pivots <= len(L[0]) * jnp.finfo(L.dtype).eps * sizes
    eye = jnp.eye(L.shape[1], dtype=L.dtype)[None]
    safe = jnp.where(nothing[..., None] & (eye > 0), jnp.inf, L)
    return jax.scipy.linalg.solve_triangular(safe, b[..., None], lower=True)[..., 0]


def prefix_errors(
    model: nn.Module, params: PyTree, prompt: PrefixPrompt, *, batch_size: int = 64
) -> Float[Array, "B P"]:
    r"""Squared errors of a model by prompt and prefix.

    .. math:: e_{bk} = (\hat y_\theta(x_{bk} \mid (x_{bi}, y_{bi})_{i<k}) - y_{bk})^2

    All prefixes come from one pass, also where the query differs from the next example.
    The Flax module is called with ``(X, y)`` where each query is the next example, and
    with ``(X, y, X_query)`` otherwise; it returns ``(B, P)``. ``batch_size`` prompts
    are evaluated at once.

    Source: Garg et al. 2022, Section 3.
    """
    X_query = None if prompt.X_query is prompt.X else prompt.X_query
    predictions = _predict(model, params, prompt.X, prompt.y, X_query, batch_size)
    check_shape("predictions", predictions, jnp.shape(prompt.y_query))
    return jnp.square(predictions - prompt.y_query)


@functools.partial(jax.jit, static_argnames=("model", "batch_size"))
def _predict(model, params, X, y, X_query, batch_size):
    def one(example):
        inputs = jax.tree.map(lambda leaf: leaf[None], example)
        given = inputs if X_query is not None else inputs[:2]
        return model.apply({"params": params}, *given)[0]

    return jax.lax.map(one, (X, y, X_query), batch_size=batch_size)
