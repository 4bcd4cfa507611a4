"""Chooses a kernel by timing every candidate and checking its result."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._named_errors import named_errors

__all__ = ["KernelChoice", "KernelTiming", "choose"]


@dataclasses.dataclass(frozen=True)
class KernelTiming:
    """Timing of one candidate, or why it was dropped.

    Args:
        candidate: As it was given.
        seconds: Median time of a call; ``None`` for one that was dropped.
        error: Largest distance from the reference, in roundings (see :func:`choose`).
        note: Why it was dropped, or empty.
    """

    candidate: Any
    seconds: float | None
    error: float | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns numbers, strings and dictionaries of them; no infinity."""
        record = dataclasses.asdict(self)
        if self.error is not None and not math.isfinite(self.error):
            record["error"] = None
        return record


@dataclasses.dataclass(frozen=True)
class KernelChoice:
    """The fastest correct candidate, with the table of all timings.

    Args:
        best: Candidate with the least median; of equals the first.
        table: One :class:`KernelTiming` a candidate, in their order.
    """

    best: Any
    table: tuple[KernelTiming, ...]


@named_errors
def choose(
    candidates: Sequence[Any],
    make: Callable[[Any], Callable[[], Any]],
    *,
    exact: Any = None,
    dtype: Any = jnp.float32,
    roundings: float = 16.0,
    repeats: int = 9,
    clock: Callable[[], float] = time.perf_counter,
) -> KernelChoice:
    r"""Times every candidate on this device and returns the fastest correct one.

    The error of a result is its largest distance from the reference, leaf by leaf in
    units of the dtype's rounding :math:`\epsilon` at the leaf's largest entry,

    .. math:: \max_{\text{leaves}} \frac{\max |a - b|}{\epsilon \max |b|},

    and a candidate is wrong above ``roundings`` of them and above twice the error of
    the first candidate, which is the plain one and is never called wrong. A candidate
    that raises while it is built, compiled or run first is dropped too, with what it
    said. The others run in turns, so that a drift of the clock hits all alike.

    Args:
        candidates: What to choose from, the plain one first.
        make: Returns the call to time, of no arguments; its first call compiles.
        exact: Reference for the results, as exact as can be had; ``None`` takes the
            result of the first candidate.
        dtype: Dtype whose rounding is the unit.
        roundings: Largest error of a right candidate in these units; sums of a few
            rounded products stay within it.
        repeats: Timed calls of each.
        clock: Clock in seconds.

    Returns:
        The fastest candidate and the table.

    Raises:
        ValueError: if there is no candidate or no repeat.
        RuntimeError: if the first candidate fails.

    Example:
        >>> import jax.numpy as jnp
        >>> choice = choose([1, 2], lambda n: lambda: jnp.ones(3) * n)
        >>> choice.best, choice.table[1].note
        (1, 'wrong by 8.39e+06 roundings, at most 16 allowed')

    References:
        Higham 2002, Section 3.1, for the unit. Verified by
        ``tests/kernels/test_tuning.py``.
    """
    if not candidates or repeats < 1:
        raise ValueError(
            "candidates, repeats: expected at least one of each, got "
            f"{len(candidates)} and {repeats}"
        )
    calls, table = [], []
    limit = roundings
    for number, candidate in enumerate(candidates):
        call, result, note = _first(make, candidate)
        if call is None and number == 0:
            raise RuntimeError(f"the plain candidate {candidate!r} failed: {note}")
        error = None
        if call is not None:
            exact = result if exact is None else exact
            error = _distance(result, exact, dtype)
            if number == 0:
                limit = max(limit, 2 * error) if math.isfinite(error) else limit
            elif not error <= limit:
                call = None
                note = f"wrong by {error:.3g} roundings, at most {limit:.3g} allowed"
        calls.append(call)
        table.append(KernelTiming(candidate, None, error, note))
    times = _in_turns(calls, repeats, clock)
    table = [
        dataclasses.replace(row, seconds=statistics.median(seen) if seen else None)
        for row, seen in zip(table, times, strict=True)
    ]
    timed = [row for row in table if row.seconds is not None]
    return KernelChoice(min(timed, key=lambda row: row.seconds).candidate, tuple(table))


def _first(make, candidate):
    """Returns the call, its first result, and the error if it failed."""
    try:
        call = make(candidate)
        return call, jax.block_until_ready(call()), ""
    except Exception as failure:  # a compiler can fail in many ways
        said = (str(failure).strip() or "no message").splitlines()[0]
        return None, None, f"{type(failure).__name__}: {said[:200]}"


def _distance(result: Any, exact: Any, dtype: Any) -> float:
    leaves, references = jax.tree.leaves(result), jax.tree.leaves(exact)
    if [np.shape(a) for a in leaves] != [np.shape(b) for b in references]:
        return float("inf")
    unit = float(jnp.finfo(dtype).eps)
    return max(
        (_relative(a, b) / unit for a, b in zip(leaves, references, strict=True)),
        default=0.0,
    )


def _relative(a: Any, b: Any) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    gap, largest = np.abs(a - b).max(initial=0.0), np.abs(b).max(initial=0.0)
    if not np.isfinite(gap):
        return float("inf")
    return 0.0 if gap == 0 else float(gap / largest) if largest else float("inf")


def _in_turns(calls, repeats, clock) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, seen in zip(calls, times, strict=True):
            if call is not None:
                start = clock()
                jax.block_until_ready(call())
                seen.append(clock() - start)
    return times
