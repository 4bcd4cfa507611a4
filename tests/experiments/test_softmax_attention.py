"""The experiment softmax_attention: its loss, theory, a small run and its figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import softmax_attention as experiment
from icltheory import regression as reg

CONFIG = experiment.Config(dim=2, lengths=(5, 8), others=(5, 8, 16), heads=(1, 2))
SMALL = """
    --preset cpu --dim 2 --lengths 5 8 --others 5 8 16 --heads 1 2 --seeds 0 1
    --steps 40 --chunk-steps 20 --checkpoint-every 20 --test-prompts 200
"""


def models(seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for heads in (1, 2):
        B = rng.normal(size=(2, 4, heads, 2, 2)) / 3
        found[heads] = {"B": B, "values": rng.normal(size=(2, 4, heads))}
    return found


def test_the_loss_is_the_error_averaged_over_task_and_noise():
    rng = np.random.default_rng(1)
    X, x, N = rng.normal(size=(8, 2)), rng.normal(size=2), 5
    B, values = rng.normal(size=(2, 2, 2)), rng.normal(size=2)
    model = {"B": B, "values": values}
    found = experiment.error_given(model, X, x, N, 0.3)
    a = np.asarray(
        reg.SoftmaxHeads(B, values).attention(jnp.asarray(X[:N]), jnp.asarray(x))
    )
    w, e = rng.normal(size=(400_000, 2)), 0.3**0.5 * rng.normal(size=(400_000, N))
    errors = ((w @ X[:N].T + e) @ a - w @ x) ** 2
    assert abs(errors.mean() - found) < 4 * errors.std() / len(errors) ** 0.5
    seen = experiment.weights(B, values, X, x, N)
    np.testing.assert_allclose(seen[:N], a, rtol=1e-12)
    assert not np.any(seen[N:])


@pytest.mark.slow
def test_risks_of_layers_have_the_right_axes_and_agree_with_theory():
    B, values = np.tile(np.eye(2) / 3, (2, 4, 1, 1, 1)), np.full((2, 4, 1), 2.0)
    head = {"B": B, "values": values}
    found = experiment.evaluate(CONFIG, {1: head})[1]
    assert found.shape == (2, 4, 3, 2)
    predicted = experiment.transfer(CONFIG, {1: head})[1]
    np.testing.assert_allclose(predicted, predicted[:1, :1] + np.zeros((2, 4, 1)))
    assert np.all(abs(found[..., 0] - predicted) < 4 * found[..., 1])


def row(heads, N, seeds=4):
    found = {"heads": heads, "num_examples": N, "trained": np.linspace(1, 2, seeds)}
    found |= {"best": 1.0, "best_seed": 0, "scale": 0.5, "opposite": 2, "reached": 1}
    names = [*experiment.THEORY, "one_head_scale", "one_head_order_scale"]
    return found | dict.fromkeys(names, 1 + heads / 10)


def test_settings_choose_the_best_seed_and_count_opposite_heads():
    drawn = models()
    falling = np.ones((2, 4, 3, 2)) * np.arange(4, 0, -1)[:, None, None]
    risks = dict.fromkeys(drawn, falling)
    known = {name: np.full(2, 1.0) for name in experiment.THEORY}
    rows = experiment.settings(CONFIG, drawn, risks, known)
    named = [(row["heads"], row["num_examples"]) for row in rows]
    assert named == [(1, 5), (1, 8), (2, 5), (2, 8)]
    assert {r["best_seed"] for r in rows} == {3}
    assert {r["reached"] for r in rows} == {1}
    scale = np.trace(drawn[2]["B"], axis1=-2, axis2=-1) / 2
    expected = (scale[:, :, 0] * scale[:, :, 1] < 0).sum(axis=1)
    assert [r["opposite"] for r in rows] == [0, 0, *expected]
    predicted = {k: np.arange(24.0).reshape(2, 4, 3) for k in drawn}
    moved = experiment.transfers(CONFIG, rows, risks, predicted)
    np.testing.assert_array_equal(moved[1]["predicted"], [21, 22, 23])


def test_checks_and_claims_of_rows_that_agree_and_do_not():
    rows = [row(1, 5), row(1, 8), row(2, 8)]
    moved = [{"heads": 1, "risk": np.full(3, 1.02), "predicted": np.ones(3)}]
    found = experiment.checks(CONFIG, rows, moved)
    assert [check.passed for check in found] == [False, False, True, True]
    held = [claim.held for claim in experiment.claims(CONFIG, rows)]
    assert held == [False, False]


def test_the_figure_shows_theory_as_lines_and_layers_as_marks():
    rows = [row(h, N) for h in (1, 2) for N in CONFIG.lengths]
    moved = [
        {"heads": 1, "trained_for": N, "lengths": [5, 8, 16]}
        | {"risk": np.full(3, 2.0), "predicted": np.full(3, 2.5)}
        for N in CONFIG.lengths
    ]
    left, _, right = experiment.draw(CONFIG, rows, moved).axes
    lines = {line.get_label(): line for line in left.get_lines()}
    for name, (label, _, style) in experiment.THEORY.items():
        np.testing.assert_allclose(lines[label].get_ydata(), 1.1 - 0.25, err_msg=name)
        assert lines[label].get_linestyle() == style
    marks = lines["2 heads, every seed"].get_ydata()
    np.testing.assert_allclose(marks, np.linspace(1, 2, 4) - 0.25)
    assert len(right.get_lines()) == 2


@pytest.mark.slow
def test_a_small_run_reports_every_layer(small_run):
    _, result, pictures = small_run(experiment, SMALL)
    assert pictures == {"softmax"}
    assert len(result["settings"]) == 4
    best = np.array([r["best"] for r in result["settings"]])
    assert np.all(best > 0.25)
    with jax.enable_x64(True):
        known = experiment.theory(CONFIG)
    assert np.all(known["one_head"] >= known["centred"])
    assert np.all(known["centred"] >= known["linear"])
