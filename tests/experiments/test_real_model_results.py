"""What the stored night of the real model says: the ledger, README and its page."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from icltheory.statistics import Estimate

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


@functools.cache
def night():
    return json.loads((RESULTS / "real_model_night" / "result.json").read_text())


@pytest.mark.statement("Yao: Figure 1")
def test_deep_layers_bear_clipping_better_and_no_task_gains_on_average():
    grid = night()["grid"]
    trends = np.concatenate([own["trend"] for own in grid.values()])
    assert trends.shape == (14,)
    trend = Estimate.of(trends)
    said = [trend.mean, *trend.interval(night()["interval_level"])]
    np.testing.assert_allclose(said, [0.13, 0.035, 0.22], atol=0.005)
    for own in grid.values():
        assert max(own["by_task"]) < 0


@pytest.mark.statement("Yao: Figure 2")
def test_demonstrations_help_in_two_tasks_and_harm_in_one():
    rises = [own["rise"] for own in night()["curves"].values()]
    assert len(rises) == 7
    assert sum(rise["low"] > 0 for rise in rises) == 2
    assert sum(rise["high"] < 0 for rise in rises) == 1


@pytest.mark.statement("Yao: Figure 3")
def test_condition_numbers_grow_with_depth_for_one_matrix():
    growth = night()["growth"]
    grows = {name for name, own in growth.items() if own["holm"] < 0.05}
    assert grows == {"W_in"}
    medians = {name: own["median"] for name, own in growth.items()}
    largest = max(medians[name] for name in ("W_in", "W_gate", "W_out"))
    assert min(medians[name] for name in ("W_Q", "W_K", "W_O")) > largest
    assert medians["W_V"] < largest


@pytest.mark.statement("Yao: Figure 4")
def test_algorithm_1_gains_in_one_task_and_a_factor_gains_as_much():
    own = [row for row in night()["searches"] if row["arm"] == "algorithm1"]
    beyond = [row for row in own if row["holm"] is not None and row["holm"] < 0.05]
    assert len(own) == 42
    assert {(row["task"], row["module"]) for row in beyond} == {("emoc", "attn")}
    assert {row["draw"] for row in beyond} == {0, 1, 2}
    (factor,) = (
        row
        for row in night()["searches"]
        if (row["task"], row["module"], row["arm"]) == ("emoc", "attn", "scale")
    )
    first = next(row for row in beyond if row["draw"] == 0)
    assert factor["layer"] == first["layer"]
    assert factor["difference"] > first["difference"] > 0.1


@pytest.mark.statement("Yao: Remark 4")
def test_smaller_updates_do_not_go_with_better_accuracy():
    taus = Estimate.of(np.array([np.mean(row["tau"]) for row in night()["remark_4"]]))
    low, high = taus.interval(night()["interval_level"])
    assert low < 0 < high  # a negative tau would support the remark
