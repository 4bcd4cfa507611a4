"""Training steps of Garg's model, as ``experiments.garg_linear`` makes them."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from benchmarks.machine import floor
from benchmarks.suite import nbytes, on_gpu
from experiments.garg_linear import (
    PRESETS,
    Config,
    initial_state,
    set_up,
    training_step,
)
from icltheory import training
from icltheory.training import Curriculum, OptimizerConfig

ADAM = OptimizerConfig("adam", 1e-4)


def published(preset: str | None = None, **change: Any) -> Config:
    """Returns the published model on a GPU, else a small one, in the same recipe.

    That is batches of 64, Adam and labels, without a curriculum.
    """
    config = PRESETS[preset or ("paper" if on_gpu() else "cpu")]
    recipe: dict[str, Any] = {"batch_size": 64, "targets": "labels", "optimizer": ADAM}
    none = Curriculum.none(config.dim, config.num_points)
    recipe |= {"steps": 10**6, "curriculum": none, **change}
    return dataclasses.replace(config, **recipe)


def title(what: str) -> str:
    """Returns the title of a table with the sizes of the model."""
    config = published()
    return (
        f"{what}, d = {config.dim}, {config.num_layers} layers, width {config.width}, "
        f"{config.num_points} points, batch {config.batch_size}"
    )


def chunks(config: Config, steps: int) -> Iterator[training.Chunk]:
    """Trains without end, ``steps`` steps at a time."""
    setup = set_up(config, devices=1)
    step, state = training_step(setup), initial_state(setup)
    return training.run(step, state, 10**6, chunk_steps=steps)


def step_floor(config: Config, models: int, state: Any) -> float:
    """Returns the least seconds of a step: all products, the state read and written."""
    # A token costs 24 width^2 a layer in dense products and 4 T width in attention, and
    # the read-in; the backward pass costs twice the forward pass.
    tokens, width = 2 * config.num_points, config.width
    layers = config.num_layers * (24 * width**2 + 4 * tokens * width)
    flops = 3.0 * config.batch_size * tokens * (layers + 2 * config.dim * width)
    return floor(
        models * flops,
        2 * nbytes(state),
        dtype="bfloat16" if config.precision == "bfloat16" else "float32",
        exact=config.precision == "float32",
    )
