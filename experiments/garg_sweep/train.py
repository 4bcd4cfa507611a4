"""Trains the whole grid in one program, as one ensemble per width."""

import dataclasses
from typing import Any

import numpy as np

from experiments._frame.run import Run
from experiments._trained import Fitted, fit
from experiments.garg_sweep.config import Config
from icltheory import training


def train(config: Config, run: Run) -> Fitted:
    """Trains to the last step, or resumes from the newest checkpoint.

    Returns:
        The states by width, each with an axis of ``config.ensemble().members()``.
    """
    config.set_precision()
    states, steps = zip(*config.parts(), strict=True)
    start: Any = training.SideBySide(states)
    recipe = config.recipe

    def record(done: int, chunk: training.Chunk) -> dict[str, Any]:
        return {"step": done, **means(chunk.metrics)}

    return fit(
        training.side_by_side(steps),
        start,
        run,
        record,
        folder=run.folder / "checkpoints",
        num_steps=recipe.steps,
        chunk_steps=recipe.chunk_steps,
        checkpoint_every=recipe.checkpoint_every,
        config=dataclasses.asdict(config),
        label=f"training {len(config.widths) * len(config.ensemble())} transformers",
    )


def means(metrics: dict[str, Any]) -> dict[str, Any]:
    """Mean loss of the members still in training, and losses by member for JSON.

    JSON has no word for a loss that is not a number.
    """
    losses = np.asarray(metrics["loss"], np.float64).mean(axis=0)
    alive = np.atleast_1d(np.asarray(metrics["alive"]).all(axis=0))
    each = [
        float(x) if ok else None for x, ok in zip(losses.tolist(), alive, strict=True)
    ]
    # If the last members diverge within one chunk, there is no loss to average.
    mean = float(losses[alive].mean()) if alive.any() else 0.0
    return {"loss": mean, "alive": int(alive.sum()), "losses": each}
