"""The figure: distance to Bayes by learning rate, and errors of the best models."""

import itertools
from typing import Any

import numpy as np

from experiments.garg_sweep.config import Config
from experiments.garg_sweep.measure import SweepMeasurements
from experiments.garg_sweep.summary import SweepCell, best
from icltheory import plotting
from icltheory.plotting import METHODS, Line, LinePanel

# Indices of colours that no method of the figure uses.
_COLOURS = (1, 3, 4, 6)


def draw(config: Config, measured: SweepMeasurements, found: list[SweepCell]) -> Any:
    """Draws distances by rate above and errors by prefix below, a column per noise."""
    recipe, above, below = config.recipe, {}, {}
    for noise_var, lines in zip(config.noise_vars, measured.lines, strict=True):
        name = f"noise variance {noise_var:g}"
        own = [cell for cell in found if cell.noise_var == noise_var]
        above[f"{name}: by rate"] = _rates(config, own, lines)
        below[f"{name}: best models"] = _prefixes(config, own, lines)
    title = (
        f"GPT-2 of {recipe.num_layers} layers, d = {recipe.dim}, {recipe.steps:,} "
        f"steps of {recipe.batch_size} prompts; bands: 1 standard error over "
        f"{len(recipe.seeds)} seeds"
    )
    panels = {**above, **below}
    return plotting.line_panels(panels, title, columns=len(config.noise_vars))


def _rates(config: Config, own: list[SweepCell], lines: Any) -> LinePanel:
    drawn = {}
    for colour, width in zip(itertools.cycle(_COLOURS), config.widths, strict=False):
        of = [cell for cell in own if cell.width == width and max(cell.diverged) < 0]
        mean, error = np.reshape([cell.distance for cell in of], (-1, 2)).T
        rates = [cell.learning_rate for cell in of]
        drawn[f"width {width}"] = Line(rates, mean, colour, error=error)
    bayes = lines.bayes_risk.mean()
    levels = {
        "one layer": float(lines.one_layer.mean() - bayes),
        "predicting 0": float(1 - bayes),
    }
    label = "distance to Bayes / d, mean over k"
    return LinePanel(drawn, "learning rate", label, "log", "log", levels)


def _prefixes(config: Config, own: list[SweepCell], lines: Any) -> LinePanel:
    ks = np.arange(config.recipe.num_points)
    drawn = {}
    for colour, width in zip(itertools.cycle(_COLOURS), config.widths, strict=False):
        cell = best(own, own[0].noise_var, width)
        if cell is None:
            continue
        mean, error = cell.errors
        label = f"width {width}, rate {cell.learning_rate:g}"
        drawn[label] = Line(ks, mean, colour, error=error)
    drawn["Bayes (exact)"] = Line(
        ks, lines.bayes_risk.mean(axis=0), METHODS["Bayes"], True
    )
    optimum = METHODS["one-layer optimum"]
    drawn["one layer (exact)"] = Line(ks, lines.one_layer, optimum, exact=True)
    return LinePanel(drawn, "in-context examples k", "squared error / d")
