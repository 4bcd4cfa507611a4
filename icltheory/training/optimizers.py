"""Optimisers, learning-rate schedules and averages of weights."""

import collections
import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from icltheory._checks import (
    Check,
    check_choice,
    check_positive_int,
    checked,
    is_tracer,
    open_unit,
    wrong,
)
from icltheory._core import Record
from icltheory._typing import Array, Float, Int
from icltheory.training.packing import hidden_matrix

_NAMES = ("adam", "adamw", "muon", "sgd")
_SCHEDULES = ("constant", "cosine", "linear", "trapezoid", "triangle")
_RATE = Check(lambda x: (x > 0) & (x < math.inf), "a value > 0")
_NOT_NEGATIVE = Check(lambda x: x >= 0, "a value >= 0")
_DECAY = Check(lambda x: (x >= 0) & (x < 1), "a decay in [0, 1)")
_CHECKS = {
    "learning_rate": _RATE,
    "adam_learning_rate": _RATE,
    "decay_part": Check(lambda x: (x > 0) & (x <= 1), "a share in (0, 1]"),
    "average": _DECAY,
    "warmup_steps": _NOT_NEGATIVE,
    "clip_norm": _NOT_NEGATIVE,
    "weight_decay": _NOT_NEGATIVE,
    "eps": _NOT_NEGATIVE,
    "b1": _DECAY,
    "b2": _DECAY,
}


class OptimizerConfig(Record):
    """Configuration of :func:`make_optimizer`; the defaults are Garg et al.'s.

    Its leaves, which may differ between the models of one program, are the rates, the
    decay of the weights and the clipping norm.

    Example:
        >>> OptimizerConfig().learning_rate
        0.0001
    """

    # adam, adamw, muon (Adam for everything but hidden matrices) or sgd (momentum b1)
    name: str = eqx.field(static=True, default="adam")
    learning_rate: float = 1e-4  # peak learning rate
    # peak rate of Muon's Adam part; learning_rate unless given
    adam_learning_rate: float | None = None
    # constant, or after the warm-up cosine or linear to 0; trapezoid stays at the peak
    # and falls to 0 in the last part of the run; triangle warms up to the middle
    schedule: str = eqx.field(static=True, default="constant")
    warmup_steps: int = eqx.field(static=True, default=0)  # steps of linear warm-up
    # share of the run in which a trapezoid falls
    decay_part: float = eqx.field(static=True, default=0.3)
    # decay of a running mean of the weights, which averaged() reads; no mean at 0
    average: float = eqx.field(static=True, default=0.0)
    clip_norm: float = 0.0  # largest global norm of the gradient; no clipping at 0
    # decoupled decay: all weights of adamw, the hidden matrices of muon
    weight_decay: float = 0.0
    # decay of the first moment, or momentum of sgd; hidden matrices of muon have
    # optax's 0.95
    b1: float = eqx.field(static=True, default=0.9)
    # decay of the second moment; static, since 1 - b2 loses four digits in float32
    b2: float = eqx.field(static=True, default=0.999)
    eps: float = eqx.field(static=True, default=1e-8)  # Adam's constant

    def __post_init__(self):
        check_choice("optimizer", self.name, _NAMES)
        check_choice("schedule", self.schedule, _SCHEDULES)
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, checked(name, value, check))
        decay = self.weight_decay
        if self.name in ("adam", "sgd") and not is_tracer(decay) and decay != 0:
            expected = f"0 with {self.name} (weights decay with adamw and muon)"
            raise wrong("weight_decay", expected, decay)


def learning_rate(
    config: OptimizerConfig,
    num_steps: int,
    peak: float | Float[Array, ""] | None = None,
) -> optax.Schedule:
    r"""Returns the schedule of the learning rate over a run.

    .. math:: \eta(t) = \eta\, \min(t / t_w, 1)\, s\!\left(\frac{t-t_w}{T-t_w}\right)

    with T the ``num_steps`` of the run, :math:`s = 1`, :math:`(1+\cos \pi u)/2`,
    :math:`1-u`, or for the trapezoid that falls over :math:`T_d` steps
    :math:`\min(1, (T-t)/T_d)`. The peak :math:`\eta` is the config's unless given.

    Example:
        >>> rate = learning_rate(OptimizerConfig(schedule="linear"), 100)
        >>> round(float(rate(50)), 7)
        5e-05

    Source: Cosine: Loshchilov and Hutter 2017.
    """
    check_positive_int("num_steps", num_steps)
    top = config.learning_rate if peak is None else peak
    warmup = num_steps // 2 if config.schedule == "triangle" else config.warmup_steps
    if warmup > num_steps:
        raise ValueError(f"warmup_steps: expected at most {num_steps}, got {warmup}")
    rest = max(num_steps - warmup, 1)
    fall = max(round(config.decay_part * num_steps), 1)
    if config.schedule == "trapezoid" and fall > rest:
        raise ValueError(
            f"decay_part: expected a decay within the {rest} steps after the warm-up, "
            f"got {fall} steps"
        )
    after = {
        "constant": optax.constant_schedule(top),
        "cosine": optax.cosine_decay_schedule(top, rest),
        "linear": optax.linear_schedule(top, 0.0, rest),
        "trapezoid": optax.linear_schedule(top, 0.0, fall, rest - fall),
        "triangle": optax.linear_schedule(top, 0.0, rest),
    }[config.schedule]
    if warmup == 0:
        return after
    return optax.join_schedules(
        [optax.linear_schedule(0.0, top, warmup), after], [warmup]
    )


def _stacked_by_shape(
    inner: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """Runs ``inner`` on one stack per shape instead of on every leaf.

    Muon orthogonalises every matrix by fifteen small products. Stacks turn those of all
    layers into fifteen batched ones, which is what a GPU and a compiler want.
    """

    def shape_of(leaf):
        return "x".join(map(str, leaf.shape[-2:]))

    def groups(tree):
        # A leaf is a matrix, or a stack if the training loop has packed the blocks.
        by_shape = collections.defaultdict(list)
        for leaf in jax.tree.leaves(tree):
            by_shape[shape_of(leaf)].append(leaf.reshape(-1, *leaf.shape[-2:]))
        return by_shape

    def stack(tree):
        return {shape: jnp.concatenate(each) for shape, each in groups(tree).items()}

    def unstack(stacks, tree):
        parts = {}
        for shape, each in groups(tree).items():
            ends = list(itertools.accumulate(map(len, each)))[:-1]
            parts[shape] = iter(jnp.split(stacks[shape], ends))
        return jax.tree.map(
            lambda leaf: next(parts[shape_of(leaf)]).reshape(leaf.shape), tree
        )

    def init(params):
        return inner.init(stack(params))

    def update(updates, state, params=None):
        stacked = None if params is None else stack(params)
        new, state = inner.update(stack(updates), state, stacked)
        return unstack(new, updates), state

    return optax.GradientTransformation(init, update)


def _hidden_matrices(params):
    """Labels the weight matrices of blocks as ``muon`` and all others as ``adam``."""

    def label(path, leaf):
        stacked = any("_*" in str(key) for key in path)  # in a packed tree
        return "muon" if hidden_matrix(path, leaf.ndim - stacked) else "adam"

    return jax.tree_util.tree_map_with_path(label, params)


def _muon(config: OptimizerConfig, num_steps: int) -> optax.GradientTransformation:
    matrix = MuonDimensionNumbers(reduction_axis=1, output_axis=2)

    def widen(u, _):
        # The factor makes the change of the output equal for all shapes.
        return u * max(1.0, u.shape[2] / u.shape[1]) ** 0.5

    hidden = _stacked_by_shape(
        optax.chain(
            scale_by_muon(
                weight_dimension_numbers=lambda stacks: jax.tree.map(
                    lambda _: matrix, stacks
                )
            ),
            optax.stateless_with_tree_map(widen),
            optax.add_decayed_weights(config.weight_decay),
            optax.scale_by_learning_rate(learning_rate(config, num_steps)),
        )
    )
    peak = config.adam_learning_rate
    other = optax.adam(
        learning_rate(config, num_steps, peak), config.b1, config.b2, config.eps
    )
    return optax.partition({"muon": hidden, "adam": other}, _hidden_matrices)


def make_optimizer(
    config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformation:
    """Builds the optimiser of a run: clipping, update rule, schedule and average.

    Example:
        >>> import jax.numpy as jnp
        >>> tx = make_optimizer(OptimizerConfig("sgd", 0.5, b1=0.0), num_steps=10)
        >>> params = {"w": jnp.ones(2)}
        >>> tx.update(params, tx.init(params), params)[0]["w"].tolist()
        [-0.5, -0.5]

    Source: Kingma and Ba 2015; Loshchilov and Hutter 2019; Jordan et al. 2024 (Muon).
    """
    rate = learning_rate(config, num_steps)
    if config.name == "adam":
        rule = optax.adam(rate, config.b1, config.b2, config.eps)
    elif config.name == "adamw":
        rule = optax.adamw(
            rate, config.b1, config.b2, config.eps, weight_decay=config.weight_decay
        )
    elif config.name == "sgd":
        rule = optax.sgd(rate, momentum=config.b1 or None)
    else:
        rule = _muon(config, num_steps)
    if is_tracer(config.clip_norm) or np.asarray(config.clip_norm) > 0:
        rule = optax.chain(optax.clip_by_global_norm(config.clip_norm), rule)
    return with_average(rule, config.average) if config.average else rule


class AveragedState(NamedTuple):
    """State of a rule that keeps the mean of the weights."""

    inner: Any  # state of the inner rule
    mean: PyTree
    count: Int[Array, ""]  # updates seen


def with_average(
    inner: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
    r"""Adds an exponential moving average of the weights to an optimiser.

    .. math:: \bar\theta_t = \gamma_t \bar\theta_{t-1} + (1 - \gamma_t) \theta_t,
              \qquad \gamma_t = \min\!\left(\gamma, \frac{t}{t + 9}\right)

    so that the first weights, which were drawn, are forgotten at once. The mean reaches
    back about :math:`1/(1-\gamma)` steps. :func:`averaged` reads it; the updates are
    those of ``inner``.

    Example:
        >>> rule = with_average(optax.sgd(1.0), 0.9)
        >>> w = jnp.ones(())
        >>> updates, state = rule.update(jnp.ones(()), rule.init(w), w)
        >>> round(float(state.mean), 7)  # 0.1 * 1 + 0.9 * 0
        0.1

    Source: Polyak and Juditsky 1992.
    """
    open_unit("decay", decay)

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
    """Weights for evaluation: the average if the optimiser keeps one, else the last."""
    models = getattr(state, "models", state)
    kept = models.opt_state
    return kept.mean if isinstance(kept, AveragedState) else models.params
