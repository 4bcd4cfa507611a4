"""Trains models of one shape side by side: seeds, learning rates and noise."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int, PyTree

from icltheory._checks import check_positive_int
from icltheory._pytree import pytree
from icltheory.batching import in_turns
from icltheory.training.curriculum import Curriculum
from icltheory.training.members import Ensemble
from icltheory.training.optimizers import OptimizerConfig, make_optimizer
from icltheory.training.steps import (
    Metrics,
    Step,
    Task,
    TrainState,
    init_state,
    make_step,
)

__all__ = ["EnsembleState", "init_ensemble", "make_ensemble_step"]


@pytree
class EnsembleState:
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


def _settings(
    ensemble: Ensemble, task: Task, optimizer: OptimizerConfig
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Returns the first member's settings, and the leaves in which others differ."""
    # Values are compared concretely, even if the caller is being traced.
    with jax.ensure_compile_time_eval():
        pairs = [member.alone(task, optimizer) for member in ensemble.members()]
        each = [{"task": own, "optimizer": record} for own, record in pairs]
        leaves = [dict(jax.tree_util.tree_leaves_with_path(own)) for own in each]
        differ = {
            _name(path): [own[path] for own in leaves]
            for path, first in leaves[0].items()
            if not all(_same(own[path], first) for own in leaves)
        }
    return each[0], differ


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a) == np.asarray(b)))


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _with(settings: dict[str, Any], values: dict[str, Array]) -> dict[str, Any]:
    """Returns settings with some leaves replaced, possibly by traced values."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: values.get(_name(path), leaf), settings
    )


def init_ensemble(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerConfig,
    ensemble: Ensemble,
    *,
    num_steps: int,
    num_points: int,
) -> EnsembleState:
    """Draws the initial state of an ensemble.

    Args:
        model: Flax module called with ``(X, y)``.
        task: Task of all members, up to their noise.
        optimizer: Record of all members' optimiser, up to their scalars.
        ensemble: The members.
        num_steps: Length of the run.
        num_points: Points :math:`P` of a prompt.

    Returns:
        The state at step 0.

    Source: Garg et al. 2022, Appendix A.
    """
    _, differ = _settings(ensemble, task, optimizer)
    rule = make_optimizer(optimizer, num_steps)
    seeds = [member.seed for member in ensemble.members()]
    models = init_state(model, task, rule, seeds, num_points=num_points)
    dtype = jnp.result_type(*jax.tree.leaves(models.params))
    settings = {name: jnp.asarray(values, dtype) for name, values in differ.items()}
    return EnsembleState(models, settings, jnp.full(len(seeds), -1, jnp.int32))


def make_ensemble_step(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerConfig,
    ensemble: Ensemble,
    curriculum: Curriculum,
    *,
    num_steps: int,
    batch_size: int,
    num_points: int,
    at_once: int | None = None,
    **options: Any,
) -> Step:
    r"""Builds one training step of all members with batched matrix products.

    .. math:: \theta^m_{t+1} = \theta^m_t
              + u_m\!\left(\nabla\mathcal L_m(\theta^m_t)\right)
              \quad \text{while } \mathcal L_m, \nabla\mathcal L_m
              \text{ are finite, else } \theta^m_t

    Each member does what :func:`make_step` would do for it alone. One that diverges is
    frozen, and marked in :attr:`EnsembleState.diverged_at`; the others go on.

    Args:
        model: As :func:`make_step` has it.
        task: Task of all members, up to their noise.
        optimizer: Record of all members' optimiser, up to their scalars.
        ensemble: The members, those of the state.
        curriculum: Which coordinates and points count.
        num_steps: Length of the run, for the schedule.
        batch_size: Prompts a step and member.
        num_points: Points of a prompt, the query included.
        at_once: Members whose products are batched; the others wait for their turn
            within the step. Unless given all, but one on a CPU, whose batched products
            are slower.
        **options: Further ones of :func:`make_step`.

    Returns:
        A function from an :class:`EnsembleState` to the next one and its metrics, with
        an axis of members: ``loss`` and ``grad_norm``, NaN from divergence on, and
        ``alive``.

    Source: Garg et al. 2022, Appendix A.
    """
    if at_once is None:
        at_once = 1 if jax.default_backend() == "cpu" else len(ensemble)
    check_positive_int("at_once", at_once)
    shared, _ = _settings(ensemble, task, optimizer)

    def step_of(settings: dict[str, Any]) -> Step:
        return make_step(
            model,
            settings["task"],
            make_optimizer(settings["optimizer"], num_steps),
            curriculum,
            batch_size=batch_size,
            num_points=num_points,
            **options,
        )

    def one(state: EnsembleState) -> tuple[EnsembleState, Metrics]:
        step = step_of(_with(shared, state.settings))
        return _guarded(state, *step(state.models))

    step_of(shared)  # raises errors before tracing
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
