"""Builds the table, figure and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments.garg_sweep.config import Config
from experiments.garg_sweep.figure import draw
from experiments.garg_sweep.measure import ReferenceRisks, SweepMeasurements
from experiments.garg_sweep.summary import SweepCell, best, cells
from icltheory.statistics import Estimate

_SIGMAS = 5.0  # allowed z-score of a difference whose expectation is 0


def checks(
    config: Config, measured: SweepMeasurements, found: list[SweepCell]
) -> list[Check]:
    """Checks the reference risks against theory, and that the models learned."""
    low, _, high = config.counted()
    out = []
    for noise_var, lines in zip(config.noise_vars, measured.lines, strict=True):
        gap = np.asarray(lines.bayes[:, low] - lines.bayes_risk[:, low])
        mean, error = Estimate.of(gap)
        out.append(
            Check(
                f"noise {noise_var:g}: Bayes sampled minus exact at k = {low}",
                float(mean),
                0.0,
                "within",
                _SIGMAS * float(error),
            )
        )
        cell = best(found, noise_var)
        out.append(
            Check(
                f"noise {noise_var:g}: best model against one layer of linear "
                f"attention at k = {high}",
                float(cell.errors[0][high]) if cell else 1.0,
                float(lines.one_layer[high]),
                "<=",
            )
        )
    out.append(
        Check(
            "error minus (Bayes error + distance), largest |z|",
            _largest_z(measured, found),
            _SIGMAS,
            "<=",
        )
    )
    return out


def _largest_z(measured: SweepMeasurements, found: list[SweepCell]) -> float:
    """Largest z-score of the risk identity over the models that learned."""
    sound = np.array([cell.sound for cell in found])
    sound = sound.reshape(measured.identity_z.shape[:3])
    values = np.abs(measured.identity_z[sound])
    return float(values.max()) if values.size else 0.0


def claims(config: Config, found: list[SweepCell]) -> list[Claim]:
    """Claims about widths, rates and noise; they do not affect the run's status."""
    stated, rates = [], {}
    for noise_var in config.noise_vars:
        of = {width: best(found, noise_var, width) for width in config.widths}
        known = [cell for cell in of.values() if cell is not None]
        if len(known) < len(of):
            continue
        rates[noise_var] = [cell.learning_rate for cell in known]
        first, last = known[0], known[-1]
        gain = first.distance[0] - last.distance[0]
        spread = float(np.hypot(first.distance[1], last.distance[1]))
        pair = f"width {first.width} and {last.width}"
        stated.append(
            Claim(
                claim=f"noise {noise_var:g}: wider is nearer Bayes, each at its best "
                "rate",
                expected="distance falls by two standard errors",
                measured=f"{first.distance[0]:.4f} and {last.distance[0]:.4f} at "
                f"{pair} "
                f"(s.e. of the difference {spread:.4f})",
                held=gain > 2 * spread,
            )
        )
        shown = ", ".join(f"{rate:g}" for rate in rates[noise_var])
        stated.append(
            Claim(
                claim=f"noise {noise_var:g}: the best rate does not grow with the "
                "width",
                expected="rates that do not ascend",
                measured=f"{shown} for widths {', '.join(map(str, config.widths))}",
                held=sorted(rates[noise_var], reverse=True) == rates[noise_var],
            )
        )
    if len(rates) > 1:
        same = len({tuple(values) for values in rates.values()}) == 1
        shown = "; ".join(
            f"{noise:g}: {', '.join(f'{rate:g}' for rate in values)}"
            for noise, values in rates.items()
        )
        stated.append(
            Claim(
                claim="the best rate is that of all noises",
                expected="same",
                measured=shown,
                held=same,
            )
        )
    return stated


def comparison_table(
    config: Config, measured: SweepMeasurements, found: list[SweepCell]
) -> Table:
    """Builds the table of every grid cell and the reference risks of its noise."""
    ks = config.counted()
    table = Table(
        title=f"squared error / d against <w, x>, d = {config.recipe.dim}: mean over "
        f"{len(config.recipe.seeds)} seeds (s.e.); references exact"
    )
    heads = ("noise", "width", "rate", *(f"k = {k}" for k in ks), "from Bayes", "fate")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for noise_var, lines in zip(config.noise_vars, measured.lines, strict=True):
        for name, values in references(lines).items():
            cells_of = [f"{values[k]:.3f}" for k in ks]
            table.add_row(f"{noise_var:g}", name, "", *cells_of, "", "")
        own = [cell for cell in found if cell.noise_var == noise_var]
        top = best(found, noise_var)
        for cell in own:
            style = "bold" if cell is top else ""
            table.add_row(*_row(cell, ks), style=style)
        table.add_section()
    return table


def references(lines: ReferenceRisks) -> dict[str, np.ndarray]:
    """Reference risks by prefix, averaged over inputs where they depend on them."""
    return {
        "Bayes": lines.bayes_risk.mean(axis=0),
        "least squares": lines.least_squares_risk,
        "one layer": lines.one_layer,
    }


def _row(cell: SweepCell, ks: tuple[int, ...]) -> list[str]:
    mean, error = cell.errors
    pairs = [*((mean[k], error[k]) for k in ks), cell.distance]
    shown = [f"{m:.3f} ({e:.3f})" if np.isfinite(m) else "-" for m, e in pairs]
    own = [f"{cell.noise_var:g}", str(cell.width), f"{cell.learning_rate:g}"]
    return [*own, *shown, cell.fate]


def report(config: Config, measured: SweepMeasurements) -> Report:
    """Builds the tables, figure, claims, checks and numbers of a run."""
    found = cells(config, measured)
    numbers = {
        "cells": [_as_dict(cell) for cell in found],
        "references": {
            f"{noise_var:g}": references(lines)
            for noise_var, lines in zip(config.noise_vars, measured.lines, strict=True)
        },
        "precision": config.precision,
    }
    return Report(
        numbers,
        checks=checks(config, measured, found),
        tables=[comparison_table(config, measured, found)],
        claims=claims(config, found),
        claims_title="what one expects",
        figures={"sweep.png": draw(config, measured, found)},
        axes={
            "cells.*.errors": ["examples k, from 0"],
            "cells.*.standard_errors": ["examples k, from 0"],
            "cells.*.diverged_at": ["seed"],
            "references.*.*": ["examples k, from 0"],
        },
    )


def _as_dict(cell: SweepCell) -> dict[str, Any]:
    return {
        "noise_var": cell.noise_var,
        "width": cell.width,
        "learning_rate": cell.learning_rate,
        "errors": cell.errors[0],
        "standard_errors": cell.errors[1],
        "distance": cell.distance,
        "diverged_at": cell.diverged,
        "fate": cell.fate,
    }
