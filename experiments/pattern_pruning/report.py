"""Builds the tables, figures and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments._patterns.gpt2 import TrainedGpt
from experiments.pattern_pruning.bridge import (
    METHODS,
    MODULES,
    Bridge,
)
from experiments.pattern_pruning.claims import claims
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.figures import figures
from experiments.pattern_pruning.gpt2 import GptCurves
from experiments.pattern_pruning.gpt2_report import (
    gpt_check,
    gpt_result,
    gpt_table,
)
from experiments.pattern_pruning.neurons import ORDERS, TITLES, NeuronCurves
from experiments.pattern_pruning.prompts import OUTSIDE
from experiments.pattern_pruning.summary import (
    interval,
    least_kept,
    ranks_left,
    slope_ratio,
)


def report(
    config: Config,
    found: NeuronCurves,
    gpt: TrainedGpt,
    gpt_found: GptCurves,
    bridge: Bridge,
) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    numbers = {
        "neurons": {
            "sizes": found.sizes.tolist(),
            "small": found.small.tolist(),
            "firing, small and large": found.firing.tolist(),
            "gain, ratio": found.gain_ratio.tolist(),
            "margin [seed][test]": found.margin.tolist(),
            "rates": list(config.rates),
            "tests": list(config.tests),
            "curves [seed][rate][test]": _plain(found.curves),
            "as many as small ones": _plain(found.exact),
        },
        "gpt2": gpt_result(config, gpt, gpt_found),
        "bridge": {
            "hinge": bridge.hinge.tolist(),
            "error": bridge.error.tolist(),
            "spectra": {name: s.tolist() for name, s in bridge.spectra.items()},
            "ranks": ranks_left(bridge),
            "curves": [_kept(config, bridge, curve) for curve in bridge.curves],
        },
        "precision": "float32",
    }
    return Report(
        numbers,
        checks=[*checks(config, found, bridge), gpt_check(gpt)],
        tables=[
            _rate_table(config, found),
            gpt_table(config, gpt_found),
            _kept_table(config, bridge),
        ],
        claims=claims(config, found, gpt_found, bridge),
        claims_title="what the papers say, on these models",
        figures=figures(config, found, gpt_found, bridge),
        interval_level=0.95,
        axes={
            "neurons.sizes": ["seed", "neuron"],
            "neurons.curves [seed][rate][test].*.*": ["seed", "rate", "test"],
        },
    )


def _plain(curves) -> dict[str, Any]:
    return {
        order: {name: value.tolist() for name, value in vars(curve).items()}
        for order, curve in curves.items()
    }


def _kept(config, bridge, curve) -> dict[str, Any]:
    return {
        "module": curve.module,
        "method": curve.method,
        "parameters": curve.parameters.tolist(),
        "total": curve.total,
        "hinge [seed][rank][test]": curve.hinge.tolist(),
        "error [seed][rank][test]": curve.error.tolist(),
        "least kept [test][seed]": [
            least_kept(config, bridge, curve, test).tolist() for test in range(2)
        ],
    }


def checks(config: Config, found: NeuronCurves, bridge: Bridge) -> list[Check]:
    """Checks the formula of Theorem 3, and the ranks after training."""
    small, large = found.exact["magnitude"], found.exact["reverse"]
    change = np.abs(small.hinge[:, 0] - found.curves["magnitude"].hinge[:, 0])
    exact = [np.abs(c.hinge - c.weighed).max() for c in found.curves.values()]
    random = found.curves["random"]
    gap = np.abs((random.hinge - random.counted).mean(0)).max()
    slopes = slope_ratio(config, found, OUTSIDE)
    ranks = ranks_left(bridge)
    M1 = config.ensemble.num_relevant
    verdicts = [
        Check(
            "all small neurons pruned: change of the hinge",
            float(change.max()),
            1e-3,
            "<=",
        ),
        Check(
            "as many large ones pruned: hinge against 1 - F (1 - g)",
            float(np.abs(large.hinge - large.counted).max()),
            0.0,
            "within",
            0.08,
        ),
        Check(
            "any order, R and test: hinge against the formula by sign",
            float(max(exact)),
            1e-3,
            "<=",
        ),
        Check("random orders: hinge against 1 - F (1 - g)", float(gap), 0.02, "<="),
        Check("rank of W_O W_V", float(np.mean(ranks["W_O W_V"])), 2.0, "within"),
        Check(
            "rank of W_K' W_Q", float(np.mean(ranks["W_K' W_Q"])), M1 - 1.0, "within"
        ),
    ]
    if np.isfinite(slopes).any():
        name = "small first: slope in R over F m / (number of large ones)"
        slope = float(np.nanmean(slopes))
        verdicts.append(Check(name, slope, 1.0, "within", 0.1))
    for module, rank in (("W_O", 2), ("W_V", 2), ("W_Q", M1 - 1), ("W_K", M1 - 1)):
        if rank in config.ranks:
            at = config.ranks.index(rank)
            curve = bridge.of(module, METHODS[0])
            change = np.abs(curve.hinge[:, at] - bridge.hinge).max()
            name = f"{module} clipped to rank {rank}: change of the hinge"
            verdicts.append(Check(name, float(change), 1e-3, "<="))
    return verdicts


def _rate_table(config: Config, found: NeuronCurves) -> Table:
    shown = range(0, len(config.rates), max(1, len(config.rates) // 8))
    table = Table(
        title=f"hinge error and formula, {config.tests[OUTSIDE]}; mean and 95 % "
        "interval over the seeds"
    )
    table.add_column("R", justify="right")
    for order in ORDERS:
        table.add_column(TITLES[order], justify="right")
        table.add_column(f"{TITLES[order]}: formula", justify="right")
        table.add_column(f"{TITLES[order]}: 0-1", justify="right")
    for place in shown:
        cells = []
        for order in ORDERS:
            curve = found.curves[order]
            cells.append(str(interval(curve.hinge[:, place, OUTSIDE])))
            cells.append(f"{curve.counted[:, place, OUTSIDE].mean():.4f}")
            cells.append(f"{curve.error[:, place, OUTSIDE].mean():.4f}")
        table.add_row(f"{config.rates[place]:.3g}", *cells)
    return table


def _kept_table(config: Config, bridge: Bridge) -> Table:
    table = Table(
        title="least share of a module's parameters with a hinge error within "
        f"{config.tolerance:g} of the unpruned one: in domain / out of domain (mean "
        "over seeds)"
    )
    table.add_column("module")
    for method in METHODS:
        table.add_column(method, justify="right")
    for module in MODULES:
        cells = []
        for method in METHODS:
            if (module, method) not in [(c.module, c.method) for c in bridge.curves]:
                cells.append("")
                continue
            curve = bridge.of(module, method)
            shares = (
                least_kept(config, bridge, curve, t).mean() / curve.total
                for t in (0, 1)
            )
            cells.append(" / ".join(f"{share:.3f}" for share in shares))
        table.add_row(module, *cells)
    return table
