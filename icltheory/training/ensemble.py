"""Trains models of one shape together that differ in seeds, rates and noise."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Int, PyTree

from icltheory._checks import check_nonnegative_int, check_positive_int
from icltheory._core import Record
from icltheory.batching import in_turns
from icltheory.training.optimizers import OptimizerConfig, make_optimizer
from icltheory.training.steps import (
    Curriculum,
    Metrics,
    Step,
    Task,
    TrainState,
    init_state,
    make_step,
)


class Member(NamedTuple):
    """One model of an ensemble; ``None`` keeps the number of task or optimiser.

    A ``clip_norm`` of inf clips nothing. Members of one seed start alike and see the
    same prompts, up to the scale of their noise. A grid of rates and seeds is a list::

        [Member(seed, learning_rate=rate) for rate in (1e-3, 1e-2) for seed in range(4)]
    """

    seed: int
    noise_var: float | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None

    def alone(
        self, task: Task, optimizer: OptimizerConfig
    ) -> tuple[Task, OptimizerConfig]:
        """Returns task and optimiser to train this model alone."""
        own = {k: v for k, v in self._asdict().items() if v is not None and k != "seed"}
        if own.get("clip_norm") == 0:  # that of one member would be traced
            raise ValueError("clip_norm: expected a value > 0, inf for none, got 0")
        if "noise_var" in own:
            if not hasattr(task, "noise_var"):
                kind = type(task).__name__
                raise ValueError(
                    f"noise_var: expected a task with a noise_var, got {kind}"
                )
            change = getattr(task, "with_", None)  # a population finds its roots anew
            change = change or functools.partial(dataclasses.replace, task)  # type: ignore
            task = change(noise_var=own.pop("noise_var"))
        return task, dataclasses.replace(optimizer, **own)


class EnsembleState(Record):
    """State of an ensemble; every leaf has a leading axis of members.

    Attributes:
        models: States of the models. A member that has diverged keeps the parameters
            at which it did.
        settings: The scalars in which members differ, by where they belong, such as
            ``optimizer.learning_rate``.
        diverged_at: Step of a member's first loss or gradient that was not finite; -1
            if there was none.
    """

    models: TrainState
    settings: dict[str, Array]
    diverged_at: Int[Array, "*members"]

    @property
    def step(self) -> Int[ArrayLike, "*members"]:
        """Number of steps taken."""
        return self.models.step

    @property
    def params(self) -> PyTree:
        """Parameters of all members."""
        return self.models.params


def init_ensemble(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerConfig,
    members: Sequence[Member],
    *,
    num_steps: int,
    num_points: int,
) -> EnsembleState:
    """Draws the initial state of an ensemble; arguments as of :func:`init_state`.

    Task and optimiser are those of all members, up to their own scalars.
    """
    members = _filled(members, task, optimizer)
    rule = make_optimizer(members[0].alone(task, optimizer)[1], num_steps)
    seeds = [member.seed for member in members]
    models = init_state(model, task, rule, seeds, num_points=num_points)
    dtype = jnp.result_type(*jax.tree.leaves(models.params))
    settings = {}
    for name in Member._fields[1:]:
        values = [getattr(member, name) for member in members]
        if len(set(values)) > 1:  # others stay constants of the program
            where = "task" if name == "noise_var" else "optimizer"
            settings[f"{where}.{name}"] = jnp.asarray(values, dtype)
    return EnsembleState(models, settings, jnp.full(len(seeds), -1, jnp.int32))


def _filled(members, task, optimizer) -> list[Member]:
    """The members with their numbers, where these are not those of all."""
    members = list(members)
    if not members:
        raise ValueError("members: expected at least one, got none")
    for member in members:
        check_nonnegative_int("seed", member.seed)
        member.alone(task, optimizer)  # raises for wrong numbers
    for name in Member._fields[1:]:
        values = {getattr(member, name) for member in members}
        if None in values and len(values) > 1:
            shared = float(getattr(task if name == "noise_var" else optimizer, name))
            if name == "clip_norm" and shared == 0:
                shared = math.inf
            members = [
                one._replace(**{name: shared}) if getattr(one, name) is None else one
                for one in members
            ]
    return members


def make_ensemble_step(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerConfig,
    members: Sequence[Member],
    curriculum: Curriculum,
    *,
    num_steps: int,
    at_once: int | None = None,
    **options: Any,
) -> Step:
    r"""Builds one training step of all members with batched matrix products.

    .. math:: \theta^m_{t+1} = \theta^m_t
              + u_m\!\left(\nabla\mathcal L_m(\theta^m_t)\right)
              \quad \text{while } \mathcal L_m, \nabla\mathcal L_m
              \text{ are finite, else } \theta^m_t

    Each member does what :func:`make_step` would do for it alone, with the same
    arguments and ``options``, such as ``batch_size``. One that diverges is frozen, and
    marked in :attr:`EnsembleState.diverged_at`; the others go on. The metrics have an
    axis of members: ``loss`` and ``grad_norm``, NaN from divergence on, and ``alive``.

    Args:
        task: Task of all members, up to their noise.
        optimizer: Config of all members' optimiser, up to their scalars.
        at_once: Members whose products are batched; the others wait for their turn
            within the step. Unless given all, but one on a CPU, whose batched products
            are slower.

    Source: Garg et al. 2022, Appendix A.
    """
    if at_once is None:
        at_once = 1 if jax.default_backend() == "cpu" else len(members)
    check_positive_int("at_once", at_once)
    shared = _filled(members, task, optimizer)[0].alone(task, optimizer)

    def step_of(task: Any, optimizer: OptimizerConfig) -> Step:
        rule = make_optimizer(optimizer, num_steps)
        return make_step(model, task, rule, curriculum, **options)

    def one(state: EnsembleState) -> tuple[EnsembleState, Metrics]:
        own = dict(zip(("task", "optimizer"), shared, strict=True))
        own = jax.tree_util.tree_map_with_path(
            lambda path, leaf: state.settings.get(
                jax.tree_util.keystr(path, simple=True, separator="."), leaf
            ),
            own,
        )
        return _guarded(state, *step_of(**own)(state.models))

    step_of(*shared)  # raises errors before tracing
    return functools.partial(in_turns, one, at_once=at_once)


def _guarded(
    state: EnsembleState, new: TrainState, metrics: Metrics
) -> tuple[EnsembleState, Metrics]:
    """Takes a member's step unless it diverges or has diverged before."""
    finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"])
    before = state.diverged_at < 0
    alive = before & finite
    diverged_at = jnp.where(before & ~finite, state.models.step, state.diverged_at)
    old = state.models

    def keep(new, old):
        return jax.tree.map(lambda a, b: jnp.where(alive, a, b), new, old)

    params, opt_state = keep((new.params, new.opt_state), (old.params, old.opt_state))
    models = TrainState(new.step, new.seed, params, opt_state)
    shown = {name: jnp.where(alive, x, jnp.nan) for name, x in metrics.items()}
    shown["alive"] = alive
    return EnsembleState(models, state.settings, diverged_at), shown
