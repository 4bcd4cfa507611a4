"""Figures of errors and distances by number of tasks, and over training."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments._frame.looks import page
from experiments.task_diversity.config import Config
from experiments.task_diversity.drawing import (
    DiversityPanel,
    DiversitySeries,
    curves_against_diversity,
)
from experiments.task_diversity.measure import DMMSE, MODEL, NEW, POOL, RIDGE
from experiments.task_diversity.summary import distance, estimates
from experiments.task_diversity.theory import Theory
from icltheory.plotting import COLOURS, METHODS, heat_map
from icltheory.statistics import Estimate

_TITLES = {POOL: "tasks of the pool", NEW: "new Gaussian tasks"}
_INK, _DMMSE, _RIDGE = (
    COLOURS.index(METHODS[name]) for name in ("transformer", "dMMSE", "ridge")
)


def draw_errors(config: Config, tables: dict, lines: Theory) -> Any:
    """Draws the error of the transformer with its two references."""
    panels = {}
    for source, table in tables.items():
        # Without a pool the limit is ridge, the posterior mean of the Gaussian prior.
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
            # On its pool dMMSE has error 0 at M = 1, which a log axis cannot show.
            logarithmic=source == NEW,
        )
    label = "squared error / d, mean over k"
    return curves_against_diversity(panels, config.pool_sizes, label, _title(config))


def draw_distances(
    config: Config, tables: dict, lines: Theory, crossings: dict[str, float | None]
) -> Any:
    """Draws the transformer's distance to each reference, and theirs to each other."""
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


def draw_phases(config: Config, steps: Sequence[int], values: np.ndarray) -> Any:
    """Draws which predictor the transformer is closer to, by pool size and step."""
    recipe = config.recipe
    title = (
        "Distance of the transformer to dMMSE over its distance to ridge\n"
        f"(new tasks; d = {recipe.dim}; geometric mean of {len(recipe.seeds)} pools)\n"
        "blue: closer to dMMSE, red: closer to ridge"
    )
    with page([""], 1, title, 3.4) as (axes, _):
        heat_map(
            values[::-1],
            ax=axes[0],
            rows=[f"{size:,}" for size in config.finite_sizes[::-1]],
            columns=[f"{step:,}" for step in steps],
            xlabel="training step",
            ylabel="tasks in the pool",
            limit=0.5,  # a factor of 3; a pool of one task is far beyond
            write=lambda log_ratio: f"{10**log_ratio:.2g}",
        )
    return axes[0].figure


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
