"""Configs: checks of their fields, sizes that follow others, stored and extended runs.

``--steps 200`` of a recipe with 500 warm-up steps, or ``--dim 2`` of one whose
curriculum ends at 5 dimensions, would be refused for a field that the user never named.
So these fields are resized, unless an option names them too.
"""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

Config = TypeVar("Config")
STEPS = "steps"


RULES: dict[str, Callable[[Any], bool]] = {
    "above 0": lambda x: x > 0,
    "in (0, 1)": lambda x: 0 < x < 1,
    "in (0, 1]": lambda x: 0 < x <= 1,
    "in [0, 1)": lambda x: 0 <= x < 1,
    "in [0, 1]": lambda x: 0 <= x <= 1,
}


def check_each(config: Any, rule: str, *names: str) -> None:
    """Raises unless every named field, or each of its values, fulfils one of RULES."""
    _check(config, names, RULES[rule], rule, "a number ")


def check_at_least(config: Any, least: float, *names: str) -> None:
    """Raises unless every named field, or each of its values, is at least ``least``."""
    _check(config, names, lambda value: value >= least, f"at least {least}")


def _check(
    config: Any, names: Sequence[str], fits: Callable, rule: str, one=""
) -> None:
    for name in names:
        given = getattr(config, name)
        several = isinstance(given, Sequence)
        right = len(given) > 0 and all(map(fits, given)) if several else fits(given)
        start = "at least one value, each " if several else one
        expect(right, name, start + rule, given)


def check_ascending(config: Any, *names: str) -> None:
    """Raises unless every named field has ascending whole numbers from 1 on."""
    for name in names:
        given = getattr(config, name)
        right = [*given] == sorted({*given}) and min(given, default=0) >= 1
        expect(right, name, "ascending whole numbers >= 1", given)


def expect(is_right: bool, name: str, expected: str, value: Any) -> None:
    """Raises for a field of a config, saying what was expected and what was got."""
    if not is_right:
        got = f"{value:g}" if isinstance(value, float) else value
        raise ValueError(f"{name}: expected {expected}, got {got}")


def check_seeds(name: str, seeds: Sequence[int]) -> None:
    """Raises unless there are two seeds or more, and no two the same."""
    wanted = "at least two seeds, all distinct (for standard errors)"
    expect(len(set(seeds)) >= max(len(seeds), 2), name, wanted, seeds)


def experiment_of(config: Any) -> tuple[str, str]:
    """Returns name and first docstring line of the experiment that defines a config."""
    module = type(config).__module__
    name = where = ".".join(module.split(".")[:2])
    if module == "__main__":  # an experiment of one file, as a program
        name = getattr(sys.modules[module].__spec__, "name", module)
    text = getattr(sys.modules.get(where), "__doc__", None) or ""
    return name.rpartition(".")[2], text.partition("\n")[0]


def resized(config: Any, argv: Sequence[str]) -> Any:
    """Returns the config as changed by ``--task``, ``--dim`` and ``--steps``.

    Points, curriculum and warm-up keep their shares, also of a recipe inside the
    config. A config with the method ``of_task`` says itself what a task changes.
    """
    task, dim = _asked(argv, "task"), _size(argv, "dim")
    if task not in (None, getattr(config, "task", None)) and hasattr(config, "of_task"):
        config = config.of_task(task)
    if dim and hasattr(config, "dim") and hasattr(config, "num_points"):
        points = round((config.num_points - 1) / config.dim * dim) + 1
        changes: dict[str, Any] = {"dim": dim, "num_points": points}
        old: Any = getattr(config, "curriculum", None)
        if hasattr(old, "dims"):
            ramps = {"dims": (old.dims, dim), "points": (old.points, points)}
            ramps = {name: _ending_at(*ramp) for name, ramp in ramps.items()}
            changes["curriculum"] = dataclasses.replace(old, **ramps)
        config = dataclasses.replace(config, **changes)
    config = _of_steps(config, _size(argv, STEPS))
    for name in [field.name for field in dataclasses.fields(config)]:
        if steps := _size(argv, f"{name}.{STEPS}"):
            with contextlib.suppress(ValueError):  # other options may still make it fit
                part = _of_steps(getattr(config, name), steps)
                config = dataclasses.replace(config, **{name: part})
    return config


def _of_steps(record: Any, steps: int | None) -> Any:
    optimizer: Any = getattr(record, "optimizer", None)
    if steps is None or not hasattr(optimizer, "warmup_steps"):
        return record
    warmup = optimizer.warmup_steps * steps // record.steps
    optimizer = dataclasses.replace(optimizer, warmup_steps=warmup)
    return dataclasses.replace(record, steps=steps, optimizer=optimizer)


def _ending_at(ramp: Any, end: int) -> Any:
    start = max(1, ramp.start * end // ramp.end)
    return dataclasses.replace(ramp, start=start, end=end)


def _asked(argv: Sequence[str], name: str) -> str | None:
    """Returns the last value of an option on a command line."""
    found, option = None, f"--{name}".replace("_", "-")
    for word, following in zip(argv, [*argv, None][1:], strict=True):
        given, equals, value = word.partition("=")
        if given.replace("_", "-") == option:
            found = value if equals else following
    return found


def _size(argv: Sequence[str], name: str) -> int | None:
    """Returns the last value of an option if it is 1 or more; tyro refuses others."""
    with contextlib.suppress(ValueError):
        return max(0, int(_asked(argv, name) or 0)) or None
    return None


def read_config(run: Path, example: Config) -> Config:
    """Reads the config of a run folder; ``example`` is a config of that experiment.

    A field that came after the run was begun has its default, and stderr says so.
    """
    path, own, added = run / "config.json", experiment_of(example)[0], {}
    try:
        stored = json.loads(path.read_text())
        found = stored.get("experiment")
        if found not in (None, own):
            raise ValueError(f"it is a run of {found}, not of {own}")
        config = _build(type(example), stored["config"], added)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected a run folder with a readable config.json, got {run} "
            f"({type(error).__name__}: {error})"
        ) from error
    if added:
        defaults = ", ".join(f"{name} = {value}" for name, value in added.items())
        print(f"warning: {path} lacks newer fields: {defaults}", file=sys.stderr)
    return config


def _build(kind: Any, values: Any, added: dict[str, Any], at: str = "") -> Any:
    """Rebuilds nested dataclasses; ``added`` collects the fields left at defaults."""
    if not dataclasses.is_dataclass(kind):
        return tuple(values) if isinstance(values, list) else values
    kinds = {field.name: field.type for field in dataclasses.fields(kind)}
    if gone := sorted(set(values) - set(kinds)):
        names = ", ".join(at + name for name in gone)
        raise ValueError(f"unknown fields in the stored config: {names}")
    parts = {k: _build(kinds[k], v, added, f"{at}{k}.") for k, v in values.items()}
    built = kind(**parts)
    added |= {f"{at}{k}": getattr(built, k) for k in kinds if k not in values}
    return built


def changes_between(stored: Any, asked: Any, at: str = "") -> Iterator[tuple]:
    """Yields (path, record that has the field, value, other value) of differences."""
    for field in dataclasses.fields(stored):
        path = f"{at}{field.name}"
        before, after = getattr(stored, field.name), getattr(asked, field.name)
        if dataclasses.is_dataclass(before) and type(before) is type(after):
            yield from changes_between(before, after, f"{path}.")
        elif before != after:
            yield path, stored, before, after


def extends(run: Path, stored: Any, asked: Any) -> bool:
    """Whether a command line extends a run, as ``--resume RUN --steps MORE`` does.

    The record that has the field ``steps`` and the whole config say by
    ``needs_all_steps()`` what depends on the number of all steps, if anything.
    """
    changes = list(changes_between(stored, asked))
    other = [
        f"{path}={after} (stored {before})"
        for path, _, before, after in changes
        if path.rpartition(".")[2] != STEPS
    ]
    got = f"{'; '.join(other)}; leave these options out"
    expect(not other, "resume", f"the options of {run}", got)
    for path, owner, done, steps in changes:
        same = f"{path}: expected {done} as in {run}, got {steps}"
        if not hasattr(owner, "needs_all_steps"):
            raise ValueError(
                f"{same}: this training cannot be extended; start a new run"
            )
        expect(steps >= done, path, f"more than the {done} steps of {run}", steps)
        for record in (owner, stored):
            reason = getattr(record, "needs_all_steps", lambda: None)()
            if reason is not None:
                raise ValueError(f"{same}: {reason}; start a new run")
        chunk = owner.chunk_steps
        whole = f"a multiple of chunk_steps {chunk} in the run that is extended"
        expect(done % chunk == 0, path, whole, f"{done}; start a new run")
    return bool(changes)


def depends_on_all_steps(schedule: str) -> str | None:
    """Returns why this learning-rate schedule prevents an extension, or ``None``."""
    if schedule == "constant":
        return None
    return f"the learning rate ({schedule}) depends on the number of all steps"
