"""Trains all models in one program, which updates one after the other in each step.

Their seeds are part of the state, so that they share everything that is compiled.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._frame.run import Run
from experiments._trained import Fitted, fit
from experiments._trained.fit import mean_metrics
from experiments.headroom.config import Config
from experiments.small_lm import checkpoint
from experiments.small_lm.train import initial_state, make_step
from icltheory import training
from icltheory.training import TrainState

CHECKPOINT = "checkpoint"


def initial_states(config: Config) -> TrainState:
    """States of all models at step 0, with a leading axis of models."""
    states = [initial_state(config.model(seed)) for seed in config.seeds]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def make_steps(config: Config) -> training.Step:
    """Returns the training step of all models, each the same as in small_lm."""
    one = make_step(config.recipe)

    def step(state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        # With one step count for all models, only the current curriculum stage runs.
        now = state.step[0]

        def member(part):
            new, metrics = one(TrainState(now, *part))
            return (new.params, new.opt_state), metrics

        # The models run one after the other, since batched products are slower on a
        # CPU.
        parts = (state.seed, state.params, state.opt_state)
        (params, opt_state), metrics = jax.lax.map(member, parts)
        return TrainState(state.step + 1, state.seed, params, opt_state), metrics

    return step


def train(config: Config, run: Run) -> Fitted:
    """Trains the models, or resumes an interrupted run.

    The checkpoint of each model is written for the bridge.
    """

    def record(done: int, chunk: training.Chunk) -> dict[str, Any]:
        return {"step": done, **mean_metrics(chunk.metrics)}

    recipe = config.recipe
    fitted = fit(
        make_steps(config),
        initial_states(config),
        run,
        record,
        folder=run.folder / "training",
        num_steps=recipe.steps,
        chunk_steps=recipe.chunk_steps,
        checkpoint_every=recipe.checkpoint_every,
        config={"recipe": dataclasses.asdict(recipe), "seeds": list(config.seeds)},
        label=f"training {len(config.seeds)} language models",
    )
    for place, seed in enumerate(config.seeds):
        if run.writes:
            params = jax.tree.map(
                lambda leaf, p=place: np.asarray(leaf[p]), fitted.state.params
            )
            folder = run.folder / f"seed{seed}" / CHECKPOINT
            checkpoint.save(config.model(seed), params, folder)
    return fitted
