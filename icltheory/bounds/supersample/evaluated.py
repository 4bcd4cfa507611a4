"""Bounds by the information in both losses of a pair: square root and fast rates."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._typing import Array
from icltheory.bounds.supersample._estimates import (
    binary_kl,
    coin_information,
    information_limit,
    mean_limit,
)
from icltheory.bounds.supersample._pairs import (
    Pairs,
    read_pairs,
    swapped,
    tail_weight,
)
from icltheory.bounds.supersample.records import SupersampleBound

__all__ = ["binary_kl_bound", "evaluated_bound", "weighted_bound"]

# Weights c and C(c) of the weighted bound: c is close to 0 for small information, and
# close to log 2 for small losses.
_GAPS = np.geomspace(1e-9, 1, 256)[:-1]  # 2 - e^c
_c = np.concatenate([np.geomspace(1e-6, 0.07, 128), np.log1p(1 - _GAPS)])
_WEIGHTS = _c, -np.log1p(-np.expm1(_c)) / _c - 1


@calculator
def evaluated_bound(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Bound by the information in both losses of a pair (evaluated CMI).

    .. math:: |\overline{error}| \le \frac1N \sum_{i=1}^N
        \sqrt{2 I(\ell(z_{i0}), \ell(z_{i1}); U_i)}

    It is never below :func:`~icltheory.bounds.loss_difference_bound`, as the difference
    is a function of both losses, and it has levels^2 cells to estimate instead of
    2 levels - 1.

    Args:
        losses: Losses of both demonstrations of each pair, ``(B, N, 2)``, in [0, 1].
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        levels: Number of values to which losses are rounded, or None; see
            :func:`~icltheory.bounds.loss_difference_bound`.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information has the shape ``(N,)``.

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> bound = evaluated_bound(losses, jnp.zeros((400, 1)))
        >>> f"{bound.value:.3f}"
        '0.833'

    Source: Steinke and Zakynthinou (2020), evaluated CMI; Hellstrom and Durisi (2022).
    Proof: the derivations of supersample bounds.
    """
    pairs = read_pairs(losses, chosen, levels, confidence)
    information = coin_information(*swapped(pairs.law))
    return pairs.square_root(information)


@calculator
def weighted_bound(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Fast-rate bound with a weight on the loss of the prompt's own demonstrations.

    .. math:: \overline{error} \le \min_{0 < c < \log 2}
        \Big[ C(c)\, E\, \ell(z_J) + \frac{I(\ell(z_{J0}), \ell(z_{J1}); U_J)}{c} \Big]
        , \qquad C(c) = - \frac{\log(2 - e^c)}{c} - 1 ,

    with J a random pair and :math:`z_J` its demonstration in the prompt. For a learner
    without loss on its prompt the bound is I / log 2, which is exact for 0-1 losses.
    It bounds the error from above, not its absolute value. The least over 383 weights c
    from 1e-6 on is returned.

    Args:
        losses: Losses of both demonstrations of each pair, ``(B, N, 2)``, in [0, 1].
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        levels: Number of values to which losses are rounded, or None; see
            :func:`~icltheory.bounds.loss_difference_bound`.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information is that of a random pair, ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> bound = weighted_bound(losses, jnp.zeros((400, 1)))
        >>> f"{bound.value:.3f}"  # the error is 0.5
        '0.500'

    Source: Hellstrom and Durisi (2022) and Wang and Mao (2023), weighted bounds. Proof:
    the derivations of supersample bounds.
    """
    pairs = read_pairs(losses, chosen, levels, confidence)
    information = coin_information(*swapped(pairs.pooled))[0]
    training = _training(pairs)
    c, factor = (jnp.asarray(part, training.dtype) for part in _WEIGHTS)
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)

    def least(information, training):
        return jnp.min(factor * training + information / c)

    upper = least(
        information_limit(information, B, weight), mean_limit(training, B, weight)
    )
    return pairs.record(least(information, training), upper, information)


@calculator
def binary_kl_bound(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Bound by the binary KL divergence, from both losses of a pair.

    .. math:: \mathrm{kl}\Big( r \,\Big\|\, r + \frac{\overline{error}}{2} \Big)
        \le I(\ell(z_{J0}), \ell(z_{J1}); U_J) , \qquad r = E\, \ell(z_J) ,

    with J a random pair, solved for the error; kl is the divergence of a coin with odds
    r. It adapts to the loss r on the prompt without a parameter. It bounds the error
    from above, not its absolute value.

    Args:
        losses: Losses of both demonstrations of each pair, ``(B, N, 2)``, in [0, 1].
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        levels: Number of values to which losses are rounded, or None; see
            :func:`~icltheory.bounds.loss_difference_bound`.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information is that of a random pair, ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> bound = binary_kl_bound(losses, jnp.zeros((400, 1)))
        >>> f"{bound.value:.3f}"  # 2 (1 - exp(-I)) with I = log(2) / 2
        '0.586'

    Source: Hellstrom and Durisi (2022), binary relative entropy. Proof: the derivations
    of supersample bounds.
    """
    pairs = read_pairs(losses, chosen, levels, confidence)
    information = coin_information(*swapped(pairs.pooled))[0]
    training = _training(pairs)
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)
    value, _ = _shift(training, information)
    limit, each = information_limit(information, B, weight), weight + jnp.log(2.0)
    high, low = mean_limit(training, B, each), 1 - mean_limit(1 - training, B, each)
    # The error is concave in the training loss, so a tangent bounds it from above.
    upper, slope = _shift((high + low) / 2, limit)
    upper = upper + jnp.abs(slope) * (high - low) / 2
    return pairs.record(value, upper, information)


def _training(pairs: Pairs) -> Array:
    """Mean loss on the demonstrations of the prompt."""
    return jnp.sum(jnp.sum(pairs.pooled[0], axis=1) * pairs.values)


def _shift(training: Array, information: Array) -> tuple[Array, Array]:
    """Largest error allowed by the divergence, and its slope in the training loss."""
    v = mean_limit(training, 1, information)
    inside = jnp.finfo(v.dtype).eps
    t, v = jnp.clip(training, inside, 1 - inside), jnp.clip(v, inside, 1 - inside)
    odds = jnp.log(v / t) + jnp.log1p(-t) - jnp.log1p(-v)
    apart = jnp.maximum(v - t, inside)
    slope = jnp.where(binary_kl(t, v) > 0, odds * v * (1 - v) / apart, 1)
    return 2 * (v - training), 2 * (slope - 1)
