"""Claims of the paper, and what a run measured."""

from typing import Any

import numpy as np

from experiments._frame.report import Claim
from experiments.real_model.config import Config
from icltheory.statistics import Estimate


def claims_of(config, curves, grid, growth, tested, remark) -> list[Claim]:
    """Returns each claim of the paper beside what was measured."""
    said = []

    def mean(values: np.ndarray, digits: int) -> tuple[str, float, float]:
        """The mean with its interval, as words, and the ends of the interval."""
        made = Estimate.of(values)
        low, high = made.interval(config.level)
        return f"{made.mean:+.{digits}f} {span(low, high, '+')}", low, high

    rises = [own["rise"] for own in curves.values()]
    up = sum(rise["low"] > 0 for rise in rises)
    said.append(
        Claim(
            claim="accuracy rises with the number of demonstrations",
            measured=f"in {up} of {len(rises)} tasks the interval is above 0",
            held=up == len(rises),
        )
    )
    trends = np.concatenate([own["trend"] for own in grid.values()])
    words, low, _ = mean(trends, 2)
    said.append(
        Claim(
            claim="deep layers can be pruned at higher rates than shallow ones",
            measured=f"Kendall's tau of accuracy and layer, mean {words} "
            "over tasks and modules",
            held=low > 0,
        )
    )
    if len(grid) > 1:
        words, low, _ = mean(grid["mlp"]["by_task"] - grid["attn"]["by_task"], 3)
        said.append(
            Claim(
                claim="the MLP can be pruned more than attention",
                measured="accuracy of pruned MLP minus pruned attention "
                f"{words} over tasks",
                held=low > 0,
            )
        )
    grow = sum(own["holm"] < 1 - config.level for own in growth.values())
    said.append(
        Claim(
            claim="condition numbers grow with depth",
            measured=f"in {grow} of {len(growth)} matrices after Holm",
            held=grow == len(growth),
        )
    )
    own = [row for row in tested if row["arm"] == "algorithm1"]
    signs = [beyond_chance(config, row) for row in own]
    better, worse = signs.count(1), signs.count(-1)
    gain = np.mean([row["difference"] for row in own])
    said.append(
        Claim(
            claim="Algorithm 1 gains on the test set",
            measured=f"in {better} of {len(own)} searches after Holm, worse in "
            f"{worse}; mean difference {gain:+.3f}",
            held=better > 0 and worse == 0,
        )
    )
    if "scale" in config.arms:
        words, low, _ = mean(_against_a_factor(tested), 3)
        said.append(
            Claim(
                claim="Algorithm 1 gains more than one factor on the layer's output",
                measured=f"mean difference of the gains {words} over tasks and modules",
                held=low > 0,
            )
        )
    words, _, high = mean(np.array([np.mean(row["tau"]) for row in remark]), 2)
    said.append(
        Claim(
            claim="pruning that makes the implicit update smaller goes with better "
            "accuracy (Remark 4)",
            measured=f"Kendall's tau within a rate, mean {words} over tasks and "
            "modules",
            held=high < 0,
        )
    )
    return said


def span(low: float, high: float, sign: str = "") -> str:
    """An interval as words."""
    return f"[{low:{sign}.3f}, {high:{sign}.3f}]"


def beyond_chance(config: Config, row: dict[str, Any]) -> int:
    """Sign of the difference if the test rejects after Holm, else 0."""
    rejected = row["holm"] is not None and row["holm"] < 1 - config.level
    return int(np.sign(row["difference"])) if rejected else 0


def _against_a_factor(tested: list[dict[str, Any]]) -> np.ndarray:
    """Gain of Algorithm 1 minus that of a factor, by task and module, first draw."""
    gains = {
        (row["arm"], row["task"], row["module"]): row["difference"]
        for row in tested
        if row["draw"] == 0
    }
    return np.array(
        [
            gains["algorithm1", *place] - gain
            for (arm, *place), gain in gains.items()
            if arm == "scale"
        ]
    )
