"""Runs that are continued with more steps than they were started with."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

STEPS = "steps"


class Change(NamedTuple):
    """A field of a stored config that a command line changes.

    Attributes:
        path: Its name, with those of the records that hold it.
        owner: The stored record that it is a field of.
        stored: Its value in the run.
        asked: Its value on the command line.
    """

    path: str
    owner: Any
    stored: Any
    asked: Any

    def __str__(self) -> str:
        return f"{self.path}={self.asked} (stored {self.stored})"


def extends(run: Path, stored: Any, asked: Any) -> bool:
    """Whether a command line extends a run, as ``--resume RUN --steps MORE`` does.

    More steps continue a training exactly only if nothing in the steps that were taken
    depends on how many there are in all. The record that has the field ``steps`` and
    the whole config say by ``needs_all_steps()`` what does, if anything.

    Args:
        run: Run folder.
        stored: Its config.
        asked: The config that the command line asks for.

    Returns:
        Whether there are more steps; ``False`` where the configs are the same.

    Raises:
        ValueError: if the configs differ otherwise, or the run cannot be extended.
    """
    changes = list(changes_between(stored, asked))
    other = [one for one in changes if one.path.rpartition(".")[2] != STEPS]
    if other:
        raise ValueError(
            f"resume: expected the options of {run}, got "
            f"{'; '.join(map(str, other))}; leave these options out"
        )
    for change in changes:
        _check(run, change, stored)
    return bool(changes)


def _check(run: Path, change: Change, config: Any) -> None:
    name, done, asked = change.path, change.stored, change.asked
    if not hasattr(change.owner, "needs_all_steps"):
        raise ValueError(
            f"{name}: expected {done} as in {run}, got {asked}: this training cannot "
            "be extended; start a new run"
        )
    if asked < done:
        raise ValueError(
            f"{name}: expected more than the {done} steps of {run}, got {asked}"
        )
    for record in (change.owner, config):
        reason = getattr(record, "needs_all_steps", lambda: None)()
        if reason is None:
            continue
        raise ValueError(
            f"{name}: expected {done} as in {run}, got {asked}: {reason}; start a new "
            "run"
        )
    chunk = change.owner.chunk_steps
    if done % chunk:
        raise ValueError(
            f"{name}: expected a multiple of chunk_steps {chunk} in the run that is "
            f"extended, got {done}; start a new run"
        )


def depends_on_all_steps(schedule: str) -> str | None:
    """Returns why this learning-rate schedule prevents an extension, or ``None``."""
    if schedule == "constant":
        return None
    return f"the learning rate ({schedule}) depends on the number of all steps"


def changes_between(stored: Any, asked: Any, at: str = "") -> Iterator[Change]:
    """Yields the fields in which two configs of one experiment differ."""
    for field in dataclasses.fields(stored):
        path = f"{at}{field.name}"
        before, after = getattr(stored, field.name), getattr(asked, field.name)
        if dataclasses.is_dataclass(before) and type(before) is type(after):
            yield from changes_between(before, after, f"{path}.")
        elif before != after:
            yield Change(path, stored, before, after)
