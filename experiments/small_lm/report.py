"""Builds the table, figure and checks of a run."""

from typing import Any

import jax
import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments._trained import Fitted
from experiments.small_lm import vocabulary as v
from experiments.small_lm.config import Config
from experiments.small_lm.curve import QUESTIONS, Curves
from experiments.small_lm.figures import in_context_curves
from icltheory.statistics import Estimate

# A curve rises if the gain from demonstrations has an interval above this.
RISE = 0.1


def report(config: Config, fitted: Fitted, found: dict[str, Curves]) -> Report:
    """Builds the table, figure, checks and numbers of a run."""
    summaries = {
        name: {part: summary(values, config.level) for part, values in _parts(c)}
        for name, c in found.items()
    }
    numbers = {
        "shots": list(config.shots),
        "curves": summaries,
        "parameters": int(
            sum(np.size(x) for x in jax.tree.leaves(fitted.state.params))
        ),
        "last_losses": fitted.records[-1],
        "training_seconds": fitted.timing.train_seconds,
    }
    return Report(
        numbers,
        checks=checks(config, found),
        tables=[_table(config, summaries)],
        figures={"in_context_curves.png": in_context_curves(config, summaries)},
        interval_level=config.level,
        axes={"curves.*.*.*": ["number of demonstrations"]},
    )


def summary(values: np.ndarray, level: float) -> dict[str, list[float]]:
    """Mean over the draws, its standard error and Student's interval."""
    values = np.asarray(values, np.float64).reshape(len(values), -1)
    found = Estimate.of(values)
    low, high = found.interval(level)
    return {
        "mean": found.mean.tolist(),
        "standard_error": found.standard_error.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
    }


def checks(config: Config, found: dict[str, Curves]) -> list[Check]:
    """Checks that nonce labels are learned from shots, and that none is above Bayes.

    Every difference is taken draw by draw.
    """
    stated, level = [], config.level
    for asked in QUESTIONS:
        curve = found[asked.name]
        first, last = curve.model[:, 0], curve.model[:, -1]
        if asked.meant:
            chance = 1 / v.NUM_CLASSES[asked.attribute]
            least = summary(first - chance, level)["low"][0]
            name = f"{asked.name}: least excess over chance without shots"
        else:
            least = summary(last - first, level)["low"][0]
            name = f"{asked.name}: least gain of {config.shots[-1]} shots over none"
        stated.append(Check(f"{RISE} against {name}", RISE, least, "<="))
    for name, curve in found.items():
        excess = summary(curve.model[:, -1] - curve.informed, level)["low"][0]
        check = f"{name}: least excess over the ideal learner that knows the task"
        stated.append(Check(check, excess, 0.0, "<="))
    return stated


def _parts(c: Curves) -> list[tuple[str, np.ndarray]]:
    return [("model", c.model), ("ideal", c.ideal), ("informed", c.informed)]


def _table(config: Config, summaries: dict[str, Any]) -> Table:
    table = Table(
        title=f"accuracy (standard error) over {config.demonstration_seeds} draws of "
        f"demonstrations and labels, {config.queries} questions each"
    )
    table.add_column("task")
    table.add_column("")
    for k in config.shots:
        table.add_column(f"k = {k}", justify="right")
    for name, parts in summaries.items():
        for part in ("model", "ideal"):
            cells = zip(parts[part]["mean"], parts[part]["standard_error"], strict=True)
            row = [f"{mean:.3f} ({error:.3f})" for mean, error in cells]
            table.add_row(name if part == "model" else "", part, *row)
    return table
