"""Selects the kernels of a run: XLA's, those tuned here, or those of another run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from experiments._frame.run import Run
from experiments.garg_linear.config import Setup
from icltheory.kernels import Plan, TunedPlan, tune

FILE = "kernels.json"


def with_kernels(setup: Setup, run: Run) -> Setup:
    """Adds a kernel plan to the model and stores it in ``kernels.json``.

    A resumed run reads it there, for other tiles would move the last bits.

    Raises:
        ValueError: if the file that the config names, or the run's own, holds no plan,
            or one that was timed in another precision.
    """
    if setup.config.kernels == "xla":
        return setup
    own = run.folder / FILE
    tuned = setup.config.kernels == "tuned"
    if own.exists() or not tuned:
        path = own if own.exists() else Path(setup.config.kernels)
        plan = read_plan(path, setup.model.dtype)
    else:
        plan = _tuned(setup, run).plan
    if not own.exists():
        timed = {"dtype": jnp.dtype(setup.model.dtype).name}
        run.write_json(FILE, {"plan": plan.to_json(), "problem": timed})
    return dataclasses.replace(setup, model=setup.model.clone(plan=plan))


def read_plan(path: Path, dtype: Any) -> Plan:
    """Reads a kernel plan from a file; raises if its precision differs.

    In another precision the tiles spill registers and are slower, and cuDNN's attention
    does not support float32.
    """
    try:
        record = json.loads(path.read_text())
        plan = Plan.from_json(record["plan"])
        timed = record.get("problem", {}).get("dtype")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"kernels: expected xla, tuned or a file with a plan, got {path}: {error}"
        ) from error
    name = jnp.dtype(dtype).name
    if timed not in (None, name):
        raise ValueError(
            f"kernels: expected a plan that was timed in {name}, got {path}, which was "
            f"timed in {timed}"
        )
    return plan


def _tuned(setup: Setup, run: Run) -> TunedPlan:
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
        run.console.print(f"{name}: {min(times):.1f} us, XLA {times[0]:.1f} us")
    return found
