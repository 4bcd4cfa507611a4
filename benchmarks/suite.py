"""Cases of benchmarks: a call of ours and a user's alternative, timed in turns.

A case is a function ``bench_...`` marked with :func:`case`. It gets one of its sizes
and returns a :class:`Pair`; pytest-benchmark times our call and stores the rest.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
import pytest

# The entries of this session in the form of pytest-benchmark's JSON, for the table.
ENTRIES: list[dict[str, Any]] = []
# Seconds of a case's turns, about, and after which the alternative is called no more;
# one that takes longer than SLOW is called only once. Our call is repeated if SHORT.
TURNS, LIMIT, SLOW, SHORT = 2.0, 10.0, 5.0, 0.01
EXACT = functools.partial(jax.default_matmul_precision, "highest")
FLOAT64 = functools.partial(jax.enable_x64, True)


def disagreement(ours: Any, alternative: Any) -> float:
    """Returns the largest difference of two results, relative to the largest value."""
    a, b = (np.asarray(x, np.float64) for x in (ours, alternative))
    if a.shape != b.shape:
        raise ValueError(f"ours: expected shape {b.shape}, got {a.shape}")
    scale = np.abs(b).max(initial=0.0)
    return float(np.abs(a - b).max(initial=0.0) / (scale if scale > 0 else 1.0))


def largest_error(ours: Any, exact: Any) -> float:
    """Returns the largest disagreement of all leaves; a NaN of one makes it inf."""
    worst = 0.0
    for a, b in zip(*map(jax.tree.leaves, (ours, exact)), strict=True):
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        known = np.isfinite(b)
        same = np.array_equal(a[~known], b[~known], equal_nan=True)
        if not same or not np.isfinite(a[known]).all():
            return float("inf")
        worst = max(worst, disagreement(a[known], b[known]))
    return worst


@dataclasses.dataclass(frozen=True)
class Pair:
    """What one case compares."""

    ours: Callable[[], Any]  # our call; the frame waits for its arrays
    # What a user would run instead. If it returns None it was stopped, and its time is
    # a lower bound. One that compiles for seconds is called by the case before, since a
    # long one is called only once.
    alternative: Callable[[], Any] | None = None
    label: str = ""  # name of the alternative
    # The part of the work that the alternative is timed on, all of it, and their unit:
    # (20, 1000, "prompts"). Its time is scaled up.
    part: tuple[float, float, str] = (1, 1, "")
    per: int = 1  # units of work in one timed call of either side
    floor: float | None = None  # least seconds of this machine for a unit
    # Difference of the two answers, or a function of both, and the largest that the
    # precision allows; more is a failure.
    error: float | Callable[[Any, Any], float] | None = disagreement
    tolerance: float | None = None
    precision: str = "float32"  # dtype of the numbers
    note: str = ""  # what a reader has to know
    # Further numbers; a name ends with a unit, or with a colon if it has none.
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # Units of work per call, by name, stated per second.
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    cold: bool = False  # whether our first call is timed, which compiles


def simulated(
    exact: Callable[[], Any],
    simulate: Callable[[Any], tuple],
    truth: float,
    spread: float,
    batch: int,
    **more: Any,
) -> Pair:
    """A pair of an exact number and its simulation to a relative accuracy of 1 %.

    That takes (standard deviation / mean / 0.01)^2 prompts, of which a batch is timed.
    Its own mean is too coarse to judge the exact number, which is compared with truth.
    """
    return Pair(
        exact,
        lambda: simulate(jax.random.key(2)),
        "simulation to 1 %, compiled",
        (batch, (spread / truth / 0.01) ** 2, "prompts"),
        error=lambda got, _: disagreement(got, truth),
        **more,
    )


def named(name: str, sizes: Iterable[tuple]) -> dict[str, tuple]:
    """Returns sizes by name, from a format string: ``named("L {}, N {}", ...)``."""
    return {name.format(*size): size for size in sizes}


def case(
    group: str,
    sizes: Mapping[str, tuple],
    within: Callable[[], Any] = contextlib.nullcontext,
) -> Callable[[Callable[..., Pair]], Callable[..., None]]:
    """Marks a function from a size to a pair as a case of a benchmark.

    ``group`` is the title of its table, ``sizes`` has the arguments by name of the row,
    ``within`` makes the context that both sides are built and called in.
    """

    def mark(build: Callable[..., Pair]) -> Callable[..., None]:
        def bench(benchmark: Any, size: tuple) -> None:
            benchmark.group = group
            # Building a model of an experiment sets this precision.
            before = jax.config.jax_default_matmul_precision  # type: ignore
            try:
                with within():
                    measure(benchmark, build(*size))
            finally:
                jax.config.update("jax_default_matmul_precision", before)

        bench.__name__, bench.__doc__ = build.__name__, build.__doc__
        bench.__module__ = build.__module__
        ids = [pytest.param(size, id=name) for name, size in sizes.items()]
        vars(bench)["build"] = build
        return pytest.mark.parametrize("size", ids)(bench)

    return mark


def measure(benchmark: Any, pair: Pair) -> dict[str, Any]:
    """Times both sides in turns, compares their answers and returns the entry."""
    theirs, facts, rounds = [], {}, 1
    got, found, first, again = None, None, 0.0, 0.0
    if pair.alternative is not None:
        found, first = once(pair.alternative)
    if pair.cold:
        jax.clear_caches()
    else:
        got, facts["first call s"] = once(pair.ours)
        again = once(pair.ours)[1]
        turn = again + first * (first < SLOW)
        rounds = max(3 if turn < SLOW else 1, min(50, int(TURNS / turn)))
    begun = time.perf_counter()

    def alternate() -> None:
        late = theirs and time.perf_counter() - begun > LIMIT
        if pair.alternative is not None and first < SLOW and not (pair.cold or late):
            theirs.append(once(pair.alternative)[1])
        if again < SHORT and not pair.cold:
            for _ in range(3):  # the alternative has emptied the caches
                once(pair.ours)

    def target() -> Any:
        return jax.block_until_ready(pair.ours())

    result = benchmark.pedantic(target, setup=alternate, rounds=rounds)
    median = benchmark.stats.stats.median
    facts |= {name: pair.per * n / median for name, n in pair.rates.items()}
    error, notes, (count, total, unit) = pair.error, [pair.note], pair.part
    if count < total:
        notes.append(f"alternative timed on {count:,} of {total:,.0f} {unit}")
    if pair.alternative is not None and found is None:
        notes.append("alternative stopped, its time is a lower bound")
        error = None
    if callable(error):
        compared = pair.alternative is not None
        error = error(result if pair.cold else got, found) if compared else None
    seconds = float(np.median(theirs)) if theirs else first
    about = {
        "alternative": pair.label if pair.alternative is not None else "",
        "alternative_s": seconds * total / count / pair.per or None,
        "floor_s": pair.floor,
        "per": pair.per,
        "precision": pair.precision,
        "error": error,
        "tolerance": pair.tolerance,
        "note": "; ".join(filter(None, notes)),
        "facts": {**facts, **pair.facts},
    }
    benchmark.extra_info.update(about)
    ENTRIES.append(entry(benchmark.group, benchmark.param, median, **about))
    if error is not None and pair.tolerance is not None and not error <= pair.tolerance:
        allowed = f"a difference of at most {pair.tolerance:g}"
        raise AssertionError(f"answers: expected {allowed}, got {error:g}")
    return ENTRIES[-1]


def entry(group: str, name: str, median: float | None, **about: Any) -> dict[str, Any]:
    """Returns a row in the form of an entry of pytest-benchmark's JSON."""
    found = {"group": group, "param": name, "extra_info": about}
    return {**found, "stats": {"median": median}}


def once(function: Callable[[], Any]) -> tuple[Any, float]:
    """Returns a call's result and its wall time in seconds."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Returns the median wall time of a call after one warm-up call."""
    once(function)
    return float(np.median([once(function)[1] for _ in range(repeats)]))


def compiled(function: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, float]]:
    """Compiles a function and returns it with its compile time and memory."""
    program, took = once(jax.jit(function).lower(*args).compile)
    facts, memory = {"compile s": took}, program.memory_analysis()
    if memory is not None:
        used = memory.temp_size_in_bytes + memory.argument_size_in_bytes
        facts["MiB"] = used / 2**20
    return program, facts


def nbytes(*trees: Any) -> int:
    """Returns the size of all arrays in bytes."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(trees))


def on_gpu() -> bool:
    """Whether JAX computes on a GPU."""
    return jax.default_backend() == "gpu"
