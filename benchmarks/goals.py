"""Speed and error goals for training Garg's model in a minute on one GPU.

Command
    python -m benchmarks.goals
    python -m benchmarks.goals --profile    # and where a step's time goes
    python -m benchmarks.goals --preset cpu --seconds 30   # the same of a small model

Speeds are those of the published model and batch (Adam, bfloat16), compilation left
out. Errors are those of the preset, trained from scratch once for every seed, by as
many of its steps as end within the seconds: the speed is measured first, the schedule
is that of the steps that fit, and compiling counts. About eight minutes on an H200.
"""

import argparse
import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import _alone, _table
from benchmarks._profile import Spent, profile
from experiments.frame import Run
from experiments.garg_linear import (
    PRESETS,
    Config,
    Setup,
    evaluation_prompt,
    initial_state,
    model_errors,
    set_up,
    stacked,
    training_step,
)
from icltheory import training
from icltheory.training import Curriculum, OptimizerConfig

SECONDS, SEEDS, MODELS, LONGEST = 90.0, (0, 1, 2), 8, 25
# Goals for the published model on one H200: 16 times the speed of the published
# trainer, and its errors after 500,001 steps at k = d and k = 2 d.
STEPS_PER_SECOND, MODEL_STEPS_PER_SECOND, ERRORS = 800.0, 1000.0, (0.02, 0.0006)


@dataclasses.dataclass(frozen=True)
class Goal:
    """One goal: the measured number and the number it should reach.

    Attributes:
        name: What was measured.
        reached: The number.
        asked: What it was to be; ``None`` where nothing was.
        at_least: Whether more is better.
        note: How it was reached.
    """

    name: str
    reached: float
    asked: float | None = None
    at_least: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; false for NaN and ``None`` without a target."""
        if math.isnan(self.reached):
            return False
        if self.asked is None:
            return None
        if self.at_least:
            return self.reached >= self.asked
        return self.reached <= self.asked


def speeds(preset: Config, steps: int = 100) -> Iterator[Goal]:
    """Measures steps per second of one model and of eight models in one program."""
    base = dataclasses.replace(
        preset,
        batch_size=64,
        optimizer=OptimizerConfig("adam", 1e-4),
        curriculum=Curriculum.none(preset.dim, preset.num_points),
        targets="labels",
        chunk_steps=steps,
        steps=4 * steps,
    )
    names = "steps/s, batch 64", f"model-steps/s, {MODELS} models"
    for count, name, asked in zip((1, MODELS), names, _asked(base)[:2], strict=True):
        config = dataclasses.replace(base, seeds=tuple(range(count)))
        goal = Goal(name, math.nan, asked)
        yield from guarded(_speed(config, goal), goal)


def _speed(config: Config, goal: Goal) -> Iterator[Goal]:
    step_seconds, compiling = pace(set_up(config, devices=1))
    note = f"{_table.duration(step_seconds)} a step, "
    note += f"compile {_table.duration(compiling)}"
    speed = len(config.seeds) / step_seconds
    yield dataclasses.replace(goal, reached=speed, note=note)


def errors(preset: Config, seconds: float, seeds: Iterable[int]) -> Iterator[Goal]:
    """Trains once per seed within the given time and yields the final errors."""
    step_seconds, compiling = pace(set_up(preset, devices=1), 2)
    steps = steps_within(preset, seconds, step_seconds, compiling)
    for seed in seeds:
        config = dataclasses.replace(shortened(preset, steps), seeds=(seed,))
        note = f"{steps:,} of {preset.steps:,} steps of {config.batch_size}"
        at_most = _asked(preset, seconds)[-1]
        goal = Goal(f"seconds, seed {seed}", math.nan, at_most, False, note)
        yield from guarded(_trained(config, goal), goal)


def _trained(config: Config, goal: Goal) -> Iterator[Goal]:
    """Trains one model and yields its errors and its training time."""
    setup = set_up(config, devices=1)
    took = compiling = 0.0
    for chunk in chunks(setup):
        took += chunk.seconds + chunk.compile_seconds
        compiling += chunk.compile_seconds
    params = stacked(setup, chunk.state)
    found = model_errors(setup, params, evaluation_prompt(setup))[0].mean(axis=0)
    for k, most in zip((config.dim, 2 * config.dim), _asked(config)[2:4], strict=True):
        name = f"error at k = {k}, seed {config.seeds[0]}"
        yield Goal(name, float(found[k]), most, False, goal.note)
    spent = f"of them compiling {_table.duration(compiling)}"
    yield dataclasses.replace(goal, reached=took, note=spent)


def guarded(found: Iterable[Goal], missed: Goal) -> Iterator[Goal]:
    """Yields the goals, and a missed goal if the measurement raises an exception."""
    try:
        yield from found
    except Exception as error:  # a compiler can fail in many ways
        said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        note = f"{missed.note}: {said}" if missed.note else said
        yield dataclasses.replace(missed, reached=math.nan, note=note)


def steps_within(
    config: Config, seconds: float, step_seconds: float, compiling: float
) -> int:
    """Returns the number of steps that fit into the time, with a margin of a tenth.

    Raises:
        ValueError: if not one does.
    """
    most = int((0.9 * seconds - compiling) / step_seconds / config.chunk_steps)
    if most < 1:
        raise ValueError(
            f"seconds: expected enough for a chunk of {config.chunk_steps} steps, got "
            f"{seconds:g}, where compiling takes {_table.duration(compiling)} and a "
            f"step {_table.duration(step_seconds)}"
        )
    return min(most * config.chunk_steps, config.steps)


def shortened(config: Config, steps: int) -> Config:
    """Shortens a training, with warm-up and curriculum in the same proportion."""
    rule, stairs = config.optimizer, config.curriculum

    def part(count):
        return round(count * steps / config.steps)

    def sooner(ramp):
        return dataclasses.replace(ramp, interval=max(part(ramp.interval), 1))

    return dataclasses.replace(
        config,
        steps=steps,
        optimizer=dataclasses.replace(rule, warmup_steps=part(rule.warmup_steps)),
        curriculum=dataclasses.replace(
            stairs, dims=sooner(stairs.dims), points=sooner(stairs.points)
        ),
    )


def pace(setup: Setup, count: int = 4) -> tuple[float, float]:
    """Returns the smallest measured time per step, and the compile time."""
    config, found, compiling = setup.config, [], 0.0
    for chunk in chunks(setup, min(count * config.chunk_steps, config.steps)):
        found.append(chunk.seconds / len(chunk.metrics["loss"]))
        compiling += chunk.compile_seconds
    return min(found), compiling


def longest(setup: Setup) -> Table:
    """Builds a table of the operations that take most of a training step's time."""
    steps = setup.config.chunk_steps
    running = chunks(setup, 2 * steps)
    next(running)
    return longest_of(profile(lambda: next(running).metrics), steps)


def longest_of(spent: list[Spent], steps: int) -> Table:
    """Builds that table of a profile of so many steps."""
    total = sum(one.seconds for one in spent)
    table = Table(
        title=f"A step: {_table.duration(total / steps)} on the device in "
        f"{sum(one.calls for one in spent) / steps:.0f} operations",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("kind", "operations", "time", "share"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for one in spent[:LONGEST]:
        table.add_row(
            _table.escaped(one.name[:80]),
            f"{one.calls / steps:.1f}",
            _table.duration(one.seconds / steps),
            f"{one.seconds / total:.1%}",
        )
    return table


def table_of(goals: list[Goal]) -> Table:
    """Builds the table of goals and measured numbers."""
    table = Table(title="The goals", title_justify="left", box=SIMPLE_HEAD)
    for name in ("goal", "asked", "reached", "met", "how"):
        side = "right" if name in ("asked", "reached") else "left"
        table.add_column(name, justify=side)
    for goal in goals:
        asked = "-"
        if goal.asked is not None:
            limit = "at least" if goal.at_least else "at most"
            asked = f"{limit} {_table.number(goal.asked)}"
        met = {True: "yes", False: "NO", None: "-"}[goal.met]
        style = "red" if goal.met is False else None
        reached = _table.number(goal.reached)
        table.add_row(goal.name, asked, reached, met, goal.note, style=style)
    return table


def _asked(config: Config, seconds: float = SECONDS) -> tuple[float | None, ...]:
    """Returns the targets, which exist for the published model on a GPU only."""
    if jax.default_backend() != "gpu" or config.dim != PRESETS["paper"].dim:
        return (None,) * 5
    return STEPS_PER_SECOND, MODEL_STEPS_PER_SECOND, *ERRORS, seconds


def chunks(setup: Setup, steps: int | None = None) -> Iterator[training.Chunk]:
    """Trains from the start for so many steps, all of the config's unless given."""
    steps = setup.config.steps if steps is None else steps
    return training.run(
        training_step(setup),
        initial_state(setup),
        steps,
        chunk_steps=min(setup.config.chunk_steps, steps),
    )


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Measures all goals, prints each when it is known and the table at the end."""
    _alone.require_device()
    parser = argparse.ArgumentParser(description="See the head of this module.")
    known = "gpu" if jax.default_backend() == "gpu" else "cpu"
    parser.add_argument("--preset", choices=("cpu", "gpu"), default=known)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--output", type=Path, help="JSON of the table")
    flags = parser.parse_args(argv)
    preset = PRESETS[flags.preset]
    console, goals = Console(highlight=False), []
    if not console.is_terminal:
        console.width = 120

    def seen(found: Iterator[Goal], name: str) -> list[dict[str, Any]]:
        # Goals are stored when they are known, so that a later failure does not lose
        # them.
        records: list[dict[str, Any]] = []
        for goal in guarded(found, Goal(name, math.nan)):
            console.print(f"  {goal.name}: {_table.number(goal.reached)}; {goal.note}")
            goals.append(goal)
            records = [{**dataclasses.asdict(one), "met": one.met} for one in goals]
            if flags.output is not None:
                Run(flags.output.parent).write_json(flags.output.name, records)
        return records

    seen(speeds(preset), "speeds")
    if flags.profile:
        # The profile comes before the trainings, which use all of the time they are
        # given.
        try:
            console.print(longest(set_up(preset, devices=1)))
        except Exception as error:
            console.print(f"profile: {type(error).__name__}: {error}", markup=False)
    records = seen(errors(preset, flags.seconds, flags.seeds), "errors")
    console.print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    console.print(table_of(goals))
    return records


if __name__ == "__main__":
    main()
