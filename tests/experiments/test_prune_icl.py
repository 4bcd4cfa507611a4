"""The pruning experiment end to end, its statistics, and its pictures."""

import json

import numpy as np
import pytest
import scipy.stats

from experiments import prune_icl

SMALL = """
    --preset cpu --gpt2.dim 2 --gpt2.num-points 5 --gpt2.num-layers 2 --gpt2.width 4
    --gpt2.num-heads 1 --gpt2.steps 20 --gpt2.batch-size 4 --gpt2.seeds 0 1
    --gpt2.optimizer.name adam --gpt2.optimizer.warmup-steps 0 --gpt2-ranks 4 2 1
    --linear.dim 2 --linear.num-points 9 --linear.num-layers 2 --linear.steps 20
    --linear.batch-size 4 --linear.seeds 0 1 --linear.optimizer.warmup-steps 0
    --linear-ranks 3 1 --validation-prompts 6 --test-prompts 10
"""


@pytest.fixture(scope="module")
def ran(small_run):
    return small_run(prune_icl, SMALL)


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(ran):
    folder, result, pictures = ran
    assert pictures == {"layers_by_rate", "figure4_algorithm1"}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["model"] for line in lines} == {"gpt2", "linear"}
    gpt2, stack = (result["subjects"][n] for n in ("GPT-2", "linear stack"))
    errors = np.array(gpt2["errors (shots, seeds, layers, modules, rates)"]["standard"])
    assert errors.shape == (4, 2, 2, 3, 3)
    by_condition = stack["errors (shots, seeds, layers, modules, rates)"]
    errors = np.array(by_condition["skewed inputs"])
    assert errors.shape == (5, 2, 2, 1, 2)
    assert gpt2["rates"] == [0, 0.5, 0.75]
    # 2 seeds, 3 conditions; attn, mlp, exhaustive and two controls, or one fewer.
    assert (len(gpt2["choices"]), len(stack["choices"])) == (30, 24)
    assert result["improvements"]["GPT-2"]["standard"]["family"] == 2 * 2 * 3 * 2


@pytest.mark.slow
def test_rate_0_is_the_model_itself(ran):
    _, result, _ = ran
    for check in result["checks"]:
        if "rate 0" in check["name"]:
            assert check["passed"], check
    for name in ("GPT-2", "linear stack"):
        numbers = result["subjects"][name]
        for errors in numbers["errors (shots, seeds, layers, modules, rates)"].values():
            rate0 = np.array(errors)[..., 0]
            np.testing.assert_allclose(rate0 - rate0[:, :, :1, :1], 0, atol=1e-6)


@pytest.mark.slow
def test_a_resumed_run_reports_the_same_and_trains_nothing(ran):
    folder, result, _ = ran
    before = (folder / "metrics.jsonl").read_bytes()
    again = prune_icl.main(["--resume", str(folder)])
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert again["subjects"] == result["subjects"]
    assert again["claims"] == result["claims"]


def test_matrices_of_one_seed_are_one_observation():
    """The interval of the ratio is Student's over seeds."""
    logs = np.random.default_rng(0).normal(size=(3, 4, 6))  # seeds, layers, matrices
    found = prune_icl.condition_by_depth(np.exp(logs), 0.95)
    per_seed = (logs[:, 3] - logs[:, 0]).mean(axis=1)
    limits = scipy.stats.ttest_1samp(per_seed, 0).confidence_interval(0.95)
    expected = np.exp([per_seed.mean(), limits.low, limits.high])
    np.testing.assert_allclose(found, expected)


def test_gains_are_drawn_in_percent():
    about = {"model": "a", "rule": "exhaustive", "condition": "standard"}
    changes = np.array([[0.1, -0.06, 0.02], [-0.3, -0.2, -0.4]])
    rows = [about | {"changes": own, "test": own.mean()} for own in changes]
    for row, promised in zip(rows, (-0.1, 0.0), strict=True):
        row["validation"] = promised
    (axes,) = prune_icl.draw_gains(rows, 0.95, "title").axes
    drawn = {line.get_marker(): line.get_xdata(orig=False) for line in axes.get_lines()}
    np.testing.assert_allclose(drawn["o"], -14.0)
    np.testing.assert_allclose(drawn["|"], [2.0, -30.0])
    np.testing.assert_allclose(drawn["D"], -5.0)
    (bar,) = axes.collections
    ends = scipy.stats.ttest_1samp(changes.mean(0), 0).confidence_interval(0.95)
    np.testing.assert_allclose(np.array(bar.get_segments())[0, :, 0] / 100, ends)
