"""Training an ensemble in one program, compared with training its members one by one.

Command
    python -m benchmarks.ensemble

On a GPU the model is the published one (d = 20, 12 layers, 8 heads, width 256, 41
points, batch 64) in bfloat16, on a CPU that of the ``cpu`` preset in float32, both with
Adam. The alternative is the same training of as many models one after another, compiled
once, in turns with the fused program; the difference is that of a member's losses from
those of the model trained alone.
"""

import dataclasses
import functools
import statistics
from collections.abc import Iterator

import jax
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from experiments.garg_linear import PRESETS, set_up
from icltheory import training
from icltheory.training import Curriculum, Ensemble, OptimizerConfig

RATES = (1e-4, 2e-4)
MEMBERS = (8, 4, 2, 1)
SIZES = ("dim", "num_points", "width", "num_layers", "batch_size")
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2}


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures one, two, four and eight members, starting with the most."""
    on_gpu = jax.default_backend() == "gpu"
    config = dataclasses.replace(
        PRESETS["paper" if on_gpu else "cpu"],
        batch_size=64,
        optimizer=OptimizerConfig("adam", RATES[0]),
        precision="bfloat16" if on_gpu else "float32",
    )
    config = dataclasses.replace(
        config, curriculum=Curriculum.none(config.dim, config.num_points)
    )
    group = (
        f"Ensembles, d = {config.dim}, {config.num_layers} layers, "
        f"width {config.width}, {config.num_points} points, batch {config.batch_size}"
    )
    chunk_steps = 100 if on_gpu else 10
    setup = set_up(config, devices=1)
    single = Single(config, setup, chunk_steps)
    kinds: list[tuple[int, int | None]] = [(count, None) for count in MEMBERS]
    if not on_gpu:
        # By default a CPU trains one member at a time; this case shows the reason.
        kinds.append((MEMBERS[0], MEMBERS[0]))
    cases = [
        Case(
            name_of(count, at_once),
            (40 if on_gpu else 8) + 1.5 * count,
            functools.partial(row, single, ensemble_of(count), at_once),
        )
        for count, at_once in kinds
    ]
    yield from each(group, budget, cases)


def name_of(count: int, at_once: int | None) -> str:
    """Name of a row of the table."""
    batched = ", products batched" if at_once is not None else ""
    return f"{count} member{'s' * (count > 1)}{batched}"


def ensemble_of(count: int) -> Ensemble:
    """Returns an ensemble of ``count`` members with up to two learning rates."""
    rates = RATES[: min(count, len(RATES))]
    return Ensemble(tuple(range(count // len(rates))), learning_rates=rates)


class Single:
    """Trains the ensemble's first member alone, chunk by chunk."""

    def __init__(self, config, setup, chunk_steps: int):
        self.config, self.setup, self.chunk_steps = config, setup, chunk_steps

    @functools.cached_property
    def chunks(self) -> Iterator[training.Chunk]:
        config, setup = self.config, self.setup
        optimizer = training.make_optimizer(config.optimizer, config.steps)
        state = training.init_state(
            setup.model, setup.task, optimizer, 0, num_points=config.num_points
        )
        step = training.make_step(
            setup.model,
            setup.task,
            optimizer,
            config.curriculum,
            batch_size=config.batch_size,
            num_points=config.num_points,
        )
        return training.run(step, state, 10**6, chunk_steps=self.chunk_steps)

    @functools.cached_property
    def first_losses(self) -> np.ndarray:
        """Losses of the first chunk, to compare with those of the ensemble's member."""
        return np.asarray(next(self.chunks).metrics["loss"])

    def seconds(self, count: int) -> float:
        """Returns the time of one step of ``count`` models, one after the other."""
        return sum(next(self.chunks).seconds for _ in range(count)) / self.chunk_steps


def row(
    single: Single, ensemble: Ensemble, at_once: int | None, chunks: int = 4
) -> BenchmarkRow:
    """Times the ensemble's program and the single model's program in alternation."""
    config, setup, count = single.config, single.setup, len(ensemble)
    args = setup.model, setup.task, config.optimizer, ensemble
    sizes = {"num_steps": config.steps, "num_points": config.num_points}
    state = training.init_ensemble(*args, **sizes)
    held = _measure.nbytes(state)
    step = training.make_ensemble_step(
        *args,
        config.curriculum,
        **sizes,
        batch_size=config.batch_size,
        at_once=at_once,
    )
    total = single.chunk_steps * chunks
    fused = training.run(step, state, total, chunk_steps=single.chunk_steps)
    first = next(fused)
    error = _measure.disagreement(
        np.asarray(first.metrics["loss"])[:, 0], single.first_losses
    )
    times, alternatives = [], []
    for chunk in fused:
        times.append(chunk.seconds / single.chunk_steps)
        alternatives.append(single.seconds(count))
    ours, alternative = statistics.median(times), statistics.median(alternatives)
    return BenchmarkRow(
        ours_s=ours,
        alternative="one model after another",
        alternative_s=alternative,
        floor_s=_floor(config, count, held),
        precision=config.precision,
        error=error,
        tolerance=TOLERANCES[config.precision],
        facts={
            "model-steps/s": count / ours,
            "compile s": first.compile_seconds,
            "MiB": first.memory_bytes / 2**20,
        },
    )


def _floor(config, count: int, state_bytes: int) -> float:
    """Hardware limit: all matrix products, and one pass over weights and moments."""
    sizes = {name: getattr(config, name) for name in SIZES}
    exact = config.precision == "float32"
    return _measure.floor(
        count * _measure.gpt2_train_flops(**sizes),
        2 * state_bytes,
        dtype=config.precision,
        precision="highest" if exact else None,
    )


if __name__ == "__main__":
    _alone.main(measure)
