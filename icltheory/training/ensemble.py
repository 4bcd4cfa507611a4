"""Trains models of one shape together that differ in seeds, rates and noise."""

import dataclasses
import functools
import itertools
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int, PyTree

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
    """One model of an :class:`Ensemble`; ``None`` keeps the shared value."""

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
        if "noise_var" in own:
            if not hasattr(task, "noise_var"):
                kind = type(task).__name__
                raise ValueError(
                    f"noise_vars: expected a task with a noise_var, got {kind}"
                )
            change = getattr(task, "with_", None)  # a population finds its roots anew
            change = change or functools.partial(dataclasses.replace, task)  # type: ignore
            task = change(noise_var=own.pop("noise_var"))
        return task, dataclasses.replace(optimizer, **own)


@dataclasses.dataclass(frozen=True)
class Ensemble:
    r"""A grid of models that differ in seeds and scalars but not in shapes.

    .. math:: \text{members} = \text{noise} \times \text{rates} \times \text{decays}
              \times \text{clipping} \times \text{seeds}

    The seeds, of starts and data, run fastest. Members of one seed start alike and see
    the same prompts, up to the scale of their noise. An empty tuple keeps the number of
    the task or of the optimiser's config.

    Example:
        >>> grid = Ensemble(seeds=(0, 1), learning_rates=(1e-3, 1e-2))
        >>> grid.shape, len(grid)
        ((1, 2, 1, 1, 2), 4)
        >>> [(m.learning_rate, m.seed) for m in grid.members()]
        [(0.001, 0), (0.001, 1), (0.01, 0), (0.01, 1)]

    Source: Grids as in Garg et al. 2022, Appendix A.
    """

    seeds: tuple[int, ...] = (0,)
    noise_vars: tuple[float, ...] = ()
    learning_rates: tuple[float, ...] = ()
    weight_decays: tuple[float, ...] = ()
    clip_norms: tuple[float, ...] = ()

    def __post_init__(self):
        if not self.seeds:
            raise ValueError("seeds: expected at least one, got none")
        for seed in self.seeds:
            check_nonnegative_int("seeds", seed)
        for field in dataclasses.fields(self):
            name, values = field.name, getattr(self, field.name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: expected distinct values, got {values}")
            sign = ">=" if name in ("seeds", "noise_vars", "weight_decays") else ">"
            for value in values:
                if not (0 <= value < math.inf) or (sign == ">" and value == 0):
                    raise ValueError(f"{name}: expected values {sign} 0, got {value}")

    def _axes(self) -> list[tuple[Any, ...]]:
        rates = self.learning_rates, self.weight_decays, self.clip_norms
        return [*(given or (None,) for given in (self.noise_vars, *rates)), self.seeds]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of noise, rate, decay, clipping and seed."""
        return tuple(map(len, self._axes()))

    def __len__(self) -> int:
        """Number of members."""
        return math.prod(self.shape)

    def members(self) -> tuple[Member, ...]:
        """All members in order."""
        return tuple(
            Member(seed, *others) for *others, seed in itertools.product(*self._axes())
        )


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

    @property
    def alive(self) -> Bool[ArrayLike, "*members"]:
        """Which members are still training."""
        return self.diverged_at < 0


def init_ensemble(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerConfig,
    ensemble: Ensemble,
    *,
    num_steps: int,
    num_points: int,
) -> EnsembleState:
    """Draws the initial state of an ensemble; arguments as of :func:`init_state`.

    Task and optimiser are those of all members, up to the scalars of ``ensemble``.
    """
    members = ensemble.members()
    members[0].alone(task, optimizer)  # raises for a task without noise
    rule = make_optimizer(optimizer, num_steps)
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


def make_ensemble_step(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerConfig,
    ensemble: Ensemble,
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
        at_once = 1 if jax.default_backend() == "cpu" else len(ensemble)
    check_positive_int("at_once", at_once)
    shared = ensemble.members()[0].alone(task, optimizer)

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
