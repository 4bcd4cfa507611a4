"""Resizes a recipe: fields that depend on the size are adapted to it.

``--steps 200`` of a recipe with 500 warm-up steps, or ``--dim 2`` of one whose
curriculum ends at 5 dimensions, would otherwise be refused for a field that the user
never named. An option that names such a field still overrides what is derived here.
"""

import argparse
import dataclasses
from typing import Any, TypeVar

from icltheory.training import Curriculum, Ramp

Config = TypeVar("Config")


def resized(config: Config, args: list[str]) -> Config:
    """Returns the config as changed by ``--task``, ``--steps`` and ``--dim``.

    Options such as ``--recipe.steps`` change the warm-up of that recipe likewise. A
    config with the method ``of_task`` says itself what a task changes. The warm-up
    keeps its share of the steps. Prompts keep their number of points for each
    dimension, and a curriculum its share of both.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--steps", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--task")
    try:
        asked, _ = parser.parse_known_args(args)
    except argparse.ArgumentError:
        return config  # the full parser reports the error later
    if asked.task not in (None, getattr(config, "task", None)):
        of_task: Any = getattr(config, "of_task", lambda _: config)
        config = of_task(asked.task)
    changes: dict[str, Any] = {}
    if _differs(config, "steps", asked.steps):
        changes |= _for_steps(config, asked.steps)
    if _differs(config, "dim", asked.dim):
        changes |= _for_dim(config, asked.dim)
    if changes:
        config = dataclasses.replace(config, **changes)  # type: ignore
    for field in dataclasses.fields(config):  # type: ignore
        config = _inside(config, field.name, args)
    return config


def _inside(config, field, args):
    """Returns a config whose recipe of that name has the steps that are asked for."""
    part = getattr(config, field)
    if not hasattr(getattr(part, "optimizer", None), "warmup_steps"):
        return config
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument(f"--{field.replace('_', '-')}.steps", type=int, dest="steps")
    try:
        asked, _ = parser.parse_known_args(args)
        if not _differs(part, "steps", asked.steps):
            return config
        part = dataclasses.replace(part, **_for_steps(part, asked.steps))
        return dataclasses.replace(config, **{field: part})
    except (argparse.ArgumentError, ValueError):
        return config  # other options may still make it fit


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
