"""The training step: steps/s, tokens/s, share of the FLOP floor, compile time, memory.

Command
    python -m benchmarks.train_step
    uv run --group bench python -m benchmarks.train_step     # beside eager PyTorch

On a GPU the model is the published one (d = 20, 12 layers, 8 heads, width 256, 41
points, batch 64), on a CPU that of the ``cpu`` preset. A few minutes either way.
"""

import dataclasses
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import _measure
from experiments.garg_linear import PRESETS, set_up
from experiments.garg_linear.train import initial_state, training_step
from icltheory import training
from icltheory.training import Curriculum, OptimizerConfig


def measure(config, chunk_steps: int, chunks: int) -> dict:
    """Trains a little and reports the loop's speed."""
    config = dataclasses.replace(
        config,
        curriculum=Curriculum.none(config.dim, config.num_points),
        steps=chunk_steps * chunks,
    )
    setup = set_up(config, devices=1)
    step, state = training_step(setup), initial_state(setup)
    times, compiling, memory = [], 0.0, 0
    for chunk in training.run(step, state, config.steps, chunk_steps=chunk_steps):
        times.append(chunk.seconds / chunk_steps)
        compiling += chunk.compile_seconds
        memory = chunk.memory_bytes
    precision = "highest" if config.precision == "float32" else None
    dtype = jnp.bfloat16 if config.precision == "bfloat16" else jnp.float32
    flops = len(config.seeds) * _measure.gpt2_train_flops(
        batch_size=config.batch_size,
        num_points=config.num_points,
        dim=config.dim,
        width=config.width,
        num_layers=config.num_layers,
    )
    fastest = sorted(times[1:] or times)
    per_step = fastest[len(fastest) // 2]
    floor = flops / _measure.peak_flops(dtype, precision)
    return {
        "ms": per_step * 1e3,
        "models": len(config.seeds) / per_step,
        "tokens": len(config.seeds)
        * config.batch_size
        * 2
        * config.num_points
        / per_step,
        "share": floor / per_step,
        "compile": compiling,
        "memory": memory / 2**20,
    }


def main() -> None:
    on_gpu = jax.default_backend() == "gpu"
    base = dataclasses.replace(
        PRESETS["paper" if on_gpu else "cpu"], batch_size=64, precision="float32"
    )
    adam = OptimizerConfig("adam", 1e-4)
    muon = PRESETS["gpu" if on_gpu else "cpu"].optimizer
    muon = dataclasses.replace(muon, warmup_steps=0)
    eight = tuple(range(8))
    cases: dict[str, dict[str, Any]] = {"Adam, float32": {"optimizer": adam}}
    if on_gpu:
        cases["Adam, TF32"] = {"optimizer": adam, "precision": "tf32"}
        cases["Adam, bfloat16"] = {"optimizer": adam, "precision": "bfloat16"}
        cases["Muon, bfloat16"] = {"optimizer": muon, "precision": "bfloat16"}
        cases["Muon, bfloat16, batch 256"] = {
            **cases["Muon, bfloat16"],
            "batch_size": 256,
        }
        cases["Adam, bfloat16, 8 seeds"] = {**cases["Adam, bfloat16"], "seeds": eight}
    else:
        cases["Muon, float32"] = {"optimizer": muon}
    chunk_steps, chunks = (100, 6) if on_gpu else (25, 5)

    torch_ms = None
    rows = []
    if importlib.util.find_spec("torch") is not None:
        from benchmarks import torch_trainer

        sizes = ("dim", "num_points", "width", "num_layers", "num_heads", "batch_size")
        torch_ms = 1e3 * torch_trainer.step_seconds(
            **{name: getattr(base, name) for name in sizes}, steps=50
        )
        tokens = base.batch_size * 2 * base.num_points / torch_ms * 1e3
        rows.append(
            ["eager PyTorch, Adam, float32", torch_ms, 1e3 / torch_ms, tokens]
            + 4 * [None]
        )
    for name, change in cases.items():
        got = measure(dataclasses.replace(base, **change), chunk_steps, chunks)
        speed = got["models"] * torch_ms / 1e3 if torch_ms else None
        if "batch 256" in name and speed:
            speed *= 4
        rows.append(
            [
                name,
                got["ms"],
                got["models"],
                got["tokens"],
                got["share"],
                got["compile"],
            ]
            + [got["memory"], speed]
        )
    _measure.table(
        f"training step on {jax.devices()[0].device_kind}: d = {base.dim}, "
        f"{base.num_layers} layers, width {base.width}, {base.num_points} points, "
        "batch 64",
        ["", "ms/step", "model-steps/s", "tokens/s", "share of FLOP floor"]
        + ["compile s", "MiB", "x PyTorch"],
        rows,
    )
    if torch_ms is None:
        print("PyTorch is not installed: uv run --group bench measures it beside ours.")


if __name__ == "__main__":
    main()
