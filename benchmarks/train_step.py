"""The training step: seconds, share of the FLOP limit, compile time and memory.

Command
    python -m benchmarks.train_step
    uv run --group bench python -m benchmarks.train_step     # beside eager PyTorch

On a GPU the model is the published one (d = 20, 12 layers, 8 heads, width 256, 41
points, batch 64), on a CPU that of the ``cpu`` preset. PyTorch's step runs in the same
process just before ours; the difference is that of the gradient of one batch at
PyTorch's first weights.
"""

import dataclasses
import functools
import importlib.util
import statistics
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from experiments.garg_linear import PRESETS, initial_state, set_up, training_step
from icltheory import training
from icltheory.training import Curriculum, OptimizerConfig

SIZES = ("dim", "num_points", "width", "num_layers", "num_heads", "batch_size")
# Tolerance for the largest difference of two gradients, relative to the largest entry.
TOLERANCES = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures optimisers, and on a GPU precisions, a larger batch and eight seeds."""
    on_gpu = jax.default_backend() == "gpu"
    base = PRESETS["paper" if on_gpu else "cpu"]
    base = dataclasses.replace(base, batch_size=64, precision="float32")
    group = (
        f"Training step, d = {base.dim}, {base.num_layers} layers, width {base.width}, "
        f"{base.num_points} points, batch {base.batch_size}"
    )
    seconds = 25 if on_gpu else 22
    cases = [
        Case(name, seconds, functools.partial(row, dataclasses.replace(base, **change)))
        for name, change in changes(on_gpu).items()
    ]
    yield from each(group, budget, cases)


def changes(on_gpu: bool) -> dict[str, dict[str, Any]]:
    """Returns the cases by name, as changes of the config with float32 and batch 64."""
    adam = OptimizerConfig("adam", 1e-4)
    muon = PRESETS["gpu" if on_gpu else "cpu"].optimizer
    muon = dataclasses.replace(muon, warmup_steps=0)
    in_float32 = {"Adam": {"optimizer": adam}, "Muon": {"optimizer": muon}}
    if not on_gpu:
        return in_float32
    fast = {"optimizer": adam, "precision": "bfloat16"}
    quick_muon = {**fast, "optimizer": muon}
    return {
        "Adam": in_float32["Adam"],
        "Adam, TF32": {"optimizer": adam, "precision": "tf32"},
        "Adam, bfloat16": fast,
        "Muon, bfloat16": quick_muon,
        "Muon, bfloat16, batch 256": {**quick_muon, "batch_size": 256},
        "Adam, bfloat16, 8 seeds": {**fast, "seeds": tuple(range(8))},
    }


def row(config) -> BenchmarkRow:
    """Times PyTorch's training step, then ours."""
    on_gpu = jax.default_backend() == "gpu"
    plain, models = torch_row(config), len(config.seeds)
    got = train(config, *((100, 6) if on_gpu else (25, 4)))
    sizes = {name: getattr(config, name) for name in SIZES if name != "num_heads"}
    dtype = "bfloat16" if config.precision == "bfloat16" else "float32"
    precision = "highest" if config.precision == "float32" else None
    # Weights and moments are read and written once.
    floor = _measure.floor(
        models * _measure.gpt2_train_flops(**sizes),
        2 * got.pop("state bytes"),
        dtype=dtype,
        precision=precision,
    )
    ours = got.pop("step s")
    tokens = models * config.batch_size * 2 * config.num_points
    facts = {"model-steps/s": models / ours, "tokens/s": tokens / ours, **got}
    if plain.alternative_s is not None:
        seconds = plain.alternative_s * models
        plain = dataclasses.replace(plain, alternative_s=seconds)
    changed = {"ours_s": ours, "floor_s": floor, "precision": config.precision}
    return dataclasses.replace(plain, **changed, facts=facts)


def train(config, chunk_steps: int, chunks: int) -> dict[str, float]:
    """Trains for a few chunks and returns speed, compile time and memory."""
    config = dataclasses.replace(
        config,
        curriculum=Curriculum.none(config.dim, config.num_points),
        steps=chunk_steps * chunks,
    )
    setup = set_up(config, devices=1)
    step, state = training_step(setup), initial_state(setup)
    held = _measure.nbytes(state.params, state.opt_state)
    times, compiling, memory = [], 0.0, 0
    for chunk in training.run(step, state, config.steps, chunk_steps=chunk_steps):
        times.append(chunk.seconds / chunk_steps)
        compiling += chunk.compile_seconds
        memory = chunk.memory_bytes
    # The first chunk is a warm-up.
    facts = {"compile s": compiling, "MiB": memory / 2**20}
    step_seconds = statistics.median(times[1:] or times)
    return {"step s": step_seconds, "state bytes": held, **facts}


def torch_row(config) -> BenchmarkRow:
    """Times PyTorch's step and measures the difference of the gradients."""
    if importlib.util.find_spec("torch") is None:
        return BenchmarkRow(note="PyTorch is not installed: the group bench brings it")
    from benchmarks import torch_trainer

    trainer = torch_trainer.Trainer(**{name: getattr(config, name) for name in SIZES})
    error = gradient_difference(config, trainer)
    return BenchmarkRow(
        alternative="eager PyTorch, Adam, float32",
        alternative_s=_measure.seconds(trainer.step, repeats=30),
        error=error,
        tolerance=TOLERANCES[config.precision],
    )


def gradient_difference(config, trainer) -> float:
    """Returns the difference of the gradients of one batch at PyTorch's weights."""
    setup = set_up(config, devices=1)
    X, y = (tensor.cpu().numpy() for tensor in trainer.prompts())
    positions = setup.model.num_positions
    params = jax.tree.map(jnp.asarray, trainer.parameters(positions))

    @jax.jit
    def gradient(params):
        def loss(params):
            guesses: Any = setup.model.apply({"params": params}, X, y)
            return training.in_context_loss(guesses, y, config.num_points)

        return jax.grad(loss)(params)

    ours = gradient(params)
    trainer.gradient(X, y)
    theirs = trainer.parameters(positions, gradients=True)
    # Both are dictionaries, whose leaves are sorted by name.
    flat = (
        np.concatenate([np.ravel(a) for a in leaves])
        for leaves in map(jax.tree.leaves, (ours, theirs))
    )
    return _measure.disagreement(*flat)


if __name__ == "__main__":
    _alone.main(measure)
