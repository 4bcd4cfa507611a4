"""Builds the tables, figures and checks of a run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments.supersample.config import Config
from experiments.supersample.drawing import along, beside
from experiments.supersample.measure import Case
from experiments.supersample.order import Tau, orders

# Bounds are compared with errors above this value.
LARGE = 0.02


def report(config: Config, cases: Sequence[Case]) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    found = orders(cases, config.confidence)
    return Report(
        {
            "cases": {case.name: _numbers(case) for case in cases},
            "orders": {
                family: {name: tau._asdict() for name, tau in own.items()}
                for family, own in found.items()
            },
            "precision": "float32",
        },
        checks=_checks(cases),
        tables=[_table(cases), _order_table(found)],
        claims=_claims(cases),
        claims_title="what was hoped for",
        figures={
            "bounds.png": beside(cases),
            "along.png": along(cases, config.confidence),
        },
        interval_level=config.confidence,
    )


def _numbers(case: Case) -> dict[str, Any]:
    return {
        "family": case.family,
        "x": case.x,
        "error": float(case.error.mean),
        "standard error": float(case.error.standard_error),
        "loss on the prompt": case.train,
        "square root": float(case.square_root.value),
        "square root, limit": float(case.square_root.upper),
        "optimal": float(case.optimal.value),
        "optimal, limit": float(case.optimal.upper),
        "information": float(np.mean(np.asarray(case.square_root.information))),
        "norm": case.norm,
        "condition number": case.condition,
        "theorem 2": case.theorem2,
    }


def excess(case: Case) -> float:
    """Excess of the error over the optimal bound's limit, in standard errors."""
    above = abs(case.error.mean) - float(case.optimal.upper)
    return float(above / max(case.error.standard_error, 1e-12))


def _checks(cases: Sequence[Case]) -> list[Check]:
    worst = max(excess(case) for case in cases)
    vacuous = sum(bool(case.optimal.vacuous) for case in cases)
    return [
        Check("largest z of an error above its limit", worst, 3.0, "<="),
        Check("learners whose limit is vacuous", vacuous, 0, "<="),
    ]


def _large(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if abs(case.error.mean) > LARGE]


def _claims(cases: Sequence[Case]) -> list[Claim]:
    below = [case.name for case in cases if excess(case) > 0]
    large = _large(cases)
    kinds = {
        "square-root bound": lambda case: float(case.square_root.value),
        "limit of the square-root bound": lambda case: float(case.square_root.upper),
        "optimal bound": lambda case: float(case.optimal.value),
        "limit of the optimal bound": lambda case: float(case.optimal.upper),
    }
    claims = [
        Claim(
            claim="no error on other prompts is above the limit",
            measured=", ".join(below) or f"none of {len(cases)} learners is",
            held=not below,
        )
    ]
    for name, of in kinds.items():
        ratios = [of(case) / abs(case.error.mean) for case in large]
        claims.append(
            Claim(
                claim=f"{name}: at most twice each error above {LARGE:g}",
                measured=f"{min(ratios):.2f} to {max(ratios):.2f} times, "
                f"{len(large)} learners"
                if large
                else "no error is that large",
                held=bool(large) and max(ratios) <= 2,
            )
        )
    return claims


def _table(cases: Sequence[Case]) -> Table:
    table = Table(title="errors on new points of a task, and their bounds")
    names = (
        "learner",
        "error (s.e.)",
        "loss on prompt",
        "square root",
        "its limit",
        "optimal",
        "its limit",
        "limit/error",
        "Theorem 2",
    )
    for place, name in enumerate(names):
        # Column names must differ, since the stored table has one column per name.
        name = "limit (square root)" if place == 4 else name
        name = "limit (optimal)" if place == 6 else name
        table.add_column(name, justify="left" if place == 0 else "right")
    for case in cases:
        error, large = case.error.mean, abs(case.error.mean) > LARGE
        upper = float(case.optimal.upper)
        table.add_row(
            case.name,
            f"{error:.4f} ({case.error.standard_error:.4f})",
            f"{case.train:.3f}",
            f"{float(case.square_root.value):.3f}",
            f"{float(case.square_root.upper):.3f}",
            f"{float(case.optimal.value):.4f}",
            f"{upper:.4f}",
            f"{upper / abs(error):.2f}" if large else "-",
            "-" if math.isnan(case.theorem2) else f"{case.theorem2:.3g}",
        )
    return table


def _order_table(found: dict[str, dict[str, Tau]]) -> Table:
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    table = Table(title="Kendall's tau with the error on other prompts (interval)")
    table.add_column("models")
    for name in names:
        table.add_column(name, justify="right")
    for family, own in found.items():
        count = next(iter(own.values())).models
        cells = [_cell(own[name]) if name in own else "-" for name in names]
        table.add_row(f"{family} ({count})", *cells)
    return table


def _cell(tau: Tau) -> str:
    if math.isnan(tau.tau):  # all models have the same value
        return "-"
    return f"{tau.tau:+.2f} ({tau.low:+.2f}, {tau.high:+.2f})"
