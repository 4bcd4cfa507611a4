"""Attention on features: attention shares, losses and the population gradient."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._typing import Array, Float
from icltheory.regression.features.population import FeaturePopulation

__all__ = ["feature_attention", "feature_gradient", "feature_losses"]


@calculator
def feature_attention(
    logits: Float[ArrayLike, "_K _K"], population: FeaturePopulation
) -> Float[Array, "C _K _K"]:
    r"""Total attention of query k on all examples of feature n, in every context.

    .. math::
        \mathrm{Attn}_n^{(k)} = \frac{c_n e^{B_{k,n}}}{\sum_m c_m e^{B_{k,m}}} , \qquad
        B_{k,n} = v_n^\top Q v_k ,

    with :math:`c_n` the occurrences of feature n.

    Args:
        logits: B, ``(K, K)``; row k belongs to query k, and :math:`A_k = B_{k,k}`.
        population: The contexts.

    Returns:
        Attention ``(C, K, K)``; rows sum to 1.

    Example:
        >>> import jax.numpy as jnp
        >>> p = jnp.array([0.25, 0.75])
        >>> shares = feature_attention(jnp.zeros((2, 2)), FeaturePopulation.infinite(p))
        >>> shares.round(6).tolist()
        [[[0.25, 0.75], [0.25, 0.75]]]

    Source: Huang et al. (2024), definition of the attention scores.
    """
    K = population.probabilities.shape[0]
    check_shape("logits", logits, (K, K))
    present = jnp.log(population.counts)[:, None]  # absent features have weight 0
    return jax.nn.softmax(jnp.asarray(logits)[None] + present, axis=-1)


@calculator
def feature_losses(
    logits: Float[ArrayLike, "_K _K"], population: FeaturePopulation
) -> Float[Array, " _K"]:
    r"""Half the mean squared error of each query, with exact averages over labels.

    .. math::
        L_k = \tfrac12 E \Big[ (1 - \mathrm{Attn}_k)^2 + \sum_{m \ne k}
        \mathrm{Attn}_m^2 \Big] , \qquad L = \sum_k p_k L_k .

    Args:
        logits: B, ``(K, K)``.
        population: Probabilities and contexts.

    Returns:
        Losses, ``(K,)``.

    Example:
        >>> import jax.numpy as jnp
        >>> pop = FeaturePopulation.infinite(jnp.array([0.5, 0.5]))
        >>> feature_losses(jnp.zeros((2, 2)), pop).tolist()
        [0.25, 0.25]

    Source: Huang et al. (2024), the population loss.
    """
    attention = feature_attention(logits, population)
    missed = jnp.eye(attention.shape[-1], dtype=attention.dtype)[None] - attention
    return population.weights @ jnp.sum(missed**2, axis=-1) / 2


@calculator
def feature_gradient(
    logits: Float[ArrayLike, "_K _K"], population: FeaturePopulation
) -> Float[Array, "_K _K"]:
    r"""The gradient of the population loss in the logits, in closed form.

    .. math::
        \frac{\partial L}{\partial A_k} = - p_k E \big[ \mathrm{Attn}_k \big(
        (1 - \mathrm{Attn}_k)^2 + S_k \big) \big] , \qquad
        \frac{\partial L}{\partial B_{k,n}} = p_k E \big[ \mathrm{Attn}_n \big(
        \mathrm{Attn}_k (1 - \mathrm{Attn}_k) + \mathrm{Attn}_n - S_k \big) \big] ,

    with :math:`S_k = \sum_{m \ne k} \mathrm{Attn}_m^2`. It is that of Q itself in the
    basis of the features: a step on Q is the same step on the logits.

    Args:
        logits: B, ``(K, K)``.
        population: Probabilities and contexts.

    Returns:
        The gradient, ``(K, K)``.

    Example:
        >>> import jax.numpy as jnp
        >>> pop = FeaturePopulation.infinite(jnp.array([0.5, 0.5]))
        >>> feature_gradient(jnp.zeros((2, 2)), pop).tolist()
        [[-0.125, 0.125], [0.125, -0.125]]

    Source: Huang et al. (2024), gradient of the population loss.
    """
    attention = feature_attention(logits, population)
    diagonal = jnp.eye(attention.shape[-1], dtype=attention.dtype)[None]
    own = jnp.sum(attention * diagonal, axis=-1, keepdims=True)
    others = jnp.sum(attention**2, axis=-1, keepdims=True) - own**2
    slope = attention * (own * (1 - own) + attention - others)
    slope = jnp.where(diagonal > 0, -own * ((1 - own) ** 2 + others), slope)
    mean = jnp.einsum("c,ckn->kn", population.weights, slope)
    return population.probabilities[:, None] * mean
