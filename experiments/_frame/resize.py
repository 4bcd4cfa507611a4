"""Resizes a recipe: fields that depend on the size are adapted to it.

``--steps 200`` of a recipe with 500 warm-up steps, or ``--dim 2`` of one whose
curriculum ends at 5 dimensions, would otherwise be refused for a field that the user
never named. An option that names such a field still overrides what is derived here.
"""

import argparse
import dataclasses
from typing import Any, TypeVar

from icltheory.training import Curriculum, OptimizerConfig, Ramp

Config = TypeVar("Config")

# Fields that follow the size of the recipe they belong to.
_PARTS = (OptimizerConfig, Curriculum)


def resized(config: Config, args: list[str], inside: str = "") -> Config:
    """Returns the config as changed by ``--task``, ``--steps`` and ``--dim``.

    So is each recipe inside of it by its own options, such as ``--recipe.steps``. A
    config with the method ``of_task`` says itself what a task changes. The warm-up
    keeps its share of the steps. Prompts keep their number of points for each
    dimension, and a curriculum its share of both.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument(f"--{inside}steps", type=int, dest="steps")
    parser.add_argument(f"--{inside}dim", type=int, dest="dim")
    parser.add_argument(f"--{inside}task", dest="task")
    try:
        asked, _ = parser.parse_known_args(args)
    except argparse.ArgumentError:
        return config  # the full parser reports the error later
    if asked.task not in (None, getattr(config, "task", None)):
        of_task: Any = getattr(config, "of_task", lambda _: config)
        config = of_task(asked.task)
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part) and not isinstance(part, _PARTS):
            name = field.name.replace("_", "-")
            new = resized(part, args, f"{inside}{name}.")
            changes |= {field.name: new} if new is not part else {}
    if _differs(config, "steps", asked.steps):
        changes |= _for_steps(config, asked.steps)
    if _differs(config, "dim", asked.dim):
        changes |= _for_dim(config, asked.dim)
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore


def _differs(config, field, value):
    return value is not None and value >= 1 and hasattr(config, field)


def _for_steps(config, steps):
    changes: dict[str, Any] = {"steps": steps}
    optimizer: Any = getattr(config, "optimizer", None)
    if hasattr(optimizer, "warmup_steps"):
        warmup = optimizer.warmup_steps * steps // config.steps
        changes["optimizer"] = dataclasses.replace(optimizer, warmup_steps=warmup)
    return changes


def _for_dim(config, dim):
    changes: dict[str, Any] = {"dim": dim}
    if hasattr(config, "num_points"):
        per_dim = (config.num_points - 1) / config.dim
        changes["num_points"] = round(per_dim * dim) + 1
    if isinstance(getattr(config, "curriculum", None), Curriculum):
        points = changes.get("num_points", config.curriculum.points.end)
        changes["curriculum"] = Curriculum(
            _ending_at(config.curriculum.dims, dim),
            _ending_at(config.curriculum.points, points),
        )
    return changes


def _ending_at(ramp: Ramp, end: int) -> Ramp:
    start = max(1, ramp.start * end // ramp.end)
    return dataclasses.replace(ramp, start=start, end=end)
