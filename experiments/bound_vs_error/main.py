"""The command line of the experiment."""

import json
import time
from collections.abc import Callable

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.bound_vs_error.config import PRESETS, Config, ProblemSize
from experiments.bound_vs_error.estimate import measure
from experiments.bound_vs_error.invariance import measure_invariance
from experiments.bound_vs_error.report import INVARIANCE, report
from experiments.bound_vs_error.simulate import learner_of, printed_bound, simulate

NAME = "bound_vs_error"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="True generalisation errors against every variant of Theorem 2.",
    )
    with jax.enable_x64(True):
        return _run_all(launch)


def _run_all(launch: _launch.Launch[Config]) -> dict:
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    rows = config.all_rows()
    console.print(
        f"{NAME}, preset {launch.preset}: {len(rows)} rows of up to "
        f"{config.replicates:,} replicates, seed {config.seed}, float64 on "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    records = measure_all(config, rows, run, console)
    result = report(config, run, records, console)
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results and figures in {run.folder}"
    )
    return written


def measure_all(
    config: Config, rows: list[ProblemSize], run: Run, console: Console
) -> dict[str, dict]:
    """Records by name; those that ``metrics.jsonl`` has are not measured again."""
    jobs: dict[str, Callable[[], dict]] = {
        row.label: lambda row=row: measure_row(config, row) for row in rows
    }
    jobs[INVARIANCE] = lambda: measure_invariance(config.seed)
    found = {name: r for name, r in stored_records(run).items() if name in jobs}
    run.reset_metrics(found.values())
    if found:
        console.print(f"resuming after {len(found)} of {len(jobs)} measurements")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not run.writes) as progress:
        bar = progress.add_task("measuring", total=len(jobs), completed=len(found))
        for name, job in jobs.items():
            if name in found:
                continue
            progress.update(bar, description=name)
            found[name] = {"name": name, **job()}
            run.log(found[name])
            progress.advance(bar)
    return found


def measure_row(config: Config, row: ProblemSize) -> dict:
    """The record of a row."""
    learner = learner_of(row, config.seed)
    sample = simulate(config, row)
    return measure(row, sample, learner.support_dim, printed_bound(learner, row))


def stored_records(run: Run) -> dict[str, dict]:
    """Whole lines of ``metrics.jsonl``; a torn last line counts as not measured."""
    path = run.folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    records = {}
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        records[record["name"]] = record
    return records
