"""The two figures of a run."""

import math

from matplotlib.figure import Figure

from experiments.bound_vs_error.config import Config, ProblemSize
from experiments.bound_vs_error.drawing import (
    SamplePanel,
    bounds_against_samples,
    bounds_by_learner,
)
from experiments.bound_vs_error.learners import CLIP
from experiments.bound_vs_error.plan import planned_curve
from icltheory.plotting import Curve
from icltheory.strict_json import number

NOISY = {
    "frobenius": "paper's norm",
    "exact": r"$\|G_t\|$",
    "centred": "centred",
    "anisotropic": "anisotropic",
    "held_out_half": "held out, N/2",
    "printed": "as printed",
    "supersample": "supersample",
}


def figures(config: Config, rows: dict[str, dict]) -> dict[str, Figure]:
    """Draws ``rows.png`` and, with at least two sizes, ``scaling.png``."""
    found = {}
    table = [rows[row.label] for row in config.table()]
    if table:
        found["rows.png"] = _rows_figure(table)
    if len(config.sweep) > 1:
        found["scaling.png"] = _scaling_figure(config, rows)
    return found


def _error_curve(records: list[dict], name: str) -> Curve:
    """Returns a curve of means with intervals of two standard errors to each side."""
    values = [record[name]["value"] for record in records]
    halves = [2 * record[name]["se"] for record in records]
    low = [v - h for v, h in zip(values, halves, strict=True)]
    return Curve(values, low, [v + h for v, h in zip(values, halves, strict=True)])


def _values(records: list[dict], name: str) -> list[float]:
    return [number(record[name]["value"]) for record in records]


def _rows_figure(table: list[dict]):
    # Rows are sorted from top to bottom by the numbers in their names.
    sizes = ("generic", "dim", "num_demos", "shots", "num_layers")
    table = sorted(table, key=lambda row: [row[size] for size in sizes])
    noisy = {label: _values(table, name) for name, label in NOISY.items()}
    smooth = {"smoothing": _values(table, "smoothing")}
    smooth["supersample"] = _values(table, "det_supersample")
    panels = {
        "noisy learner of Assumption 1": (_error_curve(table, "error"), noisy),
        "without\nnoise": (_error_curve(table, "det_error"), smooth),
    }
    names = [
        f"{'generic' if r['generic'] else 'd = ' + str(r['dim'])}, "
        f"N = {r['num_demos']}, b = {r['shots']}, L = {r['num_layers']}"
        for r in table
    ]
    title = "How many times the true generalisation error a bound is"
    return bounds_by_learner(panels, names, title)


def _scaling_figure(config: Config, rows: dict[str, dict]):
    b = config.sweep_shots
    sweeps = {
        "b = N/2": (config.fraction_sweep(), (-0.5, -1.0)),
        f"b = {b}": (config.shots_sweep(), (-1.0,)),
    }
    panels = {
        name: _sample_panel(sweep, rows, powers)
        for name, (sweep, powers) in sweeps.items()
        if len(sweep) > 1
    }
    title = "Error (band: 2 standard errors) and bounds by demonstrations, d = 5, L = 2"
    return bounds_against_samples(panels, CLIP, title)


def _sample_panel(
    sweep: list[ProblemSize], rows: dict[str, dict], powers: tuple[float, ...]
) -> SamplePanel:
    records = [rows[row.label] for row in sweep]
    sizes = [row.num_demos for row in sweep]
    curves = {
        label: Curve(_values(records, name))
        for name, label in NOISY.items()
        if name != "printed"
    }
    planned = planned_curve(sizes, [row.shots for row in sweep])
    curves["plan (no bound)"] = Curve.of(planned)
    # Guides pass near the last points of the tightest bound and of the error.
    ends = {-0.5: "anisotropic", -1.0: "error"}
    slopes = {}
    for power in powers:
        end = number(records[-1][ends[power]]["value"])
        if math.isfinite(end) and end > 0:
            slopes[power] = 0.7 * end * (sizes[0] / sizes[-1]) ** power
    return SamplePanel(sizes, _error_curve(records, "error"), curves, slopes)
