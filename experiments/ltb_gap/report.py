"""Builds the tables, figures and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report, largest
from experiments.ltb_gap.config import Config
from experiments.ltb_gap.drawing import GapPanel, excess_hills, gap_panels, gap_phases
from experiments.ltb_gap.settings import PopulationSetting, axes, trained_settings
from experiments.ltb_gap.theory import CONSTRUCTIONS, Phases, Risks
from experiments.ltb_gap.train import TrainedBlocks
from icltheory.statistics import Estimate

LABELS = {
    "mean_norm": "length of the prior mean, $\\|\\beta^*\\|$",
    "num_examples": "examples, M",
    "dim": "dimension, d",
    "noise_var": "noise variance, $\\sigma^2$",
}
CLOSEST = {
    "labels": "start guessed from the labels' size",
    "values": "start from the values",
    "rank_one": "one direction only",
    "zero_start": "start at zero (GD-0)",
}


def report(
    config: Config,
    exact: dict[PopulationSetting, Risks],
    trained: TrainedBlocks,
    grid: Phases,
    arcs: dict[float, np.ndarray],
) -> Report:
    """Builds the table, figures, checks and numbers of a run."""
    rows = _rows(config, exact, trained)
    numbers = {
        "settings": rows,
        "phase_seconds": grid.seconds,
        "precision": "float32 training; risks and optima in float64",
    }
    return Report(
        numbers,
        checks=checks(exact, trained, grid),
        tables=[_table(config, rows)],
        figures=_figures(config, exact, trained, grid, arcs),
        interval_level=0.9,
        axes={"settings.*.trained_lsa": ["seed"], "settings.*.trained_ltb": ["seed"]},
    )


def checks(
    exact: dict[PopulationSetting, Risks], trained: TrainedBlocks, grid: Phases
) -> list[Check]:
    """Checks the statements of the theory."""
    every = exact.values()
    least = {
        name: largest(
            getattr(exact[setting], name) / float(risks.min())
            for setting, risks in trained.risks[name].items()
        )
        for name in ("lsa", "ltb")
    }
    below = largest(t.lower_instance / t.lsa for t in every)
    above = largest(t.lsa / t.upper for t in every)
    bayes = largest((t.bayes - t.ltb) / t.bayes_error for t in every)
    far = grid.mean_norms >= 10
    ratio = (grid.lsa - grid.ltb)[:, far] / grid.mean_norms[far][None] ** 2
    limit = ratio * (grid.examples[:, None] + 2) / 2
    return [
        Check("largest (LTB + instance bound) / best LSA", below, 1.0, "<=", 1e-9),
        Check("largest best LSA / (LTB + upper bound)", above, 1.0, "<=", 1e-9),
        Check("(Bayes - LTB) / standard error, largest", bayes, 4.0, "<="),
        Check("best LSA / best trained LSA, largest", least["lsa"], 1.0, "<=", 1e-6),
        Check("best LTB / best trained LTB, largest", least["ltb"], 1.0, "<=", 1e-6),
        Check(
            "gap (M + 2) / (2 ||beta*||^2), ||beta*|| = 100, mean over M",
            float(limit[:, -1].mean()),
            1.0,
            "within",
            0.02,
        ),
        Check("phase picture: seconds", grid.seconds, 60.0, "<="),
    ]


def _rows(
    config: Config, exact: dict[PopulationSetting, Risks], trained: TrainedBlocks
) -> list[dict[str, Any]]:
    rows = []
    for setting in trained_settings(config):
        row: dict[str, Any] = {**setting._asdict(), **exact[setting]._asdict()}
        for name in ("lsa", "ltb"):
            risks = trained.risks[name][setting]
            row[f"trained_{name}"] = risks.tolist()
            row[f"trained_{name}_reached"] = int(np.sum(risks <= 1.1 * row[name]))
        rows.append(row)
    return rows


def _table(config: Config, rows: list[dict[str, Any]]) -> Table:
    seeds = len(config.seeds)
    table = Table(
        title=f"risks, query noise included; trained: median of {seeds} seeds (how "
        "many within 10 % of the best)"
    )
    for name in ("d", "M", "||beta*||", "sigma^2", "Bayes", "best LTB", "trained LTB"):
        table.add_column(name, justify="right")
    for name in ("best LSA", "trained LSA", "gap (M+1) / ||beta*||^2"):
        table.add_column(name, justify="right")
    for row in rows:
        gap = (row["lsa"] - row["ltb"]) * (row["num_examples"] + 1)
        table.add_row(
            str(row["dim"]),
            str(row["num_examples"]),
            f"{row['mean_norm']:g}",
            f"{row['noise_var']:g}",
            f"{row['bayes']:.4g}",
            f"{row['ltb']:.4g}",
            _trained_cell(row, "ltb", seeds),
            f"{row['lsa']:.4g}",
            _trained_cell(row, "lsa", seeds),
            f"{gap / row['mean_norm'] ** 2:.3f}",
        )
    return table


def _trained_cell(row: dict[str, Any], name: str, seeds: int) -> str:
    median = float(np.median(row[f"trained_{name}"]))
    return f"{median:.4g} ({row[f'trained_{name}_reached']}/{seeds})"


def _figures(
    config: Config,
    exact: dict[PopulationSetting, Risks],
    trained: TrainedBlocks,
    grid: Phases,
    arcs: dict[float, np.ndarray],
) -> dict[str, Any]:
    panels = []
    for axis in axes(config):
        line = {
            name: np.asarray([getattr(exact[s], name) for s in axis.line])
            for name in Risks._fields
        }
        dots = {}
        for name in ("lsa", "ltb"):
            risks = np.stack([trained.risks[name][s] for s in axis.dots], axis=1)
            logs = Estimate.of(np.log(risks))
            low, high = logs.interval(0.9)
            dots[name] = np.exp(logs.mean), np.exp(low), np.exp(high)
        panels.append(
            GapPanel(
                LABELS[axis.name],
                axis.values(axis.line),
                {name: line[name] for name in ("lsa", "ltb", "bayes")},
                (line["lower_instance"], line["upper"]),
                axis.values(axis.dots),
                dots,
                log=axis.name != "dim",
            )
        )
    base = (
        f"d = {config.dim}, M = {config.num_examples}, $\\|\\beta^*\\|$ = "
        f"{config.mean_norm:g}, $\\sigma^2$ = {config.noise_var:g} unless varied"
    )
    regions = [CLOSEST[name] for name in CONSTRUCTIONS]
    return {
        "risks.png": gap_panels(panels, base, len(config.seeds)),
        "phases.png": gap_phases(
            grid.mean_norms,
            grid.examples,
            grid.lsa / grid.ltb,
            grid.closest,
            regions,
            f"d = {config.dim}, $\\sigma^2$ = {config.noise_var:g}",
        ),
        "hills.png": excess_hills(
            arcs, f"d = 2, M = 2, $\\phi_1$ = 1, $\\sigma^2$ = {config.noise_var:g}"
        ),
    }
