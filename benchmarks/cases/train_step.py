"""The training step of Garg's model, and the same step in eager PyTorch.

On a GPU the model is the published one (d = 20, 12 layers, 8 heads, width 256, 41
points), on a CPU that of the ``cpu`` preset. The difference is that of the gradient of
one batch at PyTorch's first weights.
"""

import dataclasses
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.garg import ADAM, PRESETS, chunks, published, set_up, step_floor, title
from benchmarks.suite import Pair, case, disagreement, on_gpu
from icltheory import training

SIZES = ("dim", "num_points", "width", "num_layers", "num_heads", "batch_size")
# Tolerance for the largest difference of two gradients, relative to the largest entry.
TOLERANCES = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}


def changes(gpu: bool) -> dict[str, tuple[dict[str, Any]]]:
    """Returns the cases by name, as changes of the published recipe."""
    muon = PRESETS["gpu" if gpu else "cpu"].optimizer
    muon = dataclasses.replace(muon, warmup_steps=0)
    if not gpu:
        found = {"Adam": {"optimizer": ADAM}, "Muon": {"optimizer": muon}}
    else:
        half = {"precision": "bfloat16"}
        found = {
            "Adam": {},
            "Adam, TF32": {"precision": "tf32"},
            "Adam, bfloat16": half,
            "Muon, bfloat16": {**half, "optimizer": muon},
            "Muon, bfloat16, batch 256": half | {"optimizer": muon, "batch_size": 256},
            "Adam, bfloat16, 8 seeds": {**half, "seeds": tuple(range(8))},
        }
    full = {"precision": "float32"}
    return {name: (full | change,) for name, change in found.items()}


@case(title("Training step"), changes(on_gpu()))
def bench_step(change: dict[str, Any]) -> Pair:
    config = published(**change)
    count, models = 100 if on_gpu() else 10, len(config.seeds)
    running = chunks(config, count)
    first = next(running)
    tokens = config.batch_size * 2 * config.num_points
    pair = Pair(
        lambda: next(running).metrics,
        per=count,
        floor=step_floor(config, models, (first.state.params, first.state.opt_state)),
        precision=config.precision,
        facts={"compile s": first.compile_seconds, "MiB": first.memory_bytes / 2**20},
        rates={"model-steps/s": models, "tokens/s": models * tokens},
    )
    if importlib.util.find_spec("torch") is None:
        note = "PyTorch is not installed: the group torch brings it"
        return dataclasses.replace(pair, note=note)
    from benchmarks.torch_trainer import Trainer

    trainer = Trainer(**{name: getattr(config, name) for name in SIZES})
    return dataclasses.replace(
        pair,
        alternative=lambda: [trainer.step() for _ in range(count)],
        label="eager PyTorch, Adam, float32",
        part=(1, models, "models"),
        error=gradient_difference(config, trainer),
        tolerance=TOLERANCES[config.precision],
    )


def gradient_difference(config, trainer) -> float:
    """Returns the difference of the gradients of one batch at PyTorch's weights."""
    setup = set_up(config, devices=1)
    X, y = (tensor.cpu().numpy() for tensor in trainer.prompts())
    positions = setup.model.num_positions
    params = jax.tree.map(jnp.asarray, trainer.parameters(positions))

    @jax.jit
    @jax.grad
    def gradient(params):
        guesses: Any = setup.model.apply({"params": params}, X, y)
        return training.in_context_loss(guesses, y, config.num_points)

    ours = gradient(params)
    trainer.gradient(X, y)
    theirs = trainer.parameters(positions, gradients=True)
    # Both are dictionaries, whose leaves are sorted by name.
    flat = (
        np.concatenate([*map(np.ravel, jax.tree.leaves(t))]) for t in (ours, theirs)
    )
    return disagreement(*flat)
