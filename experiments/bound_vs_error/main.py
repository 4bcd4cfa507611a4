"""The command line of the experiment."""

import json
from collections.abc import Callable

import jax

from experiments._frame.command_line import Launch, parse
from experiments._frame.run import Run
from experiments.bound_vs_error.config import PRESETS, Config, ProblemSize
from experiments.bound_vs_error.estimate import measure
from experiments.bound_vs_error.invariance import measure_invariance
from experiments.bound_vs_error.report import INVARIANCE, report
from experiments.bound_vs_error.simulate import learner_of, printed_bound, simulate


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    with jax.enable_x64(True):
        return _run_all(launch)


def _run_all(launch: Launch[Config]) -> dict:
    config = launch.config
    rows = config.all_rows()
    run = Run.begin(
        launch,
        f"{len(rows)} rows of up to {config.replicates:,} replicates, seed "
        f"{config.seed}, float64",
    )
    with run.phase("simulation"):
        records = measure_all(config, rows, run)
    return run.finish(report(config, records))


def measure_all(config: Config, rows: list[ProblemSize], run: Run) -> dict[str, dict]:
    """Measures the rows missing from ``metrics.jsonl``; returns records by name."""
    jobs: dict[str, Callable[[], dict]] = {
        row.label: lambda row=row: measure_row(config, row) for row in rows
    }
    jobs[INVARIANCE] = lambda: measure_invariance(config.seed)
    found = {name: r for name, r in stored_records(run).items() if name in jobs}
    run.reset_metrics(found.values())
    if found:
        run.console.print(f"resuming after {len(found)} of {len(jobs)} measurements")
    with run.progress("measuring", len(jobs), done=len(found)) as activity:
        for name in [name for name in jobs if name not in found]:
            activity.enter(name)
            found[name] = {"name": name, **jobs[name]()}
            run.log(found[name])
            activity.advance()
    return found


def measure_row(config: Config, row: ProblemSize) -> dict:
    """Measures a row and returns its record."""
    learner = learner_of(row, config.seed)
    sample = simulate(config, row)
    return measure(row, sample, learner.support_dim, printed_bound(learner, row))


def stored_records(run: Run) -> dict[str, dict]:
    """Reads ``metrics.jsonl`` and ignores an incomplete last line."""
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
