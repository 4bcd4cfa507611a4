"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of
from experiments.prune_llm.subject import load
from experiments.shots.config import PRESETS
from experiments.shots.measure import measure, records_of
from experiments.shots.report import found, report

NAME = "shots"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        lambda: "tiny",
        argv,
        description="Accuracy of a language model against demonstrations.",
    )
    config = launch.config
    subject = load(config.subject())
    run = Run.of(launch, NAME)
    console = console_of(run)
    records = records_of(config, subject, run.folder / "records.jsonl")
    console.print(
        f"{NAME}, preset {launch.preset}: {config.checkpoint} on "
        f"{', '.join(config.tasks)}, {len(subject.tasks)} cases, "
        f"{len(records):,} answers recorded, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}",
        *records.notes,
        sep="\n",
    )
    start, answered = time.perf_counter(), 0
    for case in measure(config, subject, records):
        answered += 1
        run.log({**case._asdict(), "seconds": time.perf_counter() - start})
    results = {name: found(config, subject, records, name) for name in config.tasks}
    result = report(config, results, run, console)
    seconds = time.perf_counter() - start
    result |= {"weights": subject.digest, "answered": answered, "seconds": seconds}
    written = run.write_json("result.json", result)
    console.print(
        f"{answered} cases answered in {seconds:.0f} s; results in {run.folder}"
    )
    return written
