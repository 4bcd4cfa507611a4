r"""Softmax attention on orthonormal features: gradient, training path and phases.

Inputs are K orthonormal features :math:`v_k`, drawn with probabilities :math:`p_k`;
labels are :math:`y = \langle w, x \rangle` with :math:`w \sim N(0, I)`; one layer of
attention with the matrix Q answers :math:`\hat y = \sum_i y_i \operatorname{softmax}_i
(x_i^\top Q x_{query})` and learns by gradient descent on the risk. Only the logits
:math:`v_n^\top Q v_k` matter. The paper takes half the risk: its step sizes are twice
those here.
"""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, xlogy

from icltheory._checks import (
    Check,
    check_key,
    check_positive_int,
    check_shape,
    checked,
    concrete,
    nonnegative,
    positive,
    real,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.trajectory._descent import PlainRule, check_steps, descend

__all__ = [
    "FeaturePath",
    "FeaturePhases",
    "FeaturePopulation",
    "feature_attention",
    "feature_descent",
    "feature_gradient",
    "feature_losses",
    "feature_phases",
]


_MOST_CONTEXTS = 100_000


class FeaturePopulation(Record):
    """Probabilities of the features, and the contexts with their probabilities.

    A context is how often each feature occurs in it, up to a factor. In the limit of
    infinite length there is one, the probabilities p_k themselves.

    Example:
        >>> p = jnp.array([0.5, 0.5])
        >>> pairs = FeaturePopulation.finite(p, 2)
        >>> pairs.counts.tolist(), pairs.weights.tolist()
        ([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]], [0.25, 0.5, 0.25])
        >>> FeaturePopulation.infinite(p).counts.tolist()
        [[0.5, 0.5]]

    Source: Huang et al. (2024), setting.
    """

    probabilities: Float[Array, " K"]
    counts: Float[Array, "C K"]
    weights: Float[Array, " C"]

    @classmethod
    def infinite(cls, probabilities: Any) -> "FeaturePopulation":
        """The population with contexts of infinite length."""
        p = _probabilities(probabilities)
        return cls(p, p[None], jnp.ones(1, p.dtype))

    @classmethod
    def finite(cls, probabilities: Any, num_examples: int) -> "FeaturePopulation":
        """All binomial(N + K - 1, K - 1) contexts of N examples, with probabilities."""
        p = _probabilities(probabilities)
        check_positive_int("num_examples", num_examples)
        K, N = len(p), num_examples
        many = math.comb(N + K - 1, K - 1)
        if many > _MOST_CONTEXTS:
            raise ValueError(
                f"num_examples: expected at most {_MOST_CONTEXTS:,} contexts, got "
                f"{many:,} of {N} examples of {K} features; use sampled"
            )
        bars = np.array(list(itertools.combinations(range(N + K - 1), K - 1)))
        ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, N + K - 1)))
        counts = (np.diff(ends, axis=1) - 1)[::-1]
        # Logarithms avoid overflow of factorials and powers.
        ways = gammaln(N + 1) - gammaln(counts + 1).sum(axis=1)
        known, floats = concrete(p), jnp.asarray(counts, p.dtype)
        if known is None:
            powers = jnp.sum(jax.scipy.special.xlogy(floats, p[None]), axis=1)
            return cls(p, floats, jnp.exp(jnp.asarray(ways, p.dtype) + powers))
        powers = xlogy(counts, known.astype(np.float64)[None]).sum(axis=1)
        return cls(p, floats, jnp.asarray(np.exp(ways + powers), p.dtype))

    @classmethod
    def sampled(
        cls, key: PRNGKey, probabilities: Any, num_examples: int, num_contexts: int
    ) -> "FeaturePopulation":
        """Random contexts of N examples with equal weights."""
        check_key("key", key)
        p = _probabilities(probabilities)
        check_positive_int("num_examples", num_examples)
        check_positive_int("num_contexts", num_contexts)
        drawn = jax.random.categorical(
            key, jnp.log(p), shape=(num_contexts, num_examples)
        )
        counts = jnp.sum(jax.nn.one_hot(drawn, len(p), dtype=p.dtype), axis=1)
        return cls(p, counts, jnp.full(num_contexts, 1 / num_contexts, p.dtype))


def _probabilities(probabilities: Any) -> Array:
    p = jnp.asarray(real("probabilities", probabilities))
    if p.ndim != 1 or len(p) < 2:
        raise ValueError(f"probabilities: expected shape (K,), K >= 2, got {p.shape}")
    return checked("probabilities", p, _is_distribution)


def _is_distribution(name: str, p: Any, given: Any = None) -> Any:
    one = Check(lambda total: abs(total - 1) <= 1e-5, "a sum of 1")
    return nonnegative(name, p) & one(name, p.sum())


@calculator
def feature_attention(
    logits: Any, population: FeaturePopulation
) -> Float[Array, "C K K"]:
    r"""Total attention of query k on all examples of feature n, in every context.

    .. math::
        \mathrm{Attn}_n^{(k)} = \frac{c_n e^{B_{k,n}}}{\sum_m c_m e^{B_{k,m}}} , \qquad
        B_{k,n} = v_n^\top Q v_k ,

    with :math:`c_n` the occurrences of feature n. Row k of the logits B belongs to
    query k, and :math:`A_k = B_{k,k}`.

    Example:
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
def feature_losses(logits: Any, population: FeaturePopulation) -> Float[Array, " K"]:
    r"""Risk of each query, with exact averages over labels.

    .. math::
        L_k = E \Big[ (1 - \mathrm{Attn}_k)^2 + \sum_{m \ne k}
        \mathrm{Attn}_m^2 \Big] , \qquad L = \sum_k p_k L_k .

    Example:
        >>> pop = FeaturePopulation.infinite(jnp.array([0.5, 0.5]))
        >>> feature_losses(jnp.zeros((2, 2)), pop).tolist()
        [0.5, 0.5]

    Source: Huang et al. (2024), the population loss, which is half of it.
    """
    attention = feature_attention(logits, population)
    missed = jnp.eye(attention.shape[-1], dtype=attention.dtype)[None] - attention
    return population.weights @ jnp.sum(missed**2, axis=-1)


@calculator
def feature_gradient(logits: Any, population: FeaturePopulation) -> Float[Array, "K K"]:
    r"""The gradient of the risk in the logits, in closed form.

    .. math::
        \frac{\partial L}{\partial A_k} = - 2 p_k E \big[ \mathrm{Attn}_k \big(
        (1 - \mathrm{Attn}_k)^2 + S_k \big) \big] , \qquad
        \frac{\partial L}{\partial B_{k,n}} = 2 p_k E \big[ \mathrm{Attn}_n \big(
        \mathrm{Attn}_k (1 - \mathrm{Attn}_k) + \mathrm{Attn}_n - S_k \big) \big] ,

    with :math:`S_k = \sum_{m \ne k} \mathrm{Attn}_m^2`. A step on Q is the same step on
    the logits.

    Example:
        >>> pop = FeaturePopulation.infinite(jnp.array([0.5, 0.5]))
        >>> feature_gradient(jnp.zeros((2, 2)), pop).tolist()
        [[-0.25, 0.25], [0.25, -0.25]]

    Source: Huang et al. (2024), gradient of the population loss.
    """
    attention = feature_attention(logits, population)
    diagonal = jnp.eye(attention.shape[-1], dtype=attention.dtype)[None]
    own = jnp.sum(attention * diagonal, axis=-1, keepdims=True)
    others = jnp.sum(attention**2, axis=-1, keepdims=True) - own**2
    slope = attention * (own * (1 - own) + attention - others)
    slope = jnp.where(diagonal > 0, -own * ((1 - own) ** 2 + others), slope)
    mean = jnp.einsum("c,ckn->kn", population.weights, slope)
    return 2 * population.probabilities[:, None] * mean


class FeaturePath(Record):
    """Losses and mean attention of query k on feature n along gradient descent."""

    steps: Int[Array, " T"]
    logits: Float[Array, "T K K"]
    attention: Float[Array, "T K K"]
    losses: Float[Array, "T K"]

    @property
    def own_attention(self) -> Float[Array, "T K"]:
        """Attention of every query on its own feature."""
        return jnp.diagonal(self.attention, axis1=1, axis2=2)


@calculator(static=("num_steps", "record_every"), step_size=scalar & positive)
def feature_descent(
    population: FeaturePopulation,
    step_size: Any,
    num_steps: int,
    *,
    record_every: int = 1,
    start: Any = None,
) -> FeaturePath:
    r"""Gradient descent on the exact risk, from Q = 0 or from the logits ``start``.

    .. math:: B \leftarrow B - \eta \, \nabla L(B) .

    Example:
        >>> pop = FeaturePopulation.infinite(jnp.full(5, 0.2))
        >>> path = feature_descent(pop, 0.25, 200, record_every=100)
        >>> path.own_attention[:, 0].round(2).tolist()
        [0.2, 0.64, 0.8]

    Source: Huang et al. (2024), training by gradient descent.
    """
    check_steps(num_steps, record_every)
    p = population.probabilities
    shape = len(p), len(p)
    B = jnp.zeros(shape, p.dtype) if start is None else jnp.asarray(start, p.dtype)
    check_shape("start", B, shape)

    def slope(logits, _):
        return (), feature_gradient(logits, population)

    def seen(logits):
        attention = feature_attention(logits, population)
        mean = jnp.einsum("c,ckn->kn", population.weights, attention)
        return mean, feature_losses(logits, population)

    rule = PlainRule(jnp.asarray(step_size, p.dtype))
    path = descend(slope, B, rule, num_steps, record_every)
    attention, losses = jax.lax.map(seen, path.params, batch_size=64)
    return FeaturePath(path.steps, path.params, attention, losses)


class FeaturePhases(Record):
    """Steps of the phases of every query; infinite beyond the end of the path.

    Args:
        overtaken: When attention on the own feature exceeds that on any other for good.
        half: When it exceeds 1/2.
        learned: When the risk of the query falls below the level.
        shed: Smallest logit of another feature along the path.
    """

    overtaken: Float[Array, " K"]
    half: Float[Array, " K"]
    learned: Float[Array, " K"]
    shed: Float[Array, " K"]


@calculator(loss_level=nonnegative)
def feature_phases(path: FeaturePath, loss_level: Any = 1e-2) -> FeaturePhases:
    """Steps of the phases, by linear interpolation between records.

    Example:
        >>> pop = FeaturePopulation.infinite(jnp.array([0.8, 0.2]))
        >>> found = feature_phases(feature_descent(pop, 0.5, 300), 0.04)
        >>> found.learned.round().tolist(), found.overtaken.round().tolist()
        ([5.0, 61.0], [0.0, 12.0])

    Source: Huang et al. (2024), phases of imbalanced features.
    """
    K = path.logits.shape[1]
    other = jnp.eye(K, dtype=bool)[None]
    own = path.own_attention
    rival = jnp.max(jnp.where(other, -jnp.inf, path.attention), axis=-1)
    return FeaturePhases(
        overtaken=_crossing(path.steps, rival - own, for_good=True),
        half=_crossing(path.steps, 0.5 - own),
        learned=_crossing(path.steps, path.losses - loss_level),
        shed=jnp.min(jnp.where(other, jnp.inf, path.logits), axis=(0, 2)),
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
