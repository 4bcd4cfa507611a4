"""Means over the pools of a size, the cross-over, and a check of Bayes risks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments._frame.report import largest
from experiments.task_diversity.config import Config
from experiments.task_diversity.measure import (
    DMMSE,
    MODEL,
    NEW,
    POOL,
    RIDGE,
    Scores,
)
from experiments.task_diversity.train import CLOSENESS
from icltheory.statistics import Estimate

# The Bayes predictor of each source; the excess risk equals the distance to it.
BAYES = {POOL: DMMSE, NEW: RIDGE}


def by_size(
    config: Config, measured: list[dict[str, Scores]]
) -> dict[str, dict[str, np.ndarray]]:
    """Mean scores of the runs by source and name, (sizes, seeds)."""
    shape = len(config.pool_sizes), len(config.recipe.seeds)
    return {
        source: {
            name: np.reshape(
                [run[source][name].mean(dtype=float) for run in measured], shape
            )
            for name in measured[0][source]
        }
        for source in (POOL, NEW)
    }


def estimates(values: np.ndarray) -> list[Estimate]:
    """Mean and standard error over the seeds for every pool size."""
    return [Estimate.of(np.asarray(row)) for row in values]


def distance(table: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Squared distance of the transformer to a predictor."""
    return table[f"{MODEL} - {name}"]


def closeness_over_training(
    config: Config, records: Sequence[dict[str, Any]], table: dict[str, np.ndarray]
) -> tuple[list[int], np.ndarray]:
    """log10 of distance to dMMSE / distance to ridge, at some steps and the last.

    Args:
        config: The experiment.
        records: Those of the training.
        table: Scores of the last step on new tasks.

    Returns:
        The steps, and means over the seeds, (sizes, steps); no pool is left out, since
        dMMSE and ridge are one there.
    """
    known = [r for r in records if CLOSENESS in r and r["step"] < config.recipe.steps]
    runs = [np.asarray(r[CLOSENESS], float) for r in known]
    runs.append(np.log10(distance(table, DMMSE) / distance(table, RIDGE)).ravel())
    shape = len(runs), len(config.pool_sizes), len(config.recipe.seeds)
    means = np.reshape(runs, shape).mean(axis=-1).T
    steps = [*(record["step"] for record in known), config.recipe.steps]
    return steps, means[: len(config.finite_sizes)]


def crossings(config: Config, table: dict[str, np.ndarray]) -> np.ndarray:
    """Pool size at which the transformer becomes closer to ridge than to dMMSE.

    For every seed the last sign change of log(distance to ridge / distance to dMMSE)
    over the finite sizes, by linear interpolation in log M; NaN if it never changes.
    """
    count = len(config.finite_sizes)
    ratio = np.log(distance(table, RIDGE) / distance(table, DMMSE))[:count]
    logs = np.log(config.finite_sizes)
    found = []
    for values in ratio.T:
        places = np.flatnonzero((values[:-1] > 0) & (values[1:] <= 0))
        if not len(places):
            found.append(np.nan)
            continue
        i = places[-1]
        part = values[i] / (values[i] - values[i + 1])
        found.append(np.exp(logs[i] + part * (logs[i + 1] - logs[i])))
    return np.array(found)


def pythagoras(config: Config, measured: list[dict[str, Scores]], source: str) -> float:
    """Largest z-score of E|f - w'x|^2 = E|bayes - w'x|^2 + E|f - bayes|^2.

    The Bayes predictor is the mean of <w, x> given the prompt, so that the identity
    holds for every f that sees the prompt only: for the pool dMMSE, for new tasks
    ridge. With a pool of one task dMMSE is <w, x>, and there is nothing to test.
    """
    bayes, scores = BAYES[source], [0.0]
    for (size, _), run in zip(config.runs(), measured, strict=True):
        if size == 1 and source == POOL:
            continue
        of = {name: np.asarray(v, float) for name, v in run[source].items()}
        gap = Estimate.of(of[MODEL] - of[bayes] - of[f"{MODEL} - {bayes}"])
        scores.append(abs(gap.mean) / gap.standard_error)
    return largest(scores)
