"""Numbers, table, findings and figure of the errors over training."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.table import Table

from experiments.ltb_gpt2.config import PAPER_TABLE, Config, ModelSetting
from experiments.ltb_gpt2.measure import References, Score
from icltheory.plotting import STYLE, Line, LinePanel, line_panels

AXES = {
    "course.steps": ["snapshot"],
    "course.cells.*.mean": ["snapshot"],
    "course.cells.*.interval": ["snapshot", "lower and upper end"],
    "course.cells.*.per_seed": ["snapshot", "seed"],
    "course.contrast.*.ratio": ["snapshot"],
    "course.contrast.*.interval": ["snapshot", "lower and upper end"],
}
# An error that still decreases after this share of the training is reported.
_LATE = 0.75
Courses = Mapping[ModelSetting, Mapping[int, Score]]
Columns = Mapping[float, References]


class Contrast(NamedTuple):
    """Ratio of the error without MLP to the error with MLP, with its interval.

    Attributes:
        ratio: The ratio of the means.
        low: Lower end of its 90 % interval.
        high: Upper end.
    """

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, without: Score, with_mlp: Score) -> "Contrast":
        """Returns the ratio of two scores, with an interval from both.

        Relative half widths add in quadrature, on the scale of logarithms. Both models
        are measured on the same prompts, so that the interval is rather too wide.
        """
        ratio = without.mean / with_mlp.mean
        parts = [(s.interval[1] - s.mean) / s.mean for s in (without, with_mlp)]
        factor = math.exp(math.hypot(*parts))
        return cls(ratio, ratio / factor, ratio * factor)


def contrasts(courses: Courses, mean: float) -> dict[int, Contrast]:
    """Returns the ratio at every snapshot for one prior mean."""
    with_mlp, without = (courses[ModelSetting(mlp, mean)] for mlp in (True, False))
    return {step: Contrast.of(without[step], with_mlp[step]) for step in with_mlp}


def numbers(config: Config, courses: Courses) -> dict[str, Any]:
    """Returns the snapshots' numbers for ``result.json``."""
    cells = {
        cell.name: {
            "mean": [score.mean for score in one.values()],
            "interval": [score.interval for score in one.values()],
            "per_seed": [score.per_seed for score in one.values()],
        }
        for cell, one in courses.items()
    }
    ratios = {}
    for mean in config.means:
        found = contrasts(courses, mean).values()
        ratios[f"mean_{mean:g}"] = {
            "ratio": [one.ratio for one in found],
            "interval": [(one.low, one.high) for one in found],
        }
    steps = list(next(iter(courses.values())))
    return {"steps": steps, "cells": cells, "contrast": ratios}


def table(config: Config, courses: Courses) -> Table:
    """Builds the table of errors and their ratio at every snapshot."""
    shown = Table(
        title="squared error along training, and the error without MLP over the error "
        "with it; in brackets the 90 % interval of the ratio"
    )
    shown.add_column("step", justify="right")
    for mean in config.means:
        for name in ("with MLP", "without", "ratio"):
            shown.add_column(f"{name}, mean {mean:g}", justify="right")
    ratios = {mean: contrasts(courses, mean) for mean in config.means}
    for step in next(iter(courses.values())):
        row = [str(step)]
        for mean in config.means:
            both = [courses[ModelSetting(mlp, mean)][step] for mlp in (True, False)]
            one = ratios[mean][step]
            row += [f"{score.mean:.4g}" for score in both]
            row.append(f"{one.ratio:.2f} [{one.low:.2f}, {one.high:.2f}]")
        shown.add_row(*row)
    return shown


def findings(config: Config, courses: Courses) -> list[str]:
    """States when the published errors are reached, and the largest and final ratio."""
    said = [
        _first_below(cell, one)
        for cell, one in courses.items()
        if cell.mean == config.mean and cell in PAPER_TABLE
    ]
    for mean in config.means:
        found = contrasts(courses, mean)
        step = max(found, key=lambda step: found[step].ratio)
        most = found[step]
        said.append(
            f"mean {mean:g}: the error without MLP is at most {most.ratio:.2f} times "
            f"that with it [{most.low:.2f}, {most.high:.2f}], at step {step:,}"
        )
    for cell, one in courses.items():
        late = min(step for step in one if step >= _LATE * max(one))
        last = max(one)
        said.append(
            f"{cell.model}, mean {cell.mean:g}: {one[late].mean:.3g} at step {late:,}, "
            f"{one[last].mean:.3g} at step {last:,}"
        )
    return said


def _first_below(cell: ModelSetting, one: Mapping[int, Score]) -> str:
    """States the first snapshot below the published error of the model without MLP."""
    failure = PAPER_TABLE[ModelSetting(False, cell.mean)]
    steps = [step for step, score in one.items() if score.mean <= failure]
    where = f"first at step {steps[0]:,} of those measured" if steps else "never"
    return (
        f"{cell.model}, mean {cell.mean:g}: below {failure:g}, the published error "
        f"without MLP, {where}"
    )


def figure(config: Config, courses: Courses, columns: Columns) -> Any:
    """Draws errors against training steps, one panel per mean; below, the ratio."""
    import matplotlib.pyplot as plt

    recipe, panels = config.recipe, {}
    for mean in config.means:
        cells = [ModelSetting(mlp, mean) for mlp in (True, False)]
        levels = {
            r"$\langle\beta^*, x\rangle$": columns[mean].prior_mean,
            "best LTB": columns[mean].block,
        }
        failure = PAPER_TABLE.get(ModelSetting(False, mean))
        if failure is not None:
            levels["paper, no MLP"] = failure
        panels[rf"error, $\beta^* = {mean:g} \cdot (1, \dots, 1)$"] = LinePanel(
            {
                ("no MLP", "MLP")[cell.mlp]: _line(courses[cell], 2 - cell.mlp)
                for cell in cells
            },
            "training step",
            "squared error",
            "log",
            "log",
            levels,
            ylim=_limits(courses, cells, levels),
        )
    ratios = {mean: contrasts(courses, mean) for mean in config.means}
    lines = {
        f"mean {mean:g}": Line(
            list(found), [one.ratio for one in found.values()], 3 + place
        )
        for place, (mean, found) in enumerate(ratios.items())
    }
    panels["error without MLP / error with MLP"] = LinePanel(
        lines, "training step", "ratio", "log", "log", {"equal": 1.0}
    )
    seeds, count = len(recipe.seeds), len(config.means)
    with plt.rc_context({**STYLE, "font.size": 9}):
        drawn = plt.figure(figsize=(4.4 * count, 6.7))
        grid = drawn.add_gridspec(2, count)
        places = [*(grid[0, place] for place in range(count)), grid[1, :]]
        line_panels(panels, axes=[drawn.add_subplot(place) for place in places])
        drawn.suptitle(
            f"GPT-2 ({recipe.num_layers} layers, width {recipe.width}) along training, "
            f"d = {recipe.dim}, M = {config.num_examples}, noise {recipe.noise_var:g}\n"
            f"{seeds} seed{'s' * (seeds > 1)}; bands: 90 % interval"
        )
    return drawn


def _line(one: Mapping[int, Score], colour: int) -> Line:
    means = [score.mean for score in one.values()]
    halves = [score.interval[1] - score.mean for score in one.values()]
    return Line(list(one), means, colour, error=halves)


def _limits(courses: Courses, cells: list[ModelSetting], levels: Mapping[str, float]):
    """Returns axis limits that contain all means and levels."""
    values = [score.mean for cell in cells for score in courses[cell].values()]
    values += levels.values()
    return min(values) / 2, max(values) * 2
