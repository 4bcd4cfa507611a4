"""The two figures: errors and distances against the number of tasks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.task_diversity.config import Config
from experiments.task_diversity.drawing import (
    DiversityPanel,
    DiversitySeries,
    curves_against_diversity,
)
from experiments.task_diversity.measure import DMMSE, MODEL, NEW, POOL, RIDGE
from experiments.task_diversity.summary import distance, estimates
from experiments.task_diversity.theory import Theory
from icltheory.plotting import COLOURS, METHODS
from icltheory.statistics import Estimate

_TITLES = {POOL: "tasks of the pool", NEW: "new Gaussian tasks"}
_INK, _DMMSE, _RIDGE = (
    COLOURS.index(METHODS[name]) for name in ("transformer", "dMMSE", "ridge")
)


def draw_errors(config: Config, tables: dict, lines: Theory) -> Any:
    """Error of the transformer between its two references."""
    panels = {}
    for source, table in tables.items():
        # Without a pool the posterior of the Gaussian prior is the limit.
        limit = [*lines.dmmse[source], lines.ridge]
        own = estimates(table[DMMSE])
        panels[_TITLES[source]] = DiversityPanel(
            {
                "transformer": _series(estimates(table[MODEL]), "dots", _INK),
                "dMMSE, all pools": _series(limit, "line", _DMMSE),
                "dMMSE, these pools": _series(own, "open", _DMMSE),
                "ridge (exact)": _series(
                    [lines.ridge] * len(config.pool_sizes), "dashed", _RIDGE
                ),
            },
            # On its pool dMMSE has no error at M = 1: no place on a log axis.
            logarithmic=source == NEW,
        )
    label = "squared error / d, mean over k"
    return curves_against_diversity(panels, config.pool_sizes, label, _title(config))


def draw_distances(
    config: Config, tables: dict, lines: Theory, crossings: dict[str, float | None]
) -> Any:
    """Distance of the transformer to each reference, and between the two."""
    panels = {}
    for source, table in tables.items():
        between = table[f"{DMMSE} - {RIDGE}"].mean(axis=1)
        between = np.where(np.array(config.pool_sizes) > 0, between, np.nan)
        panels[_TITLES[source]] = DiversityPanel(
            {
                "transformer to dMMSE": _series(
                    estimates(distance(table, DMMSE)), "dots", _DMMSE
                ),
                "transformer to ridge": _series(
                    estimates(distance(table, RIDGE)), "dots", _RIDGE
                ),
                "dMMSE to ridge": DiversitySeries(between, None, "dashed", _INK),
            },
            crossings[source],
        )
    label = "squared distance / d, mean over k"
    return curves_against_diversity(panels, config.pool_sizes, label, _title(config))


def _series(values: Sequence[Estimate], kind: Any, colour: int) -> DiversitySeries:
    mean = [value.mean for value in values]
    return DiversitySeries(
        mean, [value.standard_error for value in values], kind, colour
    )


def _title(config: Config) -> str:
    recipe = config.recipe
    return (
        f"GPT-2 of {recipe.num_layers} layers, d = {recipe.dim}, "
        f"k = 0 to {recipe.num_points - 1}, noise variance {recipe.noise_var:g}; "
        f"{recipe.steps:,} steps of {recipe.batch_size} prompts\n"
        f"{len(recipe.seeds)} pools per size; bars and bands: 2 standard errors"
    )
