"""The experiment on places end to end, and how a curve gets its name."""

import numpy as np
import pytest

from experiments import position

SMALL = """
    --preset cpu --gpt2.dim 2 --gpt2.num-points 7 --gpt2.num-layers 1 --gpt2.width 8
    --gpt2.num-heads 2 --gpt2.steps 20 --gpt2.chunk-steps 20 --gpt2.batch-size 4
    --gpt2.optimizer.warmup-steps 0 --gpt2.seeds 0 --layers 1 2 --prompts 300
    --long-prompt 200
"""


@pytest.mark.parametrize(
    ("curve", "relevant", "wrong"),
    [
        ([0, 0, 1, 1, 0, 0], "U", "inverted U"),
        ([1, 1, 0, 0, 1, 1], "inverted U", "U"),
        ([2, 2, 1, 1, 0, 0], "recency", "primacy"),
        ([0, 0, 1, 1, 2, 2], "primacy", "recency"),
        ([1, 1, 1, 1, 0, 0], "recency", "primacy"),
        ([1, 1, 1, 1, 1, 1 + 1e-9], "no effect found", "no effect found"),
    ],
)
def test_the_name_of_a_curve_is_that_of_its_influence(curve, relevant, wrong):
    noise = 1e-3 * np.random.default_rng(0).standard_normal((50, 1))
    jitter = 1e-4 * np.random.default_rng(1).standard_normal((50, 6))
    flat = max(curve) - min(curve) < 1e-6
    errors = np.array(curve, float) + noise + (0 if flat else jitter)
    rows = [{"kind": kind, "errors": errors} for kind in position.KINDS]
    found = position.shapes(rows, 0.95)
    assert [row["shape"] for row in found] == [relevant, wrong]


def test_noise_has_no_shape():
    errors = np.random.default_rng(2).random((200, 9))
    (found,) = position.shapes([{"kind": "wrong", "errors": errors}], 0.95)
    assert found["shape"] == "no effect found"
    np.testing.assert_allclose(found["by_place"].mean, errors.mean(axis=0))


@pytest.mark.slow
def test_a_small_run_agrees_with_the_exact_weights(small_run):
    _, result, pictures = small_run(position, SMALL)
    assert pictures == {"errors", "weights"}
    stacks, limit = result["checks"]
    assert stacks["passed"]
    # Prompts of 200 examples are shorter than those of the preset.
    assert limit["measured"] < 0.2
    assert result["relevant"]["1 layer"]["shape"] == "no effect found"
    assert len(result["wrong"]["GPT-2, seed 0"]["error"]) == 6


def test_figures_draw_what_they_are_given():
    config = position.PRESETS["cpu"]
    rng, models = np.random.default_rng(3), ("2 layers", "GPT-2, seed 0")
    rows: list[dict] = [
        {"model": model, "kind": kind, "errors": rng.random((9, 10))}
        for model in models
        for kind in position.KINDS
    ]
    rows[0]["exact"] = np.ones((9, 10))
    figure = position.draw_errors(config, position.shapes(rows, 0.95))
    for axes, row in zip(
        figure.axes, (rows[0], rows[2], rows[1], rows[3]), strict=True
    ):
        lines = [line.get_ydata().tolist() for line in axes.get_lines()]
        assert row["errors"].mean(axis=0).tolist() in lines
        assert (np.ones(10).tolist() in lines) == ("exact" in row)
    weights = {2: {"measured": np.full(20, 2.0), "limit": np.full(20, 4.0)}}
    (axes,) = position.draw_weights(config, weights).axes
    assert {line.get_ydata()[0] for line in axes.get_lines()} == {0.0, 1.0, 2.0}
