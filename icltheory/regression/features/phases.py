"""Times at which a query attends to its own feature, and is predicted correctly."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_nonnegative
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int
from icltheory.regression.features.descent import FeaturePath

__all__ = ["FeaturePhases", "feature_phases"]


@pytree
class FeaturePhases:
    """Times of the phases of every query; infinite beyond the end of the path.

    Args:
        overtaken: When attention on the own feature exceeds that on any other for good,
            ``(K,)``.
        half: When it exceeds 1/2, ``(K,)``.
        learned: When the loss of the query falls below the level, ``(K,)``.
        shed: Smallest logit of another feature along the path: how far the strongest
            competitor was pushed down, ``(K,)``.

    Source: Huang et al. (2024), phases of imbalanced features.
    """

    overtaken: Float[Array, " K"]
    half: Float[Array, " K"]
    learned: Float[Array, " K"]
    shed: Float[Array, " K"]


@calculator
def feature_phases(
    path: FeaturePath, loss_level: Real[ArrayLike, ""] = 1e-2
) -> FeaturePhases:
    """Times of the phases, by linear interpolation between records.

    A query of a dominant feature is ahead from the start. That of a rare feature first
    sheds the dominant one, then grows its own logit, and is learned much later.

    Args:
        path: The path of gradient descent.
        loss_level: Loss at which a query counts as learned.

    Returns:
        Times in steps.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.regression.features import FeaturePopulation, feature_descent
        >>> pop = FeaturePopulation.infinite(jnp.array([0.8, 0.2]))
        >>> found = feature_phases(feature_descent(pop, 1.0, 300), 0.02)
        >>> found.learned.round().tolist(), found.overtaken.round().tolist()
        ([5.0, 61.0], [0.0, 12.0])

    Source: Huang et al. (2024), phases of imbalanced features.
    """
    check_nonnegative("loss_level", loss_level)
    K = path.logits.shape[1]
    other = jnp.eye(K, dtype=bool)[None]
    own = path.own_attention
    rival = jnp.max(jnp.where(other, -jnp.inf, path.attention), axis=-1)
    shed = jnp.min(jnp.where(other, jnp.inf, path.logits), axis=(0, 2))
    return FeaturePhases(
        overtaken=_crossing(path.steps, rival - own, for_good=True),
        half=_crossing(path.steps, 0.5 - own),
        learned=_crossing(path.steps, path.losses - loss_level),
        shed=shed,
    )


def _crossing(
    steps: Int[Array, " T"], gap: Float[Array, "T K"], *, for_good: bool = False
) -> Array:
    """First or last time at which each column becomes negative, between records."""
    below = gap < 0
    if for_good:  # and stays negative at all later records
        below = jnp.flip(jnp.cumprod(jnp.flip(below, 0), axis=0), 0) > 0
    at = jnp.argmax(below, axis=0)
    column = jnp.arange(gap.shape[1])
    before, after = gap[jnp.maximum(at - 1, 0), column], gap[at, column]
    ran = jnp.where(
        before > 0, before / jnp.where(after == before, 1, before - after), 0
    )
    first = steps[jnp.maximum(at - 1, 0)].astype(gap.dtype)
    length = steps[at].astype(gap.dtype) - first
    found = jnp.where(at == 0, 0.0, first + ran * length)
    return jnp.where(jnp.any(below, axis=0), found, jnp.inf)
