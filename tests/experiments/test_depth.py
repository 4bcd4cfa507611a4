"""The experiment on the limit of depth."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import depth as experiment
from experiments.depth.classes import PLUS, STEPS, Steps, residual, train_classes
from experiments.depth.config import Config
from experiments.depth.free import CONTINUED, RANDOM, draw, predict, stacks_of
from experiments.depth.measure import (
    Setting,
    Trained,
    limit_depths,
    phase_depths,
)
from experiments.depth.report import report
from icltheory import constructions
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack
from icltheory.regression.depth import gradient_steps_limit
from icltheory.statistics import Estimate


def best_steps(d, N, L):
    return reg.optimum(reg.Steps(L), reg.LinearPopulation.isotropic(d), N)


TINY = (
    "--dims 2 --lengths 6 --max-layers 2 --free-layers 2 --draws 8 --starts 2 "
    "--steps 200 --batch-size 64 --free-starts 1 --free-steps 20 --free-batch 32 "
    "--eval-prompts 4096 --phase-dim 3 --phase-layers 3"
)


def random_weights(seed, starts=1, layers=2, dim=3):
    shape = (3, starts, layers, dim + 1, dim + 1)
    return 0.3 * np.random.default_rng(seed).standard_normal(shape)


def test_predictions_are_those_of_the_stack():
    stack = LinearAttentionStack(*random_weights(0)[:, 0])
    prompts = draw(jax.random.key(0), 3, 7, 4)
    expected = []
    for b in range(4):
        h = jnp.append(prompts.x[:, b], 0.0)
        out = stack.apply(prompts.H[:, :, b].T, h, scale=1 / 7)
        expected.append(-out.h_query[-1, -1])
    np.testing.assert_allclose(predict(stack, prompts), expected, rtol=1e-5)


def test_labels_are_linear_in_the_inputs():
    H, x, y = draw(jax.random.key(1), 3, 5, 2)
    for b in range(2):
        w = np.linalg.lstsq(H[:3, :, b].T, H[3, :, b], rcond=None)[0]
        assert y[b] == pytest.approx(float(w @ x[:, b]), rel=1e-4)


def test_weights_of_gd_plus_plus_are_those_of_the_library():
    steps = Steps(np.array([[0.5, 0.2]]), np.array([[0.1, 0.3]]))
    own = stacks_of(steps, 3)
    library = constructions.gd_plus_plus(steps.labels[0], steps.inputs[0], 3)
    for W, other in zip(own, (library.W_V, library.W_K, library.W_Q), strict=True):
        np.testing.assert_allclose(W[0], other, rtol=1e-6, atol=1e-7)


def test_the_residual_of_gradient_steps_is_a_product():
    values = np.array([0.3, 1.0, 2.0])
    eta = np.array([[0.5, 0.2, 0.0]])
    found = residual(Steps(jnp.asarray(eta), jnp.zeros((1, 3))), jnp.asarray(values))
    expected = (1 - 0.5 * values) * (1 - 0.2 * values)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)


@pytest.mark.slow
def test_learned_gradient_steps_are_the_best_ones():
    config = Config(max_layers=2, free_layers=(2,), draws=64, starts=2, steps=1500)
    found = train_classes(config, 3, 12)[STEPS]
    for L in (1, 2):
        best = best_steps(3, 12, L).model.step_sizes
        for start in found.labels[L - 1]:
            np.testing.assert_allclose(np.sort(start[:L]), best, rtol=0.03)
            np.testing.assert_array_equal(start[L:], 0)


@pytest.mark.slow
def test_gd_plus_plus_is_trained_to_the_least_of_its_local_minima():
    config = Config(max_layers=2, free_layers=(2,), steps=500)
    found = train_classes(config, 5, 20)[PLUS]
    X = np.random.default_rng(0).standard_normal((50_000, 20, 5))
    values = np.linalg.eigvalsh(np.swapaxes(X, 1, 2) @ X / 20)
    p = residual(Steps(found.labels[1], found.inputs[1]), jnp.asarray(values))
    # 0.0115 is the least minimum and 0.0173 the next (tests/identities/test_depth.py).
    assert jnp.mean(p**2, axis=(1, 2)).min() == pytest.approx(0.0115, rel=0.1)


def estimate(mean):
    return Estimate(np.float64(mean), np.float64(0.0002), np.float64(1000.0))


def made_up(free, steps=0.07):
    trained = [
        Trained(STEPS, 1, estimate(0.23), np.array([0.23])),
        Trained(STEPS, 2, estimate(steps), np.array([steps])),
        Trained(PLUS, 2, estimate(0.0115), np.array([0.0115])),
        Trained(RANDOM, 2, estimate(0.02), np.array([0.02])),
        Trained(CONTINUED, 2, estimate(free), np.array([free])),
    ]
    return Setting(5, 20, [0.23, 0.07], [0.23, 0.011], trained)


@pytest.mark.parametrize(
    ("free", "place"),
    [(0.01, "below"), (0.0111, "no farther than chance from"), (0.012, "above")],
)
def test_free_weights_are_placed_beside_the_floor(free, place):
    (line,) = report(Config(phase_layers=2), [made_up(free)]).findings
    assert f"{place} the lower bound 0.011" in line


def test_steps_that_are_not_the_best_fail_the_check():
    config = Config(phase_layers=2)
    assert report(config, [made_up(0.01)]).passed
    assert not report(config, [made_up(0.01, steps=0.08)]).passed


def test_depth_against_examples_is_where_the_risk_falls_below_an_error():
    config = Config(phase_dim=4, phase_layers=6, phase_errors=(0.1,))
    ratios, depths = phase_depths(config)[0.1]
    for ratio, L in zip(ratios, depths, strict=True):
        N = round(ratio * 4)
        assert float(best_steps(4, N, L).risk) / 4 <= 0.1
        if L > 1:
            assert float(best_steps(4, N, L - 1).risk) / 4 > 0.1


def test_the_limit_of_depth_against_examples_inverts_the_risk():
    ratios, depths = limit_depths(Config(phase_errors=(0.03,)))[0.03]
    for ratio, L in list(zip(ratios, depths, strict=True))[::40]:
        below = float(gradient_steps_limit(max(int(np.ceil(L)), 1), 1 / ratio).risk)
        assert below <= 0.03 * (1 + 1e-6)


@pytest.mark.slow
def test_a_run_writes_everything_it_promises(tmp_path):
    experiment.main([*TINY.split(), "--output", str(tmp_path)])
    (folder,) = (tmp_path / "depth").iterdir()
    result = json.loads((folder / "result.json").read_text())
    kinds = {
        name.rpartition(", L")[0]
        for name in result["settings"]["d = 2, N = 6"]["trained"]
    }
    assert kinds == {STEPS, PLUS, RANDOM, CONTINUED}
    assert (folder / "layers.png").exists()
    assert (folder / "phase.png").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": (20,)}, "lengths: expected one for each of 3 dims"),
        ({"free_layers": (7,)}, "free_layers: expected at most max_layers = 6"),
        ({"free_layers": ()}, "free_layers: expected at least 1 each"),
        ({"starts": 0}, "starts"),
        ({"draws": 15}, "draws: expected at least 16, got 15"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        Config(**change)
