"""Gains over the seeds; each model counts as one value."""

import dataclasses
from typing import Any

import numpy as np

from experiments.headroom.arms import ARMS, CONTROL, PRUNING, SCALARS
from experiments.headroom.config import Config
from icltheory.statistics import (
    Estimate,
    adjust_holm,
    exact_mcnemar,
    paired_interval,
)

Found = list[list[dict[str, Any]]]
# Name of the mean over all sets of prompts.
ALL = "all prompts"


@dataclasses.dataclass(frozen=True)
class GainRow:
    """Gains of one arm on one set of prompts, by model.

    Attributes:
        arm: The arm.
        prompts: Kind and label noise of the prompts, or ``ALL``.
        chosen: How many of the searches chose some setting.
        validation: Gain on the validation prompts of each model.
        test: Gain on the test prompts of each model.
        holm: p-value of the mean test gain by Student's test over the models, after
            Holm's correction over all arms.
    """

    arm: str
    prompts: str
    chosen: int
    validation: np.ndarray
    test: np.ndarray
    holm: float = 1.0

    def numbers(self, level: float) -> dict[str, Any]:
        """The row for ``result.json``."""
        return {
            "chosen": self.chosen,
            "validation": estimate(self.validation, level),
            "test": estimate(self.test, level),
            "overstated": estimate(self.validation - self.test, level),
            "p_value": float(Estimate.of(self.test).p_value()),
            "holm": self.holm,
        }


def gain_rows(config: Config, found: Found) -> dict[str, list[GainRow]]:
    """Computes the gains of all arms for each prompt set and for their mean.

    Holm's correction is over the arms within each of these families.
    """
    names = [row["task"] for row in found[0]]
    families = {}
    for prompts in (ALL, *names):
        rows = [_row(config, found, arm, prompts) for arm in ARMS]
        holm = adjust_holm([Estimate.of(row.test).p_value() for row in rows])
        families[prompts] = [
            dataclasses.replace(row, holm=float(p))
            for row, p in zip(rows, holm, strict=True)
        ]
    return families


def _row(config: Config, found: Found, arm: str, prompts: str) -> GainRow:
    some = [[r for r in rows if prompts in (ALL, r["task"])] for rows in found]
    every = [[one["arms"][arm] for one in rows] for rows in some]

    def means(gain) -> np.ndarray:
        return np.array([np.mean([gain(one) for one in rows]) for rows in every])

    return GainRow(
        arm,
        prompts,
        sum("layer" in one for rows in every for one in rows),
        means(lambda one: one.get("validation_gain", 0.0)),
        means(lambda one: (one["gained"] - one["lost"]) / config.test),
    )


def beyond(config: Config, rows: list[GainRow]) -> dict[str, dict[str, Any]]:
    """Difference of test gains between each pruning method and each control."""
    gains = {row.arm: row.test for row in rows}
    pairs = [(arm, other) for arm in PRUNING for other in (*SCALARS, CONTROL)]
    differences = [gains[arm] - gains[other] for arm, other in pairs]
    holm = adjust_holm([Estimate.of(d).p_value() for d in differences])
    found: dict[str, dict[str, Any]] = {arm: {} for arm in PRUNING}
    for (arm, other), difference, p in zip(pairs, differences, holm, strict=True):
        numbers = estimate(difference, config.level)
        found[arm][other] = {**numbers, "holm": float(p)}
    return found


def searches(config: Config, found: Found) -> list[dict[str, Any]]:
    """Returns every choice with its test gain, interval and p-value on its own model.

    A row has the paired score interval of the gain, the exact test of no difference,
    and its p-value after Holm's correction over all rows.
    """
    rows = []
    for seed, of_seed in zip(config.seeds, found, strict=True):
        for one in of_seed:
            for arm, choice in one["arms"].items():
                gained, lost = choice["gained"], choice["lost"]
                ends = paired_interval(gained, lost, config.test, level=config.level)
                rows.append(
                    {
                        "seed": seed,
                        "prompts": one["task"],
                        "arm": arm,
                        **choice,
                        "test_gain": (gained - lost) / config.test,
                        "interval": [float(end) for end in ends],
                        "p_value": float(exact_mcnemar(gained, lost)),
                    }
                )
    holm = adjust_holm([row["p_value"] for row in rows])
    return [{**row, "holm": float(p)} for row, p in zip(rows, holm, strict=True)]


def counts(config: Config, rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts the searches of each arm with a significant gain or loss after Holm."""
    found = {arm: {"searches": 0, "better": 0, "worse": 0} for arm in ARMS}
    for row in rows:
        own = found[row["arm"]]
        own["searches"] += 1
        if row["holm"] <= 1 - config.level:
            own["better" if row["test_gain"] > 0 else "worse"] += 1
    return found


def short_name(config: Config, prompts: str) -> str:
    """Shortens the name of a prompt set for titles."""
    kind, *noise = prompts.split(", ")
    if len(config.kinds) == 1 and noise:
        return ", ".join(noise)
    return prompts.replace("_", " ")


def accuracies(config: Config, found: Found) -> dict[str, dict[str, Any]]:
    """Test accuracy of unpruned models and ideal learners by prompt set."""
    table = {}
    for place, one in enumerate(found[0]):
        own = [rows[place] for rows in found]
        table[one["task"]] = {
            name: estimate(np.array([row[key] for row in own]), config.level)
            for name, key in (
                ("model", "test"),
                ("ideal", "ideal"),
                ("informed", "informed"),
            )
        }
    return table


def by_words(found: Found) -> dict[str, dict[str, Any]]:
    """Test accuracy of each unpruned model by group of label words.

    ``lowest`` and ``highest`` are means over the models of their extreme groups.
    """
    table = {}
    for place, one in enumerate(found[0]):
        values = [rows[place]["by_words"] for rows in found]
        table[one["task"]] = {
            "values": values,
            "lowest": float(np.mean([min(row) for row in values])),
            "highest": float(np.mean([max(row) for row in values])),
        }
    return table


def rate_curves(config: Config, found: Found) -> dict[str, dict[str, Any]]:
    """Mean change of the validation accuracy at each rate over all layers.

    The mean over layers, modules and prompts of each model, for the arms that are
    searched over the clipping rates.
    """
    curves = {}
    for arm in found[0][0]["grids"]:
        if ARMS[arm].places(config) != config.rates:
            continue
        per_seed = [
            np.mean(
                [
                    np.mean(grid, axis=0) - one["validation"]
                    for one in rows
                    for grid in one["grids"][arm].values()
                ],
                axis=0,
            )
            for rows in found
        ]
        curves[arm] = estimate(np.stack(per_seed), config.level)
    return curves


def estimate(values: np.ndarray, level: float) -> dict[str, Any]:
    """Mean over models with standard error, Student's interval and values.

    Args:
        values: A row for each model.
        level: Level of the interval.
    """
    found = Estimate.of(np.asarray(values, np.float64))
    low, high = found.interval(level)
    parts = {
        "mean": found.mean,
        "standard_error": found.standard_error,
        "low": low,
        "high": high,
    }
    lists = {name: np.asarray(part).tolist() for name, part in parts.items()}
    return {**lists, "values": np.asarray(values).tolist()}
