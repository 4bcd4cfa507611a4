"""Which kernels a run trains with: XLA's, those tuned here, or those of another run."""

import dataclasses
import json
from pathlib import Path

from rich.console import Console

from experiments._run import Run
from experiments.garg_linear.config import Setup
from icltheory.kernels import Plan, TunedPlan, tune

FILE = "kernels.json"


def with_kernels(setup: Setup, run: Run, console: Console) -> Setup:
    """Gives the model its plan, which the run keeps in ``kernels.json``.

    A resumed run reads it there, for other tiles would move the last bits.

    Raises:
        ValueError: if the file that the config names, or the run's own, holds no plan.
    """
    if setup.config.kernels == "xla":
        return setup
    own = run.folder / FILE
    tuned = setup.config.kernels == "tuned"
    if own.exists() or not tuned:
        plan = read_plan(own if own.exists() else Path(setup.config.kernels))
    else:
        plan = _tuned(setup, console).plan
    if not own.exists():
        run.write_json(FILE, {"plan": plan.to_json()})
    return dataclasses.replace(setup, model=setup.model.clone(plan=plan))


def read_plan(path: Path) -> Plan:
    """The plan that another run, or ``benchmarks.kernels``, has written."""
    try:
        return Plan.from_json(json.loads(path.read_text())["plan"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"kernels: expected xla, tuned or a file with a plan, got {path}: {error}"
        ) from error


def _tuned(setup: Setup, console: Console) -> TunedPlan:
    config, model = setup.config, setup.model
    found = tune(
        config.batch_size // config.accumulation,
        2 * config.num_points,
        config.width,
        config.num_heads,
        model.dtype,
    )
    for name, rows in found.table:
        times = [1e6 * row.seconds for row in rows if row.seconds is not None]
        console.print(f"{name}: {min(times):.1f} us, XLA {times[0]:.1f} us")
    return found
