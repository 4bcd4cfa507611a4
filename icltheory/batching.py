"""Computations in parts of bounded memory, which report their progress.

A function that runs many programs one after another has an argument ``progress``, a
:data:`Progress`: a function ``progress(done, total, part)`` that is called on the host
between two programs, first with ``done = 0`` and an empty ``part``, then after each
part with its name, until ``done = total``; not at all where there is nothing to do. A
function of several stages counts each from 0. An error that it raises ends the
computation. With a bar of rich::

    with rich.progress.Progress() as bar:
        task = bar.add_task("sweep")

        def show(done, total, part):
            bar.update(task, completed=done, total=total, description=part or "sweep")

        scores = pruning.sweep_grid(..., progress=show)

Stability: stable.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from icltheory._checks import is_tracer

__all__ = ["Progress"]

Progress = Callable[[int, int, str], None]

T = TypeVar("T")


def in_batches(mapped: Callable[..., Any], batch_size: int | None, *args: Any) -> Any:
    """Applies a function of batches to parts of its arguments and joins the results.

    Parts are separate calls, so that decompositions stay out of loops, and of one size:
    where the last is not full, it takes up entries of the one before.
    """
    size = leading_size(args)
    if batch_size is None or size <= batch_size:
        return mapped(*args)
    parts: list[Any] = []
    for start in range(0, size, batch_size):
        first = min(start, size - batch_size)
        found = mapped(*_slice(args, first, first + batch_size))
        parts.append(_slice(found, start - first, batch_size))
        if len(parts) > 1:
            wait(parts[-2])  # otherwise a CPU would run all of them at once
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def reported(
    parts: Iterable[T], progress: Progress | None, name: Callable[[T], str] = str
) -> Iterator[T]:
    """Yields the parts of a computation and reports each one when it is finished."""
    parts = list(parts)
    count = Counter(len(parts), progress)
    for part in parts:
        yield part
        count.add(1, name(part))


class Counter:
    """Reports the progress of parts that differ in size."""

    def __init__(self, total: int, progress: Progress | None):
        self.done, self.total, self.progress = 0, total, progress
        if progress is not None and total:
            progress(0, total, "")

    def add(self, size: int, name: str) -> None:
        """Adds a finished part to the count and reports it."""
        self.done += size
        if self.progress is not None:
            self.progress(self.done, self.total, name)


def in_turns(function: Callable[[Any], Any], entries: Any, at_once: int) -> Any:
    """Maps a function over entries inside one program, ``at_once`` at a time.

    With ``at_once`` of 1 there is no batch axis, since products of batches are slower
    even for a batch of one.
    """
    if 1 < at_once >= leading_size(entries):
        return jax.vmap(function)(entries)
    together = None if at_once == 1 else at_once
    return jax.lax.map(function, entries, batch_size=together)


def leading_size(args: Any) -> int:
    """Returns the size of the leading axis that all arrays share."""
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(args)}
    if len(sizes) != 1 or sizes == {()}:
        found = sorted(sizes)
        raise ValueError(f"arguments: expected one leading axis, got sizes {found}")
    return sizes.pop()[0]


def _slice(tree, start, stop):
    return jax.tree.map(lambda leaf: leaf[start:stop], tree)


def wait(tree: Any) -> None:
    """Waits for the arrays of a tree; tracers are left alone."""
    if not any(map(is_tracer, jax.tree.leaves(tree))):
        jax.block_until_ready(tree)
