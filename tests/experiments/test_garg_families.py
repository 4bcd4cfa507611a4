"""The families of garg_linear: what each is compared with, and a report of one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import garg_linear
from experiments.garg_linear import FAMILIES, MODEL, set_up
from experiments.shared.fitted import (
    NetworkRecipe,
    network_prefixes,
    network_start,
    tree_prefixes,
)
from tests.experiments.test_garg_linear import PICTURES, arguments, config
from tests.weights import drawn


@pytest.mark.statement("Garg: Section 5, families")
@pytest.mark.parametrize("task", FAMILIES)
def test_labels_divided_by_the_normaliser_have_second_moment_one(task):
    setup = set_up(config("--task", task), 1)
    y = jax.jit(lambda key: setup.task.sample(key, 4, 4000).y)(jax.random.key(0))
    scale = setup.family.normalizer(setup.config)
    found = np.square(np.asarray(y)).mean(axis=1) / scale
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - 1) < 5 * error < 0.25


@pytest.mark.statement("Garg: Section 5, exact risks of sparse functions")
def test_sparse_functions_have_the_exact_risks_of_their_second_moments():
    setup = set_up(config("--task", "sparse", "--family.sparsity", "2"), 1)
    exact = garg_linear.exact_risks(setup)
    k, d = np.arange(11), 5
    np.testing.assert_allclose(exact["least squares"], np.maximum(1 - k / d, 0), 1e-6)
    np.testing.assert_allclose(exact["averaging"][1:], (d + 1) / k[1:], rtol=1e-6)
    floor = (d + 1) / (k + d + 1)  # of one layer of linear attention, as for any E ww'
    np.testing.assert_allclose(exact["one-layer optimum"], floor, rtol=1e-5)
    steps = exact["best gradient steps (3)"]
    assert np.all(exact["lower bound for linear layers (3)"] <= steps)
    assert np.all(steps[1:] < floor[1:])
    # Two weights among three active inputs: (2 / 3) (3 + 2 + 1) over six points.
    assert garg_linear.least_squares_loss(setup, 3, 6) == pytest.approx(2 / 3)
    assert garg_linear.least_squares_loss(setup, 1, 2) == pytest.approx(0.5)


def oracle_network(X, y, start, steps, rate):
    """Adam on a two-layer network by loops over its formula, in float64."""
    params = {name: np.asarray(value, float) for name, value in start.items()}
    moments = {name: [0.0, 0.0] for name in params}
    for step in range(1, steps + 1):
        before = X @ params["W_1"] + params["b_1"]
        hidden = np.maximum(before, 0)
        miss = 2 * (hidden @ params["w_2"] + params["b_2"] - y) / len(y)
        back = np.outer(miss, params["w_2"]) * (before > 0)
        gradient = {"W_1": X.T @ back, "b_1": back.sum(0)}
        gradient |= {"w_2": hidden.T @ miss, "b_2": miss.sum()}
        for name, g in gradient.items():
            m, v = moments[name]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            moments[name] = [m, v]
            scaled = np.sqrt(v / (1 - 0.999**step)) + 1e-8
            params[name] = params[name] - rate * m / (1 - 0.9**step) / scaled
    return params


def test_a_network_of_a_prefix_is_trained_on_its_examples_alone():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1, 5, 2)), rng.standard_normal((1, 5))
    recipe = NetworkRecipe(width=4, steps=7, learning_rate=0.05)
    key = jax.random.key(3)
    found = np.asarray(network_prefixes(jnp.asarray(X), jnp.asarray(y), key, recipe))[0]
    assert found[0] == 0
    keys = jax.random.split(key, y.shape)[0]
    for k in range(1, 5):
        start = network_start(keys[k], 2, 4, jnp.float64)
        own = oracle_network(X[0, :k], y[0, :k], start, 7, 0.05)
        hidden = np.maximum(X[0, k] @ own["W_1"] + own["b_1"], 0)
        np.testing.assert_allclose(found[k], hidden @ own["w_2"] + own["b_2"], 1e-8)


def test_a_greedy_tree_splits_where_the_squared_error_falls_most():
    X = np.array([[[0.0, 5.0], [1.0, -5.0], [2.0, 5.1], [3.0, -5.2], [1.4, -5.0]]])
    y = np.array([[1.0, 9.0, 1.0, 9.0, 0.0]])
    # Only the second input tells the labels apart.
    np.testing.assert_array_equal(tree_prefixes(X, y, 1), [[0.0, 1.0, 1.0, 9.0, 9.0]])


@pytest.mark.slow
def test_methods_see_no_later_example():
    """Labels from place k on do not change what is predicted after k examples."""
    options = ("--baselines.prompts", "2", "--baselines.network.steps", "3")
    for task in ("sparse", "decision_tree"):
        line = ("--task", task, "--dim", "2", "--family.sparsity", "1")
        setup = set_up(config(*line, *options), 1)
        count = setup.config.num_points
        prompt = setup.task.sample(jax.random.key(1), count - 1, 2).prefixes()
        later = np.asarray(prompt.y).copy()
        later[:, 3:] += 100.0
        other = dataclasses.replace(prompt, y=jnp.asarray(later))
        after = garg_linear.method_errors(setup, other)
        for name, errors in garg_linear.method_errors(setup, prompt).items():
            assert errors.shape == (2, count)
            np.testing.assert_allclose(errors[:, :4], after[name][:, :4], rtol=1e-4)


@pytest.mark.parametrize("task", sorted(set(FAMILIES) - {"linear"}))
def test_claims_and_checks_tell_a_good_model_from_a_bad_one(task):
    setup = set_up(config("--task", task), 1)
    exact = garg_linear.exact_risks(setup)

    def judged(error):
        rng, shape = np.random.default_rng(0), (100, setup.config.num_points)
        means = {MODEL: error, "zero": 1.0}
        means |= dict.fromkeys(garg_linear.methods(setup.config), 0.5)
        noisy = {n: m + 0.01 * rng.standard_normal(shape) for n, m in means.items()}
        noisy[MODEL] = noisy[MODEL][None]
        found = garg_linear.checks(setup.config, noisy, exact)
        held = [one.held for one in garg_linear.claims(setup.config, noisy)]
        return {one.name: one.passed for one in found}, held

    (good, held), (bad, refuted) = judged(0.1), judged(0.9)
    below = [name for name in good if " below " in name]
    assert below
    assert all(held)
    assert all(good[name] for name in below)
    assert not any(refuted)
    assert not any(bad[name] for name in below)
    assert bad["error of predicting 0, Monte Carlo against exact"]


@pytest.mark.slow
def test_the_report_of_another_family(tmp_path):
    args = [*arguments(tmp_path, num_points=5, eval_prompts=16)][4:]
    args += ["--task", "decision_tree", "--baselines.prompts", "4"]
    setup = set_up(config(*args, "--baselines.network.steps", "5"), 1)
    X = np.zeros((1, 5, 2), np.float32)
    params = drawn(setup.model.init, X, X[..., 0])["params"]
    params = jax.tree.map(lambda leaf: leaf[None], params)
    line = {"step": 10, "loss": [0.9], "errors": [[1.0, 0.9, 0.8, 0.7, 0.6]]}
    report = garg_linear.report(setup, params, [line])
    assert set(report.figures) == PICTURES
    result = report.as_dict()
    assert (result["task"], result["normalizer"]) == ("decision_tree", 1.0)
    assert result["exact"] == {}
    assert set(result["prompts"]) == set(result["curves"])
    few = {"two-layer network", "greedy tree", "greedy tree on signs"}
    for name, count in result["prompts"].items():
        assert count == (4 if name in few else 16)
        assert len(result["curves"][name]["mean"]) == 5
    assert "(4 of two-layer network, greedy tree" in result["tables"][0]["title"]
    assert len(result["claims"]) == 2
