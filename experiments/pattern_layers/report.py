"""Builds the tables, figures and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.pattern_layers.claims import claims
from experiments.pattern_layers.config import Config
from experiments.pattern_layers.figures import figures
from experiments.pattern_layers.measure import DepthMeasurements
from experiments.pattern_layers.summary import (
    at_sum,
    estimate,
    growth,
    jump,
    turned,
)
from icltheory.patterns import miss_probability


def report(config: Config, measured: dict[str, DepthMeasurements]) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    numbers = {
        "sums": list(config.sums),
        "sets": {name: _plain(found) for name, found in measured.items()},
        "precision": "float32",
    }
    return Report(
        numbers,
        checks=checks(config, measured),
        tables=[_layer_table(measured), _sum_table(config, measured)],
        claims=claims(config, measured),
        claims_title="what is read off the figures",
        figures=figures(config, measured),
        axes={
            "sets.*.attention [seed][step][layer]": ["seed", "training step", "layer"],
            "sets.*.hinge [seed][step]": ["seed", "training step"],
        },
    )


def checks(config: Config, measured: dict[str, DepthMeasurements]) -> list[Check]:
    """Checks attention and error at initialisation, and Proposition 1."""
    verdicts = []
    uniform = config.relevant_fraction / 2
    missed = float(miss_probability(config.relevant_fraction, config.num_examples))
    for name, found in measured.items():
        start, end = found.attention[:, 0], found.attention[:, -1]
        # A context of the same pattern has weight exp(s), with s the first logit, all
        # others 1.
        weight = np.exp((config.layers.attention_scale * config.layers.scale) ** 2)
        expected = uniform * weight / (uniform * weight + 1 - uniform)
        verdicts += [
            Check(
                f"{name}: attention of the first layer at the start",
                float(start[:, 0].mean()),
                float(expected),
                "within",
                0.02,
            ),
            Check(
                f"{name}: 1 minus the attention of the best layer at the end, largest",
                float(1 - end.max(axis=1).min()),
                0.05,
                "<=",
            ),
            Check(
                f"{name}: rate of prompts without a context of the query's pattern",
                float(found.inside.missed.mean()),
                missed,
                "within",
                4 * (missed / _prompts(config)) ** 0.5,
            ),
        ]
    return verdicts


def _prompts(config: Config) -> int:
    return len(config.layers.seeds) * config.draws * config.prompts


def _layer_table(measured: dict[str, DepthMeasurements]) -> Table:
    table = Table(title="by layer: mean over seeds (smallest, largest)")
    for head in ("tasks", "layer", "attention at the start", "at the end"):
        table.add_column(head)
    for head in ("step past .7", "label norm grows", "angle / pi falls by"):
        table.add_column(head)
    for name, found in measured.items():
        columns = (
            found.attention[:, 0],
            found.attention[:, -1],
            jump(found),
            growth(found),
            turned(found),
        )
        for layer in range(found.attention.shape[2]):
            cells = (_spread(values[:, layer]) for values in columns)
            table.add_row(name, str(layer + 1), *cells)
    return table


def _spread(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "never"
    return f"{known.mean():.3g} ({known.min():.3g}, {known.max():.3g})"


def _sum_table(config: Config, measured: dict[str, DepthMeasurements]) -> Table:
    table = Table(
        title="out of domain: mean over seeds and draws (standard error over draws), "
        "share of draws with a 0-1 error above .01"
    )
    table.add_column("S_1", justify="right")
    for name in measured:
        for head in ("0-1", "hinge", "share"):
            table.add_column(f"{name}: {head}", justify="right")
    for value in config.sums:
        cells = []
        for found in measured.values():
            error, hinge = (
                at_sum(config, found, what, value) for what in ("error", "hinge")
            )
            cells += [str(estimate(error)), str(estimate(hinge))]
            cells.append(f"{(error > 0.01).mean():.2f}")
        table.add_row(f"{value:g}", *cells)
    inside = (
        (f"{found.inside.error.mean():.4f}", f"{found.inside.hinge.mean():.4f}", "")
        for found in measured.values()
    )
    table.add_row("in domain", *(cell for cells in inside for cell in cells))
    return table


def _plain(found: DepthMeasurements) -> dict[str, Any]:
    return {
        "steps": found.steps,
        "attention [seed][step][layer]": found.attention.tolist(),
        "hinge [seed][step]": found.hinge.tolist(),
        "label norm, mean over neurons": found.label_norm.mean(-1).tolist(),
        "label angle / pi, mean over neurons": found.label_angle.mean(-1).tolist(),
        "unseen tasks": {
            "error": found.inside.error.tolist(),
            "hinge": found.inside.hinge.tolist(),
        },
        "out of domain [seed][sum][draw]": {
            "error": found.outside.error.tolist(),
            "hinge": found.outside.hinge.tolist(),
        },
    }
