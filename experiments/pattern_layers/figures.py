"""Draws the figures of a run."""

from typing import Any

import numpy as np

from experiments.pattern_layers.config import Config
from experiments.pattern_layers.drawing import (
    attention_by_layer,
    errors_against_sum,
    labels_by_layer,
)
from experiments.pattern_layers.measure import DepthMeasurements
from experiments.pattern_layers.summary import at_sum, estimate


def figures(config: Config, measured: dict[str, DepthMeasurements]) -> dict[str, Any]:
    """Draws all figures by file name."""
    seeds = len(config.layers.seeds)
    sums = sorted(config.sums)
    first, found = next(iter(measured.items()))
    panels = {}
    for what, label in (("error", "0-1 error"), ("hinge", "hinge error")):
        panels[label] = {}
        for name, each in measured.items():
            known = [estimate(at_sum(config, each, what, value)) for value in sums]
            mean, error = np.array([(e.mean, e.error) for e in known]).T
            panels[label][name] = (mean, error, np.array([e.by_seed for e in known]).T)
    return {
        "attention.png": attention_by_layer(
            {name: each.attention for name, each in measured.items()},
            found.steps,
            f"Attention on contexts of the query's pattern: mean of {seeds} seeds; "
            "thin: each seed",
        ),
        "labels.png": labels_by_layer(
            found.label_norm[0],
            found.label_angle[0],
            found.steps,
            f"Label parts of the neurons, {first}, one seed",
        ),
        "sums.png": errors_against_sum(
            sums,
            panels,
            f"Errors of {config.layers.num_layers} layers out of domain: mean of "
            f"{seeds} seeds, {config.draws} draws each\n"
            "(bars: two standard errors over draws; dashes: each seed)",
        ),
    }
