"""Bounds in the supersample setting, for any in-context learner with bounded losses.

Of each of N pairs of demonstrations a fair coin chooses one for the prompt; the model
that reads the prompt is the learner. The bounds need its losses, or its predicted
classes, alone: no weight, gradient or distribution enters.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    is_tracer,
    open_unit,
    unit,
)
from icltheory._core import Record, calculator, where_valid, widened
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.bounds._pairs import (
    MOST_VALUES,
    Pairs,
    binary_kl,
    coin_information,
    in_and_out,
    information_limit,
    mean_limit,
    merged,
    read_pairs,
    shares,
    swapped,
    tail_weight,
)

# Weights c and C(c) of the weighted bound: c is close to 0 for small information, and
# close to log 2 for small losses.
_GAPS = np.geomspace(1e-9, 1, 256)[:-1]  # 2 - e^c
_c = np.concatenate([np.geomspace(1e-6, 0.07, 128), np.log1p(1 - _GAPS)])
_WEIGHTS = _c, -np.log1p(-np.expm1(_c)) / _c - 1

_coins = Check(lambda one: (one == 0) | (one == 1), "0 or 1")


class SupersampleBound(Record):
    r"""A bound on the generalisation error of an in-context learner.

    .. math:: \overline{error} = \frac1N \sum_{i=1}^N E\, [\ell(\bar z_i) - \ell(z_i)] ,

    the loss on the demonstration of pair i that the prompt does not hold, minus the
    loss on the one it holds. All numbers are about the quantised loss.

    Args:
        value: The bound with plug-in estimates. They are biased upwards.
        upper: Upper confidence limit of the bound, which is a bound on the error with
            the stated confidence; at most 1.
        information: Plug-in mutual information in nats: of each pair, ``(N,)``, or of
            a random pair, ``()``.
        error: Mean error over prompts and pairs.
        standard_error: Standard error of ``error``, from the spread over prompts.
        vacuous: Whether ``upper`` is 1, which every loss in [0, 1] satisfies.
        confidence: Confidence level of ``upper``.
    """

    value: Scalar
    upper: Scalar
    information: Float[Array, "..."]
    error: Scalar
    standard_error: Scalar
    vacuous: Bool[Array, ""]
    confidence: float = eqx.field(static=True, default=0.95)


class SupersampleBounds(Record):
    r"""Six bounds by the information of losses about the coins.

    The difference of the losses of pair i is :math:`\Delta\ell_i = \ell(z_{i1}) -
    \ell(z_{i0})`; J is a random pair and :math:`z_J` its demonstration in the prompt.

    Args:
        difference: :math:`|\overline{error}| \le \frac1N \sum_i
            \sqrt{2 I(\Delta\ell_i; U_i)}` (Wang and Mao 2023).
        variance: :math:`|\overline{error}| \le \sqrt{2 I(\Delta\ell_J; U_J)\,
            E\, [\Delta\ell_J^2]}`, faster than the root of the information where
            losses vary little.
        optimal: :math:`|\overline{error}| \le \inf_{\lambda > 0} (I(\Delta\ell_J; U_J)
            + E \log\cosh(\lambda \Delta\ell_J)) / \lambda`, the smallest that follows
            from information and law of the difference: a learner whose sign of the
            difference has the log-odds :math:`2 \lambda |\Delta\ell_J|` attains it, and
            for a 0-1 loss every learner.
        evaluated: :math:`|\overline{error}| \le \frac1N \sum_i
            \sqrt{2 I(\ell(z_{i0}), \ell(z_{i1}); U_i)}` (evaluated CMI; Steinke and
            Zakynthinou 2020), never below ``difference``.
        weighted: :math:`\overline{error} \le \min_{0 < c < \log 2} [ C(c)\, E\,
            \ell(z_J) + I(\ell(z_{J0}), \ell(z_{J1}); U_J) / c ]` with :math:`C(c) =
            -\log(2 - e^c) / c - 1` (Hellstrom and Durisi 2022); it bounds the error,
            not its absolute value. Exact for a 0-1 loss that is 0 on the prompt.
        binary_kl: The largest error with :math:`\mathrm{kl}(r \| r + \overline{error}
            / 2) \le I(\ell(z_{J0}), \ell(z_{J1}); U_J)` and :math:`r = E\, \ell(z_J)`
            (Hellstrom and Durisi 2022); it bounds the error, too.
    """

    difference: SupersampleBound
    variance: SupersampleBound
    optimal: SupersampleBound
    evaluated: SupersampleBound
    weighted: SupersampleBound
    binary_kl: SupersampleBound


@calculator(compiled=False, static=("levels", "confidence"), losses=unit, chosen=_coins)
def supersample_bounds(
    losses: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    *,
    levels: int | None = None,
    confidence: float = 0.95,
) -> SupersampleBounds:
    r"""Six bounds for any in-context learner, from the losses of pairs alone.

    See :class:`SupersampleBounds` for the formulas. The fair coin :math:`U_i` says
    which demonstration of pair i was in the prompt. The demonstrations of a pair are
    independent and identically distributed given the task, losses lie in [0, 1], and
    prompts are independent, with a task each; nothing is assumed of the learner.

    The losses are rounded to the nearest of ``levels`` values 0, 1 / (levels - 1), ...,
    1; without ``levels``, losses with at most 32 different values are used as they are.
    The rounded loss is the loss of error and bound alike, so that the statements stay
    exact. Each ``value`` has the empirical laws, which make it too large on
    average; each ``upper`` exceeds the true bound with the stated confidence for every
    number of prompts. What a form estimates shares its error probability evenly. Cost
    O(B N + N levels^2).

    Example:
        >>> import jax.numpy as jnp
        >>> losses = jnp.tile(jnp.array([[[0.0, 1.0]], [[0.0, 0.0]]]), (200, 1, 1))
        >>> found = supersample_bounds(losses, jnp.zeros((400, 1)))
        >>> f"error {found.difference.error:.3f}, at most {found.difference.upper:.3f}"
        'error 0.500, at most 0.951'
        >>> [f"{found.difference.value:.3f}", f"{found.variance.value:.3f}"]
        ['0.833', '0.589']
        >>> [f"{found.optimal.value:.3f}", f"{found.evaluated.value:.3f}"]
        ['0.500', '0.833']
        >>> [f"{found.weighted.value:.3f}", f"{found.binary_kl.value:.3f}"]
        ['0.500', '0.586']

    Source: Steinke and Zakynthinou (2020), the setting. Proof: the derivations of
    supersample bounds.
    """
    losses = widened(losses)
    check_shape("losses", losses, ("B", "N", 2))
    check_shape("chosen", chosen, losses.shape[:2])
    if not losses.size:
        raise ValueError(f"losses: expected at least one, got shape {losses.shape}")
    open_unit("confidence", confidence)
    found, few = _six(losses, chosen, levels, confidence)
    if levels is None and not is_tracer(few) and not few:
        expected = f"at most {MOST_VALUES} distinct values unless levels is given"
        raise ValueError(f"losses: expected {expected}, got more values")
    return where_valid(found, few if is_tracer(few) else True)


@functools.partial(jax.jit, static_argnames=("levels", "confidence"))
def _six(losses, chosen, levels, confidence):
    """The six bounds, and whether the losses have few enough values."""
    pairs, few = read_pairs(losses, chosen, levels)
    of_places = coin_information(*merged(pairs.law, pairs.differences))
    pairs_of_places = coin_information(*swapped(pairs.law))
    difference = coin_information(*merged(pairs.pooled, pairs.differences))[0]
    both = coin_information(*swapped(pairs.pooled))[0]
    found = SupersampleBounds(
        difference=_square_root(pairs, of_places, confidence),
        variance=_variance(pairs, difference, confidence),
        optimal=_optimal(pairs, difference, confidence),
        evaluated=_square_root(pairs, pairs_of_places, confidence),
        weighted=_weighted(pairs, both, confidence),
        binary_kl=_binary_kl(pairs, both, confidence),
    )
    return found, few


def _square_root(pairs: Pairs, information, confidence) -> SupersampleBound:
    """Mean over positions of sqrt(2 I), with an upper limit from the mean of I."""
    weight = tail_weight(confidence)
    limit = information_limit(jnp.mean(information), pairs.num_prompts, weight)
    value = jnp.mean(jnp.sqrt(2 * information))
    return _record(pairs, value, jnp.sqrt(2 * limit), information, confidence)


def _variance(pairs: Pairs, information, confidence) -> SupersampleBound:
    square = _expected(pairs, pairs.differences[None] ** 2)[0]
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)
    limit = information_limit(information, B, weight) * mean_limit(square, B, weight)
    value = jnp.sqrt(2 * information * square)
    return _record(pairs, value, jnp.sqrt(2 * limit), information, confidence)


def _optimal(pairs: Pairs, information, confidence) -> SupersampleBound:
    """Least over 512 tilts, and over the limit of small ones, the variance form.

    The limit is the least over 64 tilts, whose expectations share half of the error
    probability.
    """
    fine = jnp.geomspace(0.001, 100, 512).astype(information.dtype)
    square = _expected(pairs, pairs.differences[None] ** 2)[0]
    value = _least(fine, information, _tilted(pairs, fine))
    value = jnp.minimum(value, jnp.sqrt(2 * information * square))
    tilts = jnp.geomspace(0.01, 100, 64).astype(information.dtype)
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)
    limit = information_limit(information, B, weight)
    each = weight + jnp.log(float(len(tilts)))
    means = mean_limit(_tilted(pairs, tilts), B, each)
    upper = _least(tilts, limit, means)
    return _record(pairs, value, upper, information, confidence)


def _weighted(pairs: Pairs, information, confidence) -> SupersampleBound:
    training = _training(pairs)
    c, factor = (jnp.asarray(part, training.dtype) for part in _WEIGHTS)
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)

    def least(information, training):
        return jnp.min(factor * training + information / c)

    upper = least(
        information_limit(information, B, weight), mean_limit(training, B, weight)
    )
    value = least(information, training)
    return _record(pairs, value, upper, information, confidence)


def _binary_kl(pairs: Pairs, information, confidence) -> SupersampleBound:
    training = _training(pairs)
    B, weight = pairs.num_prompts, tail_weight(confidence) + jnp.log(2.0)
    value, _ = _shift(training, information)
    limit, each = information_limit(information, B, weight), weight + jnp.log(2.0)
    high, low = mean_limit(training, B, each), 1 - mean_limit(1 - training, B, each)
    # The error is concave in the training loss, so a tangent bounds it from above.
    upper, slope = _shift((high + low) / 2, limit)
    upper = upper + jnp.abs(slope) * (high - low) / 2
    return _record(pairs, value, upper, information, confidence)


def _record(pairs: Pairs, value, upper, information, confidence) -> SupersampleBound:
    """Builds the result, with the measured error."""
    B = pairs.num_prompts
    spread = jnp.std(pairs.difference, ddof=1) if B > 1 else jnp.nan
    upper = jnp.minimum(upper, 1)
    return SupersampleBound(
        value=value,
        upper=upper,
        information=information,
        error=jnp.mean(pairs.difference),
        standard_error=jnp.asarray(spread / B**0.5, value.dtype),
        vacuous=upper >= 1,
        confidence=confidence,
    )


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


def _classes(name, value, given):
    """Checks whole numbers below the number of classes."""
    K = given["num_classes"]
    check_positive_int("num_classes", K)
    expected = f"whole numbers from 0 to {K - 1}"
    return Check(lambda x: (x >= 0) & (x < K) & (x == x // 1), expected)(name, value)


@calculator(
    static=("num_classes", "confidence"),
    predictions=_classes,
    labels=_classes,
    chosen=_coins,
)
def prediction_bound(
    predictions: Real[ArrayLike, "_B _N 2"],
    labels: Real[ArrayLike, "_B _N 2"],
    chosen: Real[ArrayLike, "_B _N"],
    num_classes: int,
    *,
    confidence: float = 0.95,
) -> SupersampleBound:
    r"""Bound by the information in the predicted classes of a pair (f-CMI).

    .. math:: |\overline{error}| \le \frac1N \sum_{i=1}^N
        \sqrt{2 I(f_{i0}, f_{i1}; U_i \mid y_{i0}, y_{i1})} ,

    with the predicted classes f of both demonstrations and their labels y, whole
    numbers from 0. It holds for every loss in [0, 1] of prediction and label;
    ``error`` is that of the 0-1 loss. It conditions on the labels, where f-CMI
    conditions on the whole supersample, and is smaller for that. It is never below
    ``evaluated`` of :func:`supersample_bounds` for such a loss. The memory grows with
    the fourth power of the number of classes.

    Example:
        >>> import jax.numpy as jnp
        >>> labels = jnp.tile(jnp.array([[[0, 1]], [[1, 0]]]), (100, 1, 1))
        >>> memory = jnp.broadcast_to(labels[..., :1], labels.shape)
        >>> bound = prediction_bound(memory, labels, jnp.zeros((200, 1)), 2)
        >>> f"{bound.error:.3f} {bound.value:.3f}"
        '1.000 1.177'

    Source: Harutyunyan, Raginsky, Ver Steeg and Galstyan (2021), f-CMI. Proof: the
    derivations of supersample bounds.
    """
    predictions, labels = jnp.asarray(predictions), jnp.asarray(labels)
    check_shape("predictions", predictions, ("B", "N", 2))
    check_shape("labels", labels, predictions.shape)
    check_shape("chosen", chosen, predictions.shape[:2])
    open_unit("confidence", confidence)
    if not labels.size:
        raise ValueError(f"labels: expected at least one, got shape {labels.shape}")
    kinds = num_classes**2
    answers = predictions.astype(int) * num_classes + labels.astype(int)
    taken, other = in_and_out(answers, jnp.asarray(chosen))
    law = shares(taken * kinds + other, kinds**2).reshape(-1, kinds, kinds)
    information = coin_information(*swapped(law))
    wrong = in_and_out(predictions != labels, jnp.asarray(chosen))
    difference = jnp.mean(wrong[1].astype(law.dtype) - wrong[0], axis=1)
    pairs = Pairs(law, jnp.arange(2.0), difference)
    return _square_root(pairs, information, confidence)
