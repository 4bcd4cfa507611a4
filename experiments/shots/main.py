"""The command line of the experiment."""

import time

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.prune_llm.subject import load
from experiments.shots.config import PRESETS
from experiments.shots.measure import measure, records_of
from experiments.shots.report import found, report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    subject = load(config.subject())
    names = ", ".join(config.task_names)
    run = Run.begin(
        launch, f"{config.checkpoint} on {names}, {len(subject.tasks)} cases"
    )
    records = records_of(config, subject, run.folder / "records.jsonl")
    run.console.print(f"{len(records):,} answers recorded", *records.notes, sep="\n")
    start = time.perf_counter()
    missing = sum(not records.done(**case._asdict()) for case in subject.tasks)
    with (
        run.phase("evaluation"),
        run.progress("evaluating", missing, unit="cases") as activity,
        run.progress("answers") as inner,
    ):
        for case in measure(config, subject, records, inner.follow):
            activity.advance()
            run.log({**case._asdict(), "seconds": time.perf_counter() - start})
    results = {
        name: found(config, subject, records, name) for name in config.task_names
    }
    return run.finish(
        report(config, results), weights=subject.digest, answered=activity.done
    )
