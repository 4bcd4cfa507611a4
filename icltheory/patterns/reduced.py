"""Training of the one-layer model in a few numbers, exact for the population loss."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_positive_int,
    concrete,
    is_tracer,
    positive,
    scalar,
)
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float
from icltheory.patterns.model import check_width
from icltheory.patterns.probes import pattern_logits
from icltheory.patterns.task import PatternTask
from icltheory.trajectory._descent import PlainRule, descend

Number = float | int | Real[ArrayLike, ""]
# Largest number of kinds of prompts to sum over; 60 contexts have 39,711.
MOST_KINDS = 50_000


_same = Check(
    lambda gap: gap <= 1e-5, "W_Q = W_K as a multiple of the identity on the features"
)


class ReducedTraining(Record):
    r"""Logit :math:`\lambda`, attention and hinge loss before each step.

    The last two are means over prompts; attention is that on the query's pattern.
    """

    logits: Float[Array, "*S T"]
    masses: Float[Array, "*S T"]
    losses: Float[Array, "*S T"]


class _State(NamedTuple):
    """The trained order parameters."""

    attention: Any  # eigenvalue omega of W_Q = W_K on differences of patterns
    neurons: Any  # rows of W_O
    feature_value: Any  # what W_V makes of the unit vector along the mean pattern
    label_value: Any  # and of the label embedding


class _Fixed(NamedTuple):
    """Constants: output weights, noise of the neurons, and sizes of the setting."""

    a: Any
    deviation: Any
    scale: Any
    noise: Any
    fraction: Any


class _Kinds(NamedTuple):
    """Kinds of prompts by their numbers of contexts."""

    same: Any  # of the query's pattern
    opposite: Any  # of the other one of the pair
    others: Any  # of none of them
    labels: Any  # sum of the labels of the others


def _isotropic(name, params, given):
    """The check of a start with W_Q = W_K, a multiple of the identity on features."""
    check_width(params, given["task"].width, "task")
    d = given["task"].dim
    xp = jnp if any(map(is_tracer, (params["W_Q"], params["W_K"]))) else np
    W_Q, W_K = (xp.asarray(params[key])[:, :d] for key in ("W_Q", "W_K"))
    part = xp.trace(W_Q) / d * np.eye(len(W_Q), d, dtype=W_Q.dtype)
    gap = xp.abs(xp.stack([W_Q - W_K, W_Q - part])).max()
    return _same(name, gap / xp.maximum(xp.abs(W_Q).max(), 1e-30))


def _orthogonal(name, task, given):
    """The check that relevant patterns are orthogonal and have the norm ``scale``."""
    gram = concrete(task.relevant @ task.relevant.T / jnp.square(task.scale))
    if gram is not None and abs(gram - np.eye(len(gram))).max() > 1e-3:
        expected = f"orthogonal relevant patterns of the norm scale = {task.scale:.4g}"
        raise ValueError(f"{name}: expected {expected}, got others")
    return True


@calculator(
    static=("num_steps", "num_examples", "substeps"),
    params=_isotropic,
    task=_orthogonal,
    step_size=scalar & positive,
)
def reduced_training(
    params: dict[str, Any],
    task: PatternTask,
    num_steps: int,
    *,
    step_size: Number,
    num_examples: int = 20,
    substeps: int = 1,
) -> ReducedTraining:
    r"""Population gradient descent of equation (7) in order parameters.

    With all tasks, patterns may be exchanged. Attention is then one number, the logit
    :math:`\lambda = \omega^2 \beta^2` of the query's pattern over others, and neurons
    see the features along the mean pattern only. With the gains :math:`\phi_i =
    \frac{\beta}{\sqrt{M_1}} w_i^\top v_f` of features and :math:`g_i = w_i^\top v_q`
    of labels, and the agreement r and mass M of attention in a prompt, neuron i is
    active at query label z with probability :math:`A_i^z` and

    .. math::
        \dot w_i &= a_i \Bigl( E[z h A_i^z]\, \tfrac{\beta}{\sqrt{M_1}} v_f
            + E[h r A_i^z]\, v_q \Bigr) , \\
        \dot v_f &= \tfrac{\beta}{\sqrt{M_1}} \sum_i a_i E[z h A_i^z]\, w_i , \qquad
        \dot v_q = \sum_i a_i E[h r A_i^z]\, w_i , \\
        \dot \omega &= \omega \frac{\beta^2}{M_1 - 1}
            E \Bigl[ h M (1 - r) \sum_i a_i A_i^z g_i \Bigr] ,

    h being 1 where the hinge loss is not 0. Expectations are exact sums over the kinds
    of prompts, O(l^3 m) a step. Approximated are the effect of single and irrelevant
    patterns on a neuron, Gaussian with the deviation of the start, and attention, which
    ignores irrelevant patterns. The number of steps is about :math:`A / \alpha + B`.

    Args:
        params: The start of a one-layer model, with W_Q = W_K a multiple of the
            identity on the features.
        task: The task, with its alpha; its tasks are taken to be all.
        step_size: eta.
        num_examples: Contexts l of a prompt, up to 64.
        substeps: Euler steps of eta over this number; many are gradient flow.

    Example:
        >>> from icltheory.patterns import PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> start = model.init(task, key=jax.random.key(0))
        >>> path = reduced_training(start, task, 250, step_size=2.0)
        >>> [round(float(mass), 2) for mass in path.masses[jnp.array([0, 249])]]
        [0.44, 0.99]

    Source: derived here; Li et al. (2024), Theorem 1 and Proposition 1, describe it.
    """
    check_positive_int("num_steps", num_steps)
    check_positive_int("num_examples", num_examples)
    check_positive_int("substeps", substeps)
    if math.comb(num_examples + 3, 3) > MOST_KINDS:
        raise ValueError(f"num_examples: expected at most 64, got {num_examples}")
    state, fixed = _start(params, task)
    kinds = _Kinds(*(jnp.asarray(x, fixed.a.dtype) for x in _kinds(num_examples)))
    weights = _probabilities(kinds, fixed.fraction)

    def slope(state, _):
        return _slope(task.num_relevant, kinds, weights, fixed, state)

    rule = PlainRule(jnp.asarray(step_size, fixed.a.dtype) / substeps)
    total = num_steps * substeps
    _, _, seen = descend(slope, state, rule, total, total)
    return ReducedTraining(*(values[::substeps] for values in seen))


def _start(params, task) -> tuple[_State, _Fixed]:
    W_V, W_O = jnp.asarray(params["W_V"]), jnp.asarray(params["W_O"])
    d, M = task.dim, task.num_relevant
    mean = jnp.sum(task.relevant, axis=0)
    mean = mean / jnp.linalg.norm(mean)
    features = (W_O @ W_V)[:, :d]
    rest = features - jnp.outer(features @ mean, mean)
    logits = pattern_logits(params, task)
    diagonal = jnp.trace(logits) / M
    logit = diagonal - (jnp.sum(logits) - M * diagonal) / (M * (M - 1))
    state = _State(
        jnp.sqrt(logit) / task.scale,
        W_O,
        W_V[:, :d] @ mean,
        W_V[:, d:] @ task.label_embedding,
    )
    deviation = jnp.linalg.norm(rest, axis=1) / math.sqrt(d - 1)
    sizes = task.scale, task.noise, task.relevant_fraction
    fixed = _Fixed(params["a"], deviation, *sizes)
    return jax.tree.map(lambda x: jnp.asarray(x, W_O.dtype), (state, fixed))


def _kinds(length: int) -> _Kinds:
    """Returns all kinds of prompts of a length."""
    kinds = [
        (same, opposite, others, 2 * up - others)
        for same in range(length + 1)
        for opposite in range(length + 1 - same)
        for others in [length - same - opposite]
        for up in range(others + 1)
    ]
    return _Kinds(*np.array(kinds, float).T)


def _probabilities(kinds: _Kinds, fraction) -> Array:
    up = (kinds.others + kinds.labels) / 2
    counts = (kinds.same, kinds.opposite, up, kinds.others - up)
    ways = gammaln(sum(counts) + 1) - sum(gammaln(count + 1) for count in counts)
    pair = xlogy(kinds.same + kinds.opposite, fraction / 2)
    return jnp.exp(ways + pair + xlogy(kinds.others, (1 - fraction) / 2))


def _slope(num_relevant: int, kinds: _Kinds, weights, fixed: _Fixed, state: _State):
    """Returns the recorded quantities and the gradients of the population loss."""
    logit = (state.attention * fixed.scale) ** 2
    mass, agreement, spread = _attention(num_relevant, kinds, fixed, logit)
    along = fixed.scale / math.sqrt(num_relevant)
    feature = along * (state.neurons @ state.feature_value)
    label = state.neurons @ state.label_value
    deviation = spread[:, None] * fixed.deviation[None]
    deviation = jnp.maximum(deviation, jnp.finfo(deviation.dtype).tiny)
    # The sum is over z = +1 and -1, which are equally likely.
    by_feature = by_label = jnp.zeros_like(fixed.a)
    drive = loss = 0.0
    for z in (1, -1):
        input_ = feature[None] + z * agreement[:, None] * label[None]
        active = norm.cdf(input_ / deviation)
        output = input_ * active + deviation * norm.pdf(input_ / deviation)
        margin = z * (output @ fixed.a)
        counted = weights / 2 * (margin < 1)
        by_feature += z * counted @ active
        by_label += (counted * agreement) @ active
        pull = active @ (fixed.a * label)
        drive += jnp.sum(counted * pull * mass * (1 - agreement))
        loss += jnp.sum(weights / 2 * jnp.maximum(1 - margin, 0))
    by_feature, by_label = along * fixed.a * by_feature, fixed.a * by_label
    rate = fixed.scale**2 / (num_relevant - 1) * drive
    gradients = _State(
        -state.attention * rate,
        -jnp.outer(by_feature, state.feature_value)
        - jnp.outer(by_label, state.label_value),
        -by_feature @ state.neurons,
        -by_label @ state.neurons,
    )
    return (logit, jnp.sum(weights * mass), loss), gradients


def _attention(num_relevant: int, kinds: _Kinds, fixed: _Fixed, logit):
    """Attention mass, agreement, and norm of features across the mean, by kind."""
    length = kinds.same + kinds.opposite + kinds.others
    other = 1 / (kinds.same * jnp.exp(logit) + length - kinds.same)
    own = other * jnp.exp(logit)
    mass = kinds.same * own
    agreement = mass + other * (kinds.labels - kinds.opposite)
    # Contexts of other patterns are spread evenly over these patterns.
    pairs = kinds.others * (kinds.others - 1) / max(num_relevant - 2, 1)
    squares = mass**2 + other**2 * (kinds.opposite**2 + kinds.others + pairs)
    single = kinds.same * own**2 + (length - kinds.same) * other**2
    across = squares - 1 / num_relevant + fixed.noise**2 / 3 * single
    return mass, agreement, fixed.scale * jnp.sqrt(jnp.maximum(across, 1e-9))
