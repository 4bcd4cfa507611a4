"""Supersample bounds of trained models: order, made-up cases, and a small whole run."""

import json

import jax
import numpy as np
import pytest
from scipy.stats import kendalltau

from experiments import supersample
from experiments.shared.language import load

CONFIG = supersample.PRESETS["cpu"]
CHANCES = (0.1, 0.3, 0.5, 0.9)
SMALL = """
    --preset cpu --gpt2.dim 2 --gpt2.num-points 4 --gpt2.num-layers 1 --gpt2.width 8
    --gpt2.num-heads 2 --gpt2.steps 20 --gpt2.chunk-steps 20 --gpt2.batch-size 4
    --gpt2.optimizer.warmup-steps 0 --gpt2.snapshots 0 20 --ranks 8 4 --shots 3
    --noises 0 --linear.dim 2 --linear.num-points 4 --linear.steps 20
    --linear.chunk-steps 20 --linear.optimizer.warmup-steps 0 --linear-layers 1
    --patterns.steps 20 --pattern-steps 20 --pattern-shots 4 --descent-steps 1
    --language-shots 2 --language-tasks topic --language-prompts 32 --prompts 300
    --theorem2-prompts 16
"""


def made_up(family, x, chance):
    """A learner whose loss on new points is larger by chance / 2."""

    def losses_of(key):
        rng = np.random.default_rng(jax.random.key_data(key).tolist())
        losses = rng.integers(0, 2, (400, 3, 2)).astype(float)
        chosen = rng.integers(0, 2, (400, 3))
        fits = rng.random((400, 3)) < chance
        rows = np.arange(400)[:, None], np.arange(3)[None], chosen
        losses[rows] = np.where(fits, 0, losses[rows])
        return losses, chosen

    more = {"norm": 1.0 + x, "condition number": -x, "theorem 2": 2.0}
    return supersample.judge(
        CONFIG, family, f"{family} {x}", x, losses_of, None, **more
    )


@pytest.fixture(scope="module")
def rows():
    return [made_up("GPT-2, training", i, c) for i, c in enumerate(CHANCES)]


def test_a_report_of_made_up_learners(rows):
    found = supersample.report(CONFIG, rows)
    assert found.passed
    numbers = json.loads(json.dumps(found.as_dict()))
    assert [one["held"] for one in numbers["claims"]][0]
    assert set(found.figures) == {"bounds.png", "along.png"}
    for i, chance in enumerate(CHANCES):
        own = numbers["cases"][f"GPT-2, training {i}"]
        assert abs(own["error"] - chance / 2) < 4 * own["standard error"]
        assert own["loss on the prompt"] < 0.5
    taus = numbers["orders"]["GPT-2, training"]
    assert taus["square-root bound"]["tau"] == 1
    assert taus["norm of the weights"]["tau"] == 1
    assert taus["condition number"]["tau"] == -1


@pytest.mark.slow
def test_an_error_above_its_limit_fails_the_run(rows, monkeypatch):
    for name in ("draw_beside", "draw_along"):
        monkeypatch.setattr(supersample, name, lambda rows: None)
    wrong = rows[0] | {"error": rows[0]["optimal, limit"] + 1.0}
    assert supersample.excess(wrong) > 3
    assert not supersample.report(CONFIG, [wrong, *rows[1:]]).passed


def test_bars_are_the_interval_of_the_error(rows):
    (axes,) = supersample.draw_along(rows).axes
    low, high = axes.containers[0][2][0].get_segments()[0][:, 1]
    np.testing.assert_allclose([low, high], rows[0]["ends"])
    limits = axes.get_lines()[2].get_ydata()
    np.testing.assert_array_equal(limits, [row["optimal, limit"] for row in rows])


def test_tau_ranks_infinity_and_knows_no_order_of_equal_values():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 12).astype(float), rng.random(12)
    found = supersample.tau_of(x, y, 0.95)
    assert found["low"] <= found["tau"] <= found["high"]
    assert found["tau"] == pytest.approx(kendalltau(x, y).statistic, rel=1e-12)
    x[x == 4] = np.inf
    assert supersample.tau_of(x, y, 0.95)["tau"] == found["tau"]
    assert np.isnan(supersample.tau_of(np.ones(12), y, 0.95)["tau"])


def test_few_models_have_no_order(rows):
    assert supersample.orders(rows[:3], 0.95) == {}


def test_losses_are_quantised_for_the_error_too():
    losses = np.array([[[0.0, 0.49]], [[0.51, 1.0]]])
    own, other = supersample.in_and_out(losses, np.array([[1], [0]]), 3)
    assert own.tolist() == [[0.5], [0.5]]
    assert other.tolist() == [[0.0], [1.0]]


@pytest.mark.slow
def test_the_language_model_is_asked_after_its_demonstrations():
    model = load(CONFIG.checkpoint)
    given = "nonce_topic", 8, 64, model.params, jax.random.key(0)
    losses, chosen = supersample.language_losses(model.decoder, *given)
    own, other = supersample.in_and_out(losses, chosen, None)
    # Four classes: the model has learned to read nonce labels, and its own ones best.
    assert np.mean(own) < np.mean(other) < 0.5
    assert chosen.shape == (64, 8)


@pytest.mark.slow
def test_a_small_run(small_run):
    _, result, pictures = small_run(supersample, SMALL)
    assert pictures == {"along", "bounds"}
    families = {case["family"] for case in result["cases"].values()}
    assert len(families) == 9
    for case in result["cases"].values():
        assert case["optimal, limit"] >= case["optimal"]
