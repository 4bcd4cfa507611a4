"""Kernels of a GPT-2 block compared with XLA's code: value and gradient of one layer.

Command
    python -m benchmarks.kernels [--plan FILE]

Every candidate tile of every kernel is timed at the published model's shape (64 prompts
of 82 tokens, width 256, 8 heads, bfloat16), beside XLA's code for the same and, for
attention, cuDNN's; the row is the fastest. With ``--plan`` the choice is written, after
each kernel, for ``python -m experiments.garg_linear --precision bfloat16 --kernels
FILE``; a kernel that could not be timed is left to XLA there. It needs a GPU; a few
minutes, most of them compiling.
"""

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import _alone
from benchmarks._suite import BenchmarkRow, Budget, Case, Skip, each
from experiments._frame.run import Run
from icltheory.kernels import Plan, TunedPlan, tune
from icltheory.kernels.choice import KernelTiming
from icltheory.kernels.tuning import SUBJECTS

BATCH, TOKENS, WIDTH, HEADS, DTYPE = 64, 82, 256, 8, jnp.bfloat16


def measure(budget: Budget, plan: Path | None = None) -> Iterator[BenchmarkRow]:
    """Measures every kernel and yields one row per kernel and pass."""
    group = f"Kernels of a block, {BATCH} x {TOKENS} tokens, width {WIDTH}"
    found: dict[str, TunedPlan] = {}
    cases = [Case(name, 60, functools.partial(rows, name, found)) for name in SUBJECTS]
    for row in each(group, budget, cases):
        # The plan is written after each kernel, since compiling takes minutes and an
        # interrupted run should keep its results.
        _keep(plan, found)
        yield row
    _keep(plan, found)


def _keep(plan: Path | None, found: dict[str, TunedPlan]) -> None:
    """Writes the kernels chosen so far and the problem they were timed on."""
    if plan is None or not found:
        return
    # If attention could not be timed, the plan uses the default for models on a GPU.
    fields: dict[str, Any] = Plan(attention="cudnn").to_json()
    for name, tuned in found.items():
        chosen = tuned.plan.to_json().items()
        fields |= {field: value for field, value in chosen if field.startswith(name)}
    record = next(iter(found.values())).to_json()
    about = {name: record[name] for name in ("problem", "device")}
    plan.parent.mkdir(parents=True, exist_ok=True)
    Run(plan.parent).write_json(plan.name, {"plan": fields, **about})


def rows(name: str, found: dict[str, TunedPlan]) -> Iterator[BenchmarkRow]:
    """Times one kernel: its value, and its value with gradient."""
    if jax.default_backend() != "gpu":
        raise Skip("needs a GPU")
    found[name] = tune(
        BATCH,
        TOKENS,
        WIDTH,
        HEADS,
        DTYPE,
        subjects={name: SUBJECTS[name]},
        repeats=50,  # a GPU that idled during compilation is slow at first
    )
    for label, table in found[name].table:
        yield _row(label, table)


def _row(label: str, table: tuple[KernelTiming, ...]) -> BenchmarkRow:
    """Builds a row from a table of timings, whose first entry is XLA's code."""
    right = [row for row in table if row.seconds is not None]
    best = min(right, key=lambda row: row.seconds or 0.0)
    dropped = [row for row in table if row.seconds is None]
    eps = float(jnp.finfo(DTYPE).eps)
    return BenchmarkRow(
        name=label,
        ours_s=best.seconds,
        alternative="XLA",
        alternative_s=right[0].seconds,
        precision=jnp.dtype(DTYPE).name,
        error=None if best.error is None else best.error * eps,
        tolerance=16 * eps,
        note=f"{best.candidate}; {len(dropped)} of {len(table)} dropped",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--plan", type=Path)
    flags, rest = parser.parse_known_args(sys.argv[1:])
    _alone.main(functools.partial(measure, plan=flags.plan), rest)
