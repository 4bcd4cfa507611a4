"""Builds the tables, figures and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.gradient_flow.config import Config
from experiments.gradient_flow.descents import Descents
from experiments.gradient_flow.figures import figures
from experiments.gradient_flow.paths import FlowPath
from experiments.gradient_flow.starts import FATES, MODELS, Starts
from icltheory.statistics import proportion_interval

Fates = dict[tuple[str, int, int], Starts]


def report(
    config: Config, paths: dict[str, FlowPath], descents: Descents, starts: Fates
) -> Report:
    """Builds the table, figures, checks, findings and numbers of a run."""
    found = [
        *path_checks(paths),
        *descent_checks(config, descents),
        *start_checks(config, starts),
    ]
    numbers = {
        "paths": {name: path_numbers(path) for name, path in paths.items()},
        "descents": {
            "largest_step": descents.largest_step,
            "distance_from_flow": {str(k): v for k, v in descents.distances.items()},
            "settled": {str(k): list(v) for k, v in descents.settled.items()},
        },
        "starts": [
            start_numbers(config, *setting, part) for setting, part in starts.items()
        ],
    }
    return Report(
        numbers,
        checks=found,
        tables=[fates_table(config, starts)],
        findings=findings(config, paths, descents, starts),
        figures=figures(config, paths, descents, starts),
        interval_level=0.95,
    )


def share_of_bound(value: Any, bound: Any, floor: float) -> float:
    """Largest ratio of a value to its bound, where the value exceeds rounding."""
    value, bound = np.asarray(value), np.asarray(bound)
    seen = value > floor
    return float(np.max(value[seen] / bound[seen]))


def path_numbers(path: FlowPath) -> dict[str, float]:
    """Returns the stored numbers of a flow."""
    bounds, flow = path.bounds, path.trajectory
    distance = max(
        float(np.abs(flow.model.beta[-1] - path.limit.beta).max()),
        float(np.abs(flow.model.Gamma[-1] - path.limit.Gamma).max()),
    )
    return {
        "succeeded": float(flow.succeeded),
        "steps": float(flow.num_steps),
        "excess": float(flow.excess[-1]),
        "risk": float(flow.risk[-1]),
        "distance_from_limit": distance,
        "frozen_part_moved": path.frozen,
        "share_start": share_of_bound(path.start, bounds.beta, 1e-12),
        "share_preconditioner": share_of_bound(
            path.preconditioner, bounds.Gamma, 1e-11
        ),
        "share_excess": share_of_bound(flow.excess, bounds.excess, 1e-22),
    }


def path_checks(paths: dict[str, FlowPath]) -> list[Check]:
    """Checks the statements of Theorem 6.3 about the flow."""
    found = []
    for name, path in paths.items():
        at = path_numbers(path)
        found += [
            Check(f"{name}: all times reached", at["succeeded"], 1.0, "within"),
            Check(f"{name}: excess at the end", at["excess"], 1e-12, "<="),
            Check(
                f"{name}: distance from limit", at["distance_from_limit"], 1e-9, "<="
            ),
            Check(f"{name}: frozen part moved", at["frozen_part_moved"], 1e-12, "<="),
        ]
        for part in ("start", "preconditioner", "excess"):
            share = at[f"share_{part}"]
            found.append(
                Check(f"{name}: share of bound, {part}", share, 1.0, "<=", 1e-6)
            )
    return found


def descent_checks(config: Config, descents: Descents) -> list[Check]:
    """Checks that small steps approach the flow, and large batches reduce the noise."""
    shares = sorted(config.step_shares)
    small, large = (descents.distances[s] for s in (shares[0], shares[-1]))
    found = [Check("smallest step nearer to the flow", small, large, "<=")]
    first, last = min(config.batch_sizes), max(config.batch_sizes)
    noise = [descents.settled[batch][0] for batch in (last, first)]
    found.append(Check("noise of the largest batch", noise[0], noise[1], "<="))
    return found


def start_checks(config: Config, starts: Fates) -> list[Check]:
    """Checks that starts reach proved spurious minima and no excess is negative."""
    found = []
    for (name, dim, M), part in starts.items():
        label = f"{name}, d = {dim}, M = {M}"
        least = float(np.nanmin(part.excess))
        found.append(Check(f"{label}: excess never below 0", -least, 1e-12, "<="))
        if part.margin > 0:
            free = config.num_starts - part.counts[FATES[1]]
            most = config.num_starts - 1
            found.append(Check(f"{label}: starts not caught", free, most, "<="))
    return found


def start_numbers(config: Config, name: str, dim: int, M: int, part: Starts) -> dict:
    """Returns the stored numbers of a setting with random starts."""
    total = config.num_starts
    return {
        "model": name,
        "dim": dim,
        "num_examples": M,
        "starts": total,
        "counts": part.counts,
        "least_risk_interval": proportion_interval(part.counts[FATES[0]], total),
        "spurious_excess": float(part.levels[0]),
        "spurious_is_minimum": part.margin > 0,
        "rest": dict(zip(("excess", "count"), part.rest, strict=True)),
        "unfinished": part.unfinished,
    }


def findings(
    config: Config, paths: dict[str, FlowPath], descents: Descents, starts: Fates
) -> list[str]:
    """Summarises the results in sentences."""
    said = []
    for name, path in paths.items():
        at = path_numbers(path)
        said.append(
            f"{name}: excess {at['excess']:.1g} after {at['steps']:.0f} steps of the "
            f"solver; largest share of the bounds: start {at['share_start']:.3f}, "
            f"preconditioner {at['share_preconditioner']:.3f}, excess "
            f"{at['share_excess']:.3f}"
        )
    settled = ", ".join(
        f"{mean:.2g} +- {error:.1g} (batch {batch})"
        for batch, (mean, error) in descents.settled.items()
    )
    said.append(f"descent on samples settles at excess {settled}; the flow goes to 0")
    for model in MODELS:
        parts = [p for (name, _, _), p in starts.items() if name == model]
        total = config.num_starts * len(parts)
        arrived = sum(p.counts[FATES[0]] for p in parts)
        caught = sum(p.counts[FATES[1]] for p in parts)
        said.append(
            f"{model}: {arrived} of {total} random starts reach the least risk, "
            f"{caught} rest at the spurious point, {total - arrived - caught} end "
            "elsewhere or still move"
        )
    return said


def fates_table(config: Config, starts: Fates) -> Table:
    """Builds the table of the outcomes of random starts."""
    table = Table(title=f"{config.num_starts} random starts a setting")
    for name in ("model", "d", "M", FATES[0], "95 % interval", *FATES[1:]):
        table.add_column(name, justify="left" if name == "model" else "right")
    table.add_column("spurious excess", justify="right")
    for (name, dim, M), part in starts.items():
        low, high = proportion_interval(part.counts[FATES[0]], config.num_starts)
        cells = [name, str(dim), str(M), str(part.counts[FATES[0]])]
        cells += [f"{low:.2f} to {high:.2f}"]
        cells += [str(part.counts[fate]) for fate in FATES[1:]]
        proved = "" if part.margin > 0 else " (not proved)"
        table.add_row(*cells, f"{part.levels[0]:.4g}{proved}")
    return table
