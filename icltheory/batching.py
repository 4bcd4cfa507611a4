"""Maps a function over many prompts in batches of bounded memory, with progress.

A function that runs many programs one after another has an argument ``progress``, a
:data:`Progress`: a function ``progress(done, total, part)`` that is called on the host
between two programs, first with ``done = 0`` and an empty ``part``, then after each
part with its name, until ``done = total``; not at all where there is nothing to do. A
function of several stages counts each from 0. An error that it raises ends the
computation. :func:`print_progress` prints lines of text; with a bar of rich::

    with rich.progress.Progress() as bar:
        task = bar.add_task("sweep")

        def show(done, total, part):
            bar.update(task, completed=done, total=total, description=part or "sweep")

        scores = pruning.sweep_grid(..., progress=show)

Stability: stable.
"""

import functools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from icltheory._checks import check_choice, check_positive_int, is_tracer

__all__ = ["Progress", "batched", "print_progress"]

Progress = Callable[[int, int, str], None]

T = TypeVar("T")


def batched(
    function: Callable[..., Any],
    batch_size: int,
    *,
    in_axes: Any = 0,
    progress: Progress | None = None,
) -> Callable[..., Any]:
    r"""Maps a function of one prompt over any number of prompts in batches.

    .. math:: x_1, \dots, x_B \mapsto f(x_1), \dots, f(x_B) ,

    ``batch_size`` of them side by side. The function, from one entry of each mapped
    argument to a pytree of arrays, is compiled once, for that size: where the last
    batch is not full it takes up entries of the one before. Batches are separate calls
    and not a loop inside a program, so that decompositions stay out of loops; inside
    ``jit`` they are unrolled. Keep the mapped function: a new one is compiled again.

    Args:
        in_axes: 0 for arguments, any pytrees, that have a leading axis to map over;
            ``None`` for those that all entries share. One for all arguments, or a tuple
            with one for each.

    Example:
        >>> import jax.numpy as jnp
        >>> norms = batched(jnp.linalg.norm, 2)
        >>> norms(jnp.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]])).tolist()
        [5.0, 1.0, 2.0]
    """
    check_positive_int("batch_size", batch_size)
    for axis in in_axes if isinstance(in_axes, tuple) else (in_axes,):
        check_choice("in_axes", axis, (0, None))
    program = jax.jit(jax.vmap(function, in_axes))

    @functools.wraps(function)
    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        which = [i for i, axis in enumerate(axes) if axis is not None]

        def part(*chosen):
            full = list(args)
            for i, arg in zip(which, chosen, strict=True):
                full[i] = arg
            return program(*full)

        chosen = (args[i] for i in which)
        return in_batches(part, batch_size, *chosen, progress=progress)

    return mapped


_BATCH = "batch from {}".format


def in_batches(
    mapped: Callable[..., Any],
    batch_size: int | None,
    *args: Any,
    progress: Progress | None = None,
) -> Any:
    """Applies a function of batches to parts of its arguments and joins the results."""
    size = leading_size(args)
    if batch_size is None or size <= batch_size:
        return [mapped(*args) for _ in reported([0], progress, _BATCH)][0]
    parts: list[Any] = []
    for start in reported(range(0, size, batch_size), progress, _BATCH):
        first = min(start, size - batch_size)  # the last batch has the same size
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
    if progress is not None and parts:
        progress(0, len(parts), "")
    for done, part in enumerate(parts, 1):
        yield part
        if progress is not None:
            progress(done, len(parts), name(part))


def print_progress(
    file: Any = None, every: float | int = 1.0, clock: Callable[[], float] | None = None
) -> Progress:
    """Returns a progress function that prints the part, the count and the time left.

    The lines go to ``file``, the standard error output if ``None``, at least ``every``
    seconds apart but for the last of a stage. ``clock`` returns the time in seconds.

    Example:
        >>> import itertools, sys
        >>> show = print_progress(sys.stdout, clock=itertools.count(0, 3).__next__)
        >>> for done in (0, 30, 60):
        ...     show(done, 60, "validation, rates 0, 0.5" if done else "")
        validation, rates 0, 0.5: 30 of 60, 3 s left
        validation, rates 0, 0.5: 60 of 60, 6 s
    """
    now = time.monotonic if clock is None else clock
    began, last = now(), -math.inf

    def show(done: int, total: int, part: str) -> None:
        nonlocal began, last
        moment = now()
        if done == 0:
            began, last = moment, -math.inf
            return
        spent = moment - began
        if done < total and moment - last < every:
            return
        last = moment
        rest = spent * (total - done) / done
        left = f"{rest:.0f} s left" if done < total else f"{spent:.0f} s"
        out = sys.stderr if file is None else file
        print(f"{part}: {done:,} of {total:,}, {left}", file=out, flush=True)

    return show


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


def batches_of(batch_size: int | None, *args: Any) -> Iterator[tuple[Any, ...]]:
    """Yields consecutive batches of the arguments; the last one may be smaller."""
    size = leading_size(args)
    step = size if batch_size is None else batch_size
    for start in range(0, size, step):
        yield _slice(args, start, min(start + step, size))


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
