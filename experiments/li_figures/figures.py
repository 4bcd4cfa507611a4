"""Draws the figures of a run."""

from typing import Any

import numpy as np

from experiments.li_figures.drawing import (
    levels_beside_published,
    norms_along_training,
)
from experiments.li_figures.levels import Level
from experiments.li_figures.one_layer import Trained
from experiments.li_figures.published import LENGTHS_19, NORMS, RANGES
from experiments.li_figures.stops import Stop


def figures(
    fits: list[Level], single: list[Trained], stops: list[Stop]
) -> dict[str, Any]:
    """Draws all figures by file name."""
    best_17 = min(
        (level for level in fits if level.name.startswith("Figure 17")),
        key=lambda level: level.fresh.typical,
    )
    others = [level for level in fits if level.name.endswith(" free")]
    alone = [level for level in fits if level.name in _ALONE]
    panels = {_greek(level.name): _lines(level) for level in (best_17, *others)}
    panels["Figure 19, a task for each curve"] = {
        label: line for level in alone for label, line in _lines(level).items()
    }
    best = min(stops, key=lambda stop: stop.factor)
    trained = next(one for one in single if one.shifts == best.shifts)
    place = trained.settings.index((best.gain, best.step_size))
    return {
        "levels.png": levels_beside_published(
            panels, "Errors of chain of thought: published levels and votes"
        ),
        "norms.png": norms_along_training(
            trained.steps,
            _norms(trained, place),
            rf"Norms along training, second layer $\pm{best.gain:g}/m$, step size "
            f"{best.step_size:g}",
        ),
    }


_ALONE = ("Figure 19, CoT", "Figure 19, ICL")


def _lines(level: Level) -> dict[str, tuple[Any, Any, Any]]:
    lines = {}
    rows = zip(level.labels, level.curves, level.fresh.errors, strict=True)
    for label, curve, errors in rows:
        x = np.array(LENGTHS_19)[curve.places]
        # An error of 0 has no place on a logarithmic axis.
        lines[_greek(label)] = x, curve.values, np.where(errors > 0, errors, np.nan)
    return lines


def _greek(text: str) -> str:
    """Names of symbols as the symbols."""
    for name, symbol in (
        ("alpha'", r"$\alpha'$"),
        ("tau", r"$\tau$"),
        ("rho", r"$\rho$"),
    ):
        text = text.replace(name, symbol)
    return text


def _norms(trained: Trained, place: int) -> dict[str, dict[str, tuple[Any, float]]]:
    ends = NORMS | {"size": float(np.mean(RANGES["size"]))}

    def part(names):
        return {
            label: (getattr(trained.probes, name)[place], ends[name])
            for name, label in names.items()
        }

    return {
        "attention (Figure 8)": part(
            {"query": r"$\|W_Q p\|$", "component": "along the pattern"}
        ),
        "neurons (Figures 10, 11, 14)": part(
            {"feature": "feature part", "label": "label part", "size": "row of $W_O$"}
        ),
    }
