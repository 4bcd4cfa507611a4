"""An exponential moving average of the weights, kept in the optimiser's state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

__all__ = ["AveragedState", "averaged", "with_average"]


class AveragedState(NamedTuple):
    """State of :func:`with_average`.

    Attributes:
        inner: State of the rule whose weights are averaged.
        mean: The mean of the weights.
        count: Updates that it has seen.
    """

    inner: Any
    mean: PyTree
    count: Int[Array, ""]


def with_average(
    inner: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
    r"""Adds an exponential moving average of the weights to an optimiser.

    .. math:: \bar\theta_t = \gamma_t \bar\theta_{t-1} + (1 - \gamma_t) \theta_t,
              \qquad \gamma_t = \min\!\left(\gamma, \frac{t}{t + 9}\right)

    so that the first weights, which were drawn, are forgotten at once. The walk itself
    is the same as without.

    Args:
        inner: Update rule.
        decay: :math:`\gamma`; the mean reaches back about :math:`1/(1-\gamma)` steps.

    Returns:
        An optax transformation; :func:`averaged` reads the mean.

    Example:
        >>> import jax.numpy as jnp
        >>> tx = with_average(optax.sgd(1.0), 0.9)
        >>> w = jnp.ones(())
        >>> updates, state = tx.update(jnp.ones(()), tx.init(w), w)
        >>> round(float(state.mean), 7)  # 0.1 * 1 + 0.9 * 0
        0.1

    Source: Polyak and Juditsky 1992.
    """
    if not 0 < decay < 1:
        raise ValueError(f"average: expected a decay in (0, 1), got {decay}")

    def init(params):
        return AveragedState(inner.init(params), params, jnp.zeros((), jnp.int32))

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("params: expected the weights, got None")
        updates, walked = inner.update(updates, state.inner, params)
        count = state.count + 1
        weight = jnp.maximum(1 - decay, 9 / (count + 9))
        new = optax.apply_updates(params, updates)
        mean = jax.tree.map(
            lambda old, now: old + weight.astype(old.dtype) * (now - old),
            state.mean,
            new,
        )
        return updates, AveragedState(walked, mean, count)

    return optax.GradientTransformation(init, update)


def averaged(state: Any) -> PyTree:
    """Weights for evaluation: the average if the optimiser keeps one, else the last.

    Args:
        state: State of a training, or of an ensemble.

    Returns:
        Parameters of the model.

    Source: Polyak and Juditsky 1992.
    """
    models = getattr(state, "models", state)
    kept = models.opt_state
    return kept.mean if isinstance(kept, AveragedState) else models.params
