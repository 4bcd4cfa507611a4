"""Gradient descent on the logits of the features, in one scan."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._descent import PlainRule, check_steps, descend
from icltheory._noted import check_positive
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int
from icltheory.regression._linalg import Number
from icltheory.regression.features.attention import (
    feature_attention,
    feature_gradient,
    feature_losses,
)
from icltheory.regression.features.population import FeaturePopulation

__all__ = ["FeaturePath", "feature_descent"]


@pytree
class FeaturePath:
    """Attention and losses along gradient descent on features.

    Args:
        steps: Steps taken at each record, from 0 on, ``(T,)``.
        logits: B there, ``(T, K, K)``.
        attention: Mean attention of query k on feature n, ``(T, K, K)``.
        losses: Loss of each query, ``(T, K)``.

    Source: Huang et al. (2024).
    """

    steps: Int[Array, " T"]
    logits: Float[Array, "T K K"]
    attention: Float[Array, "T K K"]
    losses: Float[Array, "T K"]

    @property
    def own_attention(self) -> Float[Array, "T K"]:
        """Attention of every query on its own feature."""
        return jnp.diagonal(self.attention, axis1=1, axis2=2)


@calculator(compiled=False)
def feature_descent(
    population: FeaturePopulation,
    step_size: Number,
    num_steps: int,
    *,
    record_every: int = 1,
    start: Float[ArrayLike, "_K _K"] | None = None,
) -> FeaturePath:
    r"""Gradient descent on the exact population loss, from Q = 0.

    .. math:: B \leftarrow B - \eta \, \nabla L(B) .

    Args:
        population: Probabilities and contexts.
        step_size: eta > 0.
        num_steps: Steps; a multiple of ``record_every``.
        record_every: Steps between two records.
        start: Logits at step 0, ``(K, K)``; zero when left out.

    Returns:
        The path.

    Example:
        >>> import jax.numpy as jnp
        >>> pop = FeaturePopulation.infinite(jnp.full(5, 0.2))
        >>> path = feature_descent(pop, 0.5, 200, record_every=100)
        >>> path.own_attention[:, 0].round(2).tolist()
        [0.2, 0.64, 0.8]

    Source: Huang et al. (2024), training by gradient descent.
    """
    check_steps(num_steps, record_every)
    check_shape("step_size", step_size, ())
    check_positive("step_size", step_size)
    p = population.probabilities
    K = p.shape[0]
    B = jnp.zeros((K, K), p.dtype) if start is None else jnp.asarray(start, p.dtype)
    check_shape("start", B, (K, K))
    eta = jnp.asarray(step_size, p.dtype)
    return _descend(population, eta, B, num_steps, record_every)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _descend(population, eta, start, num_steps, record_every) -> FeaturePath:
    def slope(logits, _):
        return (), feature_gradient(logits, population)

    path = descend(slope, start, PlainRule(eta), num_steps, record_every)

    def seen(logits):
        attention = feature_attention(logits, population)
        mean = jnp.einsum("c,ckn->kn", population.weights, attention)
        return mean, feature_losses(logits, population)

    attention, losses = jax.lax.map(seen, path.params, batch_size=64)
    return FeaturePath(path.steps, path.params, attention, losses)
