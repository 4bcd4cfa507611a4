"""Bounds by the information in the difference of a pair's losses."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._typing import Array
from icltheory.bounds.supersample._estimates import (
    coin_information,
    information_limit,
    mean_limit,
)
from icltheory.bounds.supersample._pairs import (
    Pairs,
    merged,
    read_pairs,
    tail_weight,
)
from icltheory.bounds.supersample.records import SupersampleBound

__all__ = ["loss_difference_bound", "optimal_difference_bound", "variance_bound"]


@calculator
def loss_difference_bound(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Bound for any in-context learner, by the differences of the losses of pairs.

    .. math::
        |\overline{error}| \le \frac1N \sum_{i=1}^N \sqrt{2 I(\Delta\ell_i; U_i)} ,
        \qquad \Delta\ell_i = \ell(z_{i1}) - \ell(z_{i0}) ,

    where the fair coin :math:`U_i` says which demonstration of pair i was in the
    prompt. The demonstrations of a pair are independent and identically distributed
    given the task, and losses lie in [0, 1]; nothing is assumed of the learner or of
    the distributions. With the law p of the difference D of other and chosen, the
    information is the divergence of p from its symmetrised law,

    .. math:: I(\Delta\ell_i; U_i) = \sum_x p(x) \log \frac{2 p(x)}{p(x) + p(-x)} .

    The losses are rounded to the nearest of ``levels`` values 0, 1 / (levels - 1), ...,
    1. The rounded loss is the loss of error and bound alike, so that the statement
    stays exact. Losses that are 0 or 1 are not changed.

    ``value`` has the empirical laws, which make it too large on average. ``upper``
    exceeds the right-hand side with the stated confidence for every number of prompts.
    :func:`optimal_difference_bound` is smaller. Prompts are independent, with a task
    each. Cost O(B N + N levels^2).

    Args:
        losses: Losses of both demonstrations of each pair, ``(B, N, 2)``, in [0, 1].
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        levels: Number of values to which losses are rounded; None for losses with at
            most 32 different values, which are used as they are.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information has the shape ``(N,)``.

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> bound = loss_difference_bound(losses, jnp.zeros((400, 1)))
        >>> [f"{number:.3f}" for number in (bound.error, bound.value, bound.upper)]
        ['0.500', '0.833', '0.951']

    Source: Steinke and Zakynthinou (2020), the setting; Wang and Mao (2023), the loss
    difference. Proof: the derivations of supersample bounds.
    """
    pairs = read_pairs(losses, chosen, levels, confidence)
    information = coin_information(*merged(pairs.law, pairs.differences))
    return pairs.square_root(information)


@calculator
def variance_bound(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Bound by information and mean square of the differences of losses.

    .. math:: |\overline{error}| \le \sqrt{2 I(\Delta\ell_J; U_J)\,
        E\, [\Delta\ell_J^2]}

    with J a random pair. It is smaller than :func:`loss_difference_bound` by the root
    mean square of the difference, and faster than the root of the information where
    losses vary little. Information and mean square have confidence limits of half of
    the error probability each.

    Args:
        losses: Losses of both demonstrations of each pair, ``(B, N, 2)``, in [0, 1].
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        levels: Number of values to which losses are rounded, or None; see
            :func:`loss_difference_bound`.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information is that of a random pair, ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> bound = variance_bound(losses, jnp.zeros((400, 1)))
        >>> f"{bound.value:.3f}"
        '0.589'

    Source: Proof: the derivations of supersample bounds.
    """
    pairs = read_pairs(losses, chosen, levels, confidence)
    information = coin_information(*merged(pairs.pooled, pairs.differences))[0]
    square = _expected(pairs, pairs.differences[None] ** 2)[0]
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)
    limit = information_limit(information, B, weight) * mean_limit(square, B, weight)
    value = jnp.sqrt(2 * information * square)
    return pairs.record(value, jnp.sqrt(2 * limit), information)


@calculator
def optimal_difference_bound(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Smallest bound that follows from information and law of the differences.

    .. math:: |\overline{error}| \le \inf_{\lambda > 0} \frac{I(\Delta\ell_J; U_J)
        + E \log\cosh(\lambda \Delta\ell_J)}{\lambda}

    with J a random pair. There is a learner with this information and this law of
    :math:`|\Delta\ell_J|` that attains it: the sign of the difference has the log-odds
    :math:`2 \lambda |\Delta\ell_J|`. The bound is therefore the smallest of its kind,
    and at most :func:`loss_difference_bound`'s at a random pair,
    :func:`variance_bound` and :func:`weighted_bound`. For a 0-1 loss every learner
    attains it: value and \|error\| are equal.

    ``value`` is the least over 512 numbers :math:`\lambda` from 0.001 to 100 and the
    limit of small ones, which is :func:`variance_bound`. ``upper`` is the least over 64
    of them, from 0.01 on: the information has half of the error probability, and the 64
    expectations share the rest.

    Args:
        losses: Losses of both demonstrations of each pair, ``(B, N, 2)``, in [0, 1].
        chosen: Which of the two was in the prompt, 0 or 1, ``(B, N)``.
        levels: Number of values to which losses are rounded, or None; see
            :func:`loss_difference_bound`.
        confidence: Confidence level of ``upper``.

    Returns:
        The bound; its information is that of a random pair, ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> bound = optimal_difference_bound(losses, jnp.zeros((400, 1)))
        >>> f"{bound.value:.3f}"  # the error is 0.5
        '0.500'

    Source: Proof: the derivations of supersample bounds.
    """
    pairs = read_pairs(losses, chosen, levels, confidence)
    information = coin_information(*merged(pairs.pooled, pairs.differences))[0]
    fine = jnp.geomspace(0.001, 100, 512).astype(information.dtype)
    square = _expected(pairs, pairs.differences[None] ** 2)[0]
    value = _least(fine, information, _tilted(pairs, fine))
    value = jnp.minimum(value, jnp.sqrt(2 * information * square))
    tilts = jnp.geomspace(0.01, 100, 64).astype(information.dtype)
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)
    limit = information_limit(information, B, weight)
    each = weight + jnp.log(float(len(tilts)))
    means = mean_limit(_tilted(pairs, tilts), B, each)
    return pairs.record(value, _least(tilts, limit, means), information)


def _tilted(pairs: Pairs, tilts: Array) -> Array:
    """Means of log cosh of the tilted difference, over its largest value, (T,)."""
    spread = tilts[:, None, None] * pairs.differences[None]
    shape = _log_cosh(spread) / _log_cosh(tilts)[:, None, None]
    return jnp.clip(_expected(pairs, shape), 0, 1)


def _least(tilts: Array, information: Array, means: Array) -> Array:
    """Least over the tilts of the bound that each of them gives."""
    return jnp.min((information + _log_cosh(tilts) * means) / tilts)


def _expected(pairs: Pairs, functions: Array) -> Array:
    """Means of functions of the difference, (F,), from values (F, K, K)."""
    return jnp.sum(pairs.pooled * functions, axis=(1, 2))


def _log_cosh(x: Array) -> Array:
    """Logarithm of cosh, accurate for small x and without overflow."""
    small = jnp.minimum(jnp.abs(x), 1)
    near = jnp.log1p(2 * jnp.sinh(small / 2) ** 2)
    far = jnp.abs(x) + jax.nn.softplus(-2 * jnp.abs(x)) - jnp.log(2.0)
    return jnp.where(jnp.abs(x) < 1, near, far)
