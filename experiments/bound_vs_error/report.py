"""Builds the tables, checks and results of a run from its records."""

import math
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.bound_vs_error.compare import (
    ERRORS,
    reference_values,
    z_scores,
)
from experiments.bound_vs_error.config import Config, ProblemSize
from experiments.bound_vs_error.estimate import ORDER, VALID
from experiments.bound_vs_error.figures import figures
from experiments.bound_vs_error.invariance import HELD_OUT, POPULATION
from experiments.bound_vs_error.plan import (
    crossing,
    language_model,
    planned_curve,
)
from icltheory.strict_json import number

INVARIANCE = "invariance"
NAMES = {
    "frobenius": "F",
    "exact": "G",
    "centred": "opt",
    "anisotropic": "aniso",
    "held_out_half": "N/2",
    "held_out_most": "0.9N",
    "held_out_all_but_one": "N-1",
}
ASYMPTOTIC = 200  # slopes are fitted from this N on
SEEN = 0.02  # supersample bounds are compared with errors above this value


def report(config: Config, records: dict[str, dict]) -> Report:
    """Builds the tables, figures, checks, findings and numbers of a run."""
    rows = {row.label: with_ratios(records[row.label]) for row in config.all_rows()}
    scaling, plan = measure_scaling(config, rows), measure_plan(config, rows)
    found = checks(list(rows.values()), records[INVARIANCE])
    found += scaling_checks(scaling) + plan_checks(plan)
    numbers = {
        "rows": rows,
        "invariance": records[INVARIANCE],
        "scaling": scaling,
        "plan": plan,
    }
    return Report(
        numbers,
        checks=found,
        tables=[
            bounds_table(config, rows),
            comparison_table(config, rows),
            plan_table(plan),
            noiseless_table(config, rows),
        ],
        findings=[
            *findings(records[INVARIANCE], scaling, plan),
            *supersample_findings(list(rows.values())),
        ],
        figures=figures(config, rows),
        axes={"invariance.terms.*.*": ["layer"]},
    )


def with_ratios(record: dict[str, Any]) -> dict[str, Any]:
    """Adds to a record its best valid bound, ratios to the error, and the reference."""
    valid = {name: number(record[name]["value"]) for name in VALID}
    # The choice accounts for noise, so that a low estimate does not win by chance.
    best = min(valid, key=lambda name: valid[name] + 2 * record[name]["se"])
    error, se = record["error"]["value"], record["error"]["se"]
    det = record["det_error"]["value"]
    # A ratio is computed only for an error that exceeds its own noise.
    ratios = (
        {name: value / error for name, value in valid.items()} if error > 2 * se else {}
    )
    reference = reference_values(record)
    return {
        **record,
        "best": {
            "name": best if math.isfinite(valid[best]) else "none",
            "value": valid[best],
        },
        "ratios": ratios,
        "det_ratio": record["smoothing"]["value"] / det if det > 0 else None,
        "reference": reference,
        "z": z_scores(record),
    }


def checks(rows: list[dict[str, Any]], invariance: dict[str, Any]) -> list[Check]:
    """Checks every row; each check reports the row closest to failing."""

    def over(record, error, bounds):
        smallest = min(number(record[name]["value"]) for name in bounds)
        return (record[error]["value"] - smallest) / record[error]["se"]

    def disagreement(record, names):
        scores = [abs(number(z)) for k, z in record["z"].items() if (k in names)]
        return max(scores, default=0.0)

    def over_limit(record, name):
        entry = record[name]
        return (entry["error"] - entry["upper"]) / max(entry["error_se"], 1e-12)

    bounds = ("inside", *VALID, "smoothing")
    kinds = [
        ("true error less the smallest valid bound, in se", 4.0,
         lambda r: over(r, "error", VALID)),
        ("the same without noise, smoothing bound", 4.0,
         lambda r: over(r, "det_error", ("smoothing",))),
        ("error of the pairs less its supersample limit, in se", 4.0,
         lambda r: over_limit(r, "supersample")),
        ("the same without noise", 4.0,
         lambda r: over_limit(r, "det_supersample")),
        ("true errors against the reference, |z|", 5.0,
         lambda r: disagreement(r, ERRORS)),
        ("risk against the reference, |z|", 5.0,
         lambda r: disagreement(r, ("risk",))),
        ("bounds against the reference, |z|", 5.0,
         lambda r: disagreement(r, bounds)),
        ("order F >= G >= opt >= aniso, violation in se", 5.0,
         lambda r: max(r["order"].values(), default=-math.inf)),
    ]  # fmt: skip
    found = []
    for name, limit, score in kinds:
        scores = {record["name"]: score(record) for record in rows}
        worst = max(scores, key=lambda label: scores[label])
        found.append(Check(f"{name} ({worst})", scores[worst], limit, "<="))
    finite = sum(math.isfinite(number(r["printed"]["value"])) for r in rows)
    found.append(Check("rows where the printed bound is finite", finite, 0, "<="))
    for prior in (HELD_OUT, POPULATION):
        spread = invariance["relative_spread"][prior]
        name = f"layers and generic weights, relative spread, {prior}"
        found.append(Check(name, spread["full support"], 1e-6, "<="))
    return found


def measure_scaling(config: Config, rows: dict[str, dict]) -> dict[str, Any]:
    """Fits the slopes of error and bounds in N on log axes, from ``ASYMPTOTIC`` on."""
    sweeps = {"b = N/2": config.fraction_sweep(), "b fixed": config.shots_sweep()}
    found = {}
    for name, sweep in sweeps.items():
        kept = [row for row in sweep if row.num_demos >= ASYMPTOTIC]
        if len(kept) < 2:
            continue
        x = np.log([row.num_demos for row in kept])
        planned = planned_curve(
            [row.num_demos for row in kept], [row.shots for row in kept]
        )
        found[name] = {
            series: _slope(x, [rows[row.label][series] for row in kept])
            for series in ("error", *ORDER, "held_out_half", "det_error", "smoothing")
        } | {"planned": {"slope": float(np.polyfit(x, np.log(planned), 1)[0])}}
    return found


def _slope(x: np.ndarray, entries: list[dict]) -> dict[str, float | str]:
    """Returns the least-squares slope of the logarithm and its standard error."""
    values = np.array([entry["value"] for entry in entries], float)
    errors = np.array([entry["se"] for entry in entries])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    if not np.all(values > 0):
        return {"slope": "nan", "se": 0.0}
    return {
        "slope": float(weights @ np.log(values)),
        "se": float(np.sqrt(np.sum((weights * errors / values) ** 2))),
    }


def scaling_checks(scaling: dict[str, Any]) -> list[Check]:
    """Checks slopes: bounds ~ N^-1/2 and errors ~ 1/N at b = N/2, all ~ 1/N at fixed b.

    The limits are for N to infinity; 0.1 is left for what these N are short of it.
    """
    expected = [
        ("b = N/2", "error", -1.0),
        ("b = N/2", "anisotropic", -0.5),
        ("b fixed", "error", -1.0),
        ("b fixed", "anisotropic", -1.0),
    ]
    return [
        Check(
            f"power of N, {sweep}, {series}",
            number(scaling[sweep][series]["slope"]),
            power,
            "within",
            0.1 + 5 * number(scaling[sweep][series]["se"]),
        )
        for sweep, series, power in expected
        if sweep in scaling
    ]


def measure_plan(config: Config, rows: dict[str, dict]) -> dict[str, Any]:
    """Returns each target's planned N, the simulated bound there, and the needed N."""
    sweep = config.fraction_sweep()
    sizes = [row.num_demos for row in sweep]
    curve = [number(rows[row.label]["anisotropic"]["value"]) for row in sweep]
    targets = {}
    for target, row in config.planned().items():
        record = rows[row.label]
        targets[f"{target:g}"] = {
            "planned N": row.num_demos,
            "bound there": record["anisotropic"],
            "best there": record["best"],
            "N simulated": crossing(sizes, curve, target),
            "true error there": record["error"],
        }
    found: dict[str, Any] = {"targets": targets}
    found["language model"] = language_model(0.5)
    return found


def plan_checks(plan: dict[str, Any]) -> list[Check]:
    """Checks that the plan is below the simulated bound by at most a quarter."""
    found = []
    for target, entry in plan["targets"].items():
        there, goal = entry["bound there"], float(target)
        ratio, se = number(there["value"]) / goal, there["se"] / goal
        name = f"bound over plan at N = {entry['planned N']}, target {target}"
        found.append(Check(name, ratio, 1.175, "within", 0.175 + 5 * se))
    return found


def _cell(entry: dict[str, Any]) -> str:
    value = number(entry["value"])
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def _error_cell(entry: dict[str, Any]) -> str:
    return f"{entry['value']:.3g} ({entry['se']:.1g})"


def _row_name(record: dict[str, Any]) -> str:
    kind = "generic" if record["generic"] else f"{record['dim']}"
    sizes = (record[k] for k in ("num_demos", "shots", "num_layers"))
    return f"{kind} {' '.join(map(str, sizes))}"


def bounds_table(config: Config, rows: dict[str, dict]) -> Table:
    """Builds the table of true errors and bounds, one line per row."""
    table = Table(
        title="true error (standard error) and bounds; trivial bound 2, printed inf; "
        "held-out priors see N/2, 0.9N, N-1; pairs: supersample bound, 95 % limit",
        padding=(0, 0),
    )
    table.add_column("d N b L", no_wrap=True)
    heads = ("error (se)", "risk", *NAMES.values(), "best/err", "pairs", "limit")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in [*config.table(), *extra_rows(config)]:
        record = rows[row.label]
        ratio = record["ratios"].get(record["best"]["name"], "-")
        table.add_row(
            _row_name(record),
            _error_cell(record["error"]),
            _cell(record["risk"]),
            *(_cell(record[name]) for name in NAMES),
            ratio if isinstance(ratio, str) else f"{ratio:.1f}",
            *_supersample_cells(record["supersample"]),
        )
    return table


def noiseless_table(config: Config, rows: dict[str, dict]) -> Table:
    """Builds the table without noise, to which Theorem 2 does not apply."""
    table = Table(title="without noise: true error (standard error) and bounds")
    table.add_column("d N b L", no_wrap=True)
    for head in ("error (se)", "smoothing", "pairs", "limit"):
        table.add_column(head, justify="right")
    for row in [*config.table(), *extra_rows(config)]:
        record = rows[row.label]
        table.add_row(
            _row_name(record),
            _error_cell(record["det_error"]),
            _cell(record["smoothing"]),
            *_supersample_cells(record["det_supersample"]),
        )
    return table


def _supersample_cells(entry: dict[str, float]) -> tuple[str, str]:
    return _cell(entry), _cell({"value": entry["upper"]})


def extra_rows(config: Config) -> list[ProblemSize]:
    """Returns the rows of the sweeps and the plan that are not in the table."""
    table = config.table()
    return [row for row in config.all_rows() if row not in table]


def comparison_table(config: Config, rows: dict[str, dict]) -> Table:
    """Builds the table of differences from the independent simulation, as z-scores."""
    table = Table(title="z-scores against the independent simulation", padding=(0, 0))
    table.add_column("d N b L", no_wrap=True)
    series = {"error": "error", "risk": "risk", "inside": "log in", **NAMES}
    series |= {"det_error": "det err", "smoothing": "smooth"}
    for head in series.values():
        table.add_column(head, justify="right", no_wrap=True)
    for row in config.table():
        record = rows[row.label]
        scores = [record["z"].get(name) for name in series]
        table.add_row(
            _row_name(record),
            *("" if z is None else f"{round(number(z), 1) + 0.0:.1f}" for z in scores),
        )
    return table


def plan_table(plan: dict[str, Any]) -> Table:
    """Builds the table that compares the plan with the simulation."""
    table = Table(title="plan for a bound at a target: d = 5, L = 2, b = N/2")
    for head in ("target", "planned N", "bound there", "N simulated", "true error"):
        table.add_column(head, justify="right")
    for target, entry in plan["targets"].items():
        table.add_row(
            target,
            str(entry["planned N"]),
            f"{_cell(entry['bound there'])} ({entry['bound there']['se']:.3f})",
            f"{number(entry['N simulated']):.0f}",
            _error_cell(entry["true error there"]),
        )
    return table


def findings(
    invariance: dict[str, Any], scaling: dict[str, Any], plan: dict[str, Any]
) -> list[str]:
    """Summarises the results in sentences."""
    said = []
    for sweep, series in scaling.items():
        powers = ", ".join(
            f"{NAMES.get(name, name)} {number(entry['slope']):.2f}"
            for name, entry in series.items()
        )
        said.append(f"powers of N from N = {ASYMPTOTIC} on, {sweep}: {powers}")
    for prior, spread in invariance["relative_spread"].items():
        parts = ", ".join(f"{name} {value:.1e}" for name, value in spread.items())
        said.append(f"relative spread over layers and weights, {prior}: {parts}")
    model = plan["language model"]
    for name in ("full", "rank 20"):
        entry = model[name]
        said.append(
            f"width {model['width']}, {name}: support {entry['support']:,}; with 10 "
            f"demonstrations {entry['bound with 10 demonstrations']}; a bound of "
            f"{model['target']} needs {entry['demonstrations, one layer']:,} for one "
            f"layer, {entry['demonstrations, all layers']:,} for {model['layers']}"
        )
    return said


def supersample_findings(rows: list[dict[str, Any]]) -> list[str]:
    """States the ratio of the supersample bound to the error, where it is resolved."""
    said = []
    kinds = {"with noise": ("error", "supersample")}
    kinds["without noise"] = ("det_error", "det_supersample")
    for kind, (error, name) in kinds.items():
        seen = [row for row in rows if row[error]["value"] > SEEN]
        if not seen:
            continue
        ratios = {
            part: [row[name][part] / row[error]["value"] for row in seen]
            for part in ("value", "upper")
        }
        words = ", ".join(
            f"{part} {min(found):.2f} to {max(found):.2f}"
            for part, found in zip(("bound", "limit"), ratios.values(), strict=True)
        )
        said.append(
            f"supersample, {kind}, times the true error in the {len(seen)} rows with "
            f"an error above {SEEN}: {words}"
        )
    return said
