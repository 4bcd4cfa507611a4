"""The families of garg_linear: what each is compared with, and a tiny run of each."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import garg_linear
from experiments._frame.command_line import parse
from experiments._frame.program import run_program
from experiments._frame.report import Report
from experiments.garg_linear import published
from experiments.garg_linear.checks import Measured
from experiments.garg_linear.config import PRESETS, set_up
from experiments.garg_linear.evaluate import (
    baseline_errors,
    exact_curves,
    least_squares_loss,
)
from experiments.garg_linear.families import FAMILIES
from experiments.garg_linear.main import Switches
from experiments.garg_linear.networks import NetworkRecipe, network_prefixes
from experiments.garg_linear.report import report
from experiments.garg_linear.trees import tree_prefixes
from icltheory.training import Ramp
from tests.experiments.test_garg_linear import arguments, run_folder
from tests.weights import drawn

OTHERS = [name for name in FAMILIES if name != "linear"]


def config(*options, preset="cpu"):
    return parse(PRESETS, ["--preset", preset, *options], flags=Switches()).config


def test_a_task_changes_the_points_as_in_the_published_configs():
    """Garg's curricula: 11 to 41 points by 2, for networks and trees 26 to 101 by 5."""
    paper = PRESETS["paper"]
    for task in ("relu_network", "decision_tree"):
        found = config("--task", task, preset="paper")
        assert (found.num_points, found.task) == (101, task)
        assert found.curriculum.points == Ramp(26, 101, 5, 2000)
        assert found.curriculum.dims == paper.curriculum.dims
    sparse = config("--task", "sparse", preset="paper")
    assert sparse == dataclasses.replace(paper, task="sparse")
    assert config("--task", "linear", preset="paper") == paper
    smaller = config("--task", "decision_tree", "--dim", "3")
    assert (smaller.dim, smaller.num_points) == (3, 16)


@pytest.mark.parametrize("task", FAMILIES)
def test_labels_divided_by_the_normaliser_have_second_moment_one(task):
    setup = set_up(config("--task", task), 1)
    y = jax.jit(lambda key: setup.task.sample(key, 4, 4000).y)(jax.random.key(0))
    found = np.square(np.asarray(y)).mean(axis=1) / setup.family.normalizer(
        setup.config
    )
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - 1) < 5 * error
    assert error < 0.05


def test_sparse_functions_have_the_exact_risks_of_their_second_moments():
    setup = set_up(config("--task", "sparse", "--family.sparsity", "2"), 1)
    exact = exact_curves(setup)
    k, d = np.arange(11), 5
    np.testing.assert_allclose(exact["least squares"], np.maximum(1 - k / d, 0), 1e-6)
    np.testing.assert_allclose(exact["averaging"][1:], (d + 1) / k[1:], rtol=1e-6)
    floor = (d + 1) / (k + d + 1)  # of one layer of linear attention, as for any E ww'
    np.testing.assert_allclose(exact["one-layer optimum"], floor, rtol=1e-5)
    assert np.all(
        exact["lower bound for linear layers (3)"] <= exact["best gradient steps (3)"]
    )
    assert np.all(exact["best gradient steps (3)"][1:] < floor[1:])
    # Two weights among three active inputs: (2 / 3) (3 + 2 + 1) over six points.
    assert least_squares_loss(setup, 3, 6) == pytest.approx(2 / 3)
    assert least_squares_loss(setup, 1, 2) == pytest.approx(0.5)


def oracle_network(X, y, start, steps, rate):
    """Adam on a two-layer network by loops over its formula, in float64."""
    params = {name: np.asarray(value, float) for name, value in start.items()}
    moments = {name: [0.0, 0.0] for name in params}
    for step in range(1, steps + 1):
        before = X @ params["W_1"] + params["b_1"]
        hidden = np.maximum(before, 0)
        miss = 2 * (hidden @ params["w_2"] + params["b_2"] - y) / len(y)
        back = np.outer(miss, params["w_2"]) * (before > 0)
        gradient = {
            "W_1": X.T @ back,
            "b_1": back.sum(0),
            "w_2": hidden.T @ miss,
            "b_2": miss.sum(),
        }
        for name, g in gradient.items():
            m, v = moments[name]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            moments[name] = [m, v]
            scaled = np.sqrt(v / (1 - 0.999**step)) + 1e-8
            params[name] = params[name] - rate * m / (1 - 0.9**step) / scaled
    return params


def test_a_network_of_a_prefix_is_trained_on_its_examples_alone():
    from experiments.garg_linear.networks import _start

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1, 5, 2)), rng.standard_normal((1, 5))
    recipe = NetworkRecipe(width=4, steps=7, learning_rate=0.05)
    key = jax.random.key(3)
    found = np.asarray(network_prefixes(jnp.asarray(X), jnp.asarray(y), key, recipe))[0]
    assert found[0] == 0
    keys = jax.random.split(key, y.shape)[0]
    for k in range(1, 5):
        start = _start(keys[k], 2, 4, jnp.float64)
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
        setup = set_up(config("--task", task, "--dim", "2", *options,
                              "--family.sparsity", "1"), 1)  # fmt: skip
        count = setup.config.num_points
        prompt = setup.task.sample(jax.random.key(1), count - 1, 2).prefixes()
        later = np.asarray(prompt.y).copy()
        later[:, 3:] += 100.0
        other = dataclasses.replace(prompt, y=jnp.asarray(later))
        before, after = baseline_errors(setup, prompt), baseline_errors(setup, other)
        for name, errors in before.items():
            assert errors.shape == (2, count)
            np.testing.assert_allclose(errors[:, :4], after[name][:, :4], rtol=1e-4)


def measured(task, errors):
    """A run whose models and methods have the same error in every prompt."""
    setup = set_up(config("--task", task), 1)
    names = setup.family.baselines(setup.config)
    count = setup.config.num_points
    rng = np.random.default_rng(0)

    def sample(mean):
        return mean + 0.01 * rng.standard_normal((100, count))

    return setup.family, Measured(
        setup.config,
        sample(errors["Transformer"])[None],
        sample(1.0),
        {name: sample(errors.get(name, 0.5)) for name in names},
        exact_curves(setup),
    )


@pytest.mark.parametrize("task", OTHERS)
def test_claims_and_checks_tell_a_good_model_from_a_bad_one(task):
    family, good = measured(task, {"Transformer": 0.1})
    assert all(claim.held for claim in family.claims(good))
    below = [check for check in family.checks(good) if " below " in check.name]
    assert below
    assert all(check.passed for check in below)
    _, bad = measured(task, {"Transformer": 0.9})
    assert not any(claim.held for claim in family.claims(bad))
    checks = {check.name: check for check in family.checks(bad)}
    assert not any(checks[check.name].passed for check in below)
    assert checks["error of predicting 0, Monte Carlo against exact"].passed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "quadratic"], "task"),
        (
            ["--task", "sparse", "--targets", "posterior"],
            "targets: expected labels with the task sparse, whose posterior means",
        ),
        (
            ["--task", "sparse", "--family.sparsity", "6"],
            "sparsity: expected at most dim = 5, got 6",
        ),
        (["--family.depth", "0"], "depth: expected at least 1, got 0"),
        (
            ["--baselines.network.learning-rate", "0"],
            "learning_rate: expected a number above 0, got 0",
        ),
        (["--baselines.prompts", "1"], "prompts: expected at least 2, got 1"),
        (
            ["--task", "decision_tree", "--eval-shifts"],
            "eval_shifts: expected the task linear, got decision_tree",
        ),
    ],
)
def test_mistakes_are_one_line(args, message, tmp_path, capsys):
    line = ["--preset", "cpu", *args, "--output", str(tmp_path / "runs")]
    with pytest.raises(SystemExit) as ended:
        run_program(lambda: garg_linear.main(line))
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_report_of_another_family(tmp_path):
    args = [*arguments(tmp_path, num_points=5, eval_prompts=16)][4:]
    args += ["--task", "decision_tree", "--baselines.prompts", "4"]
    setup = set_up(config(*args, "--baselines.network.steps", "5"), 1)
    X = np.zeros((1, 5, 2), np.float32)
    params = drawn(setup.model.init, X, X[..., 0])["params"]
    params = jax.tree.map(lambda leaf: leaf[None], params)
    errors = [[1.0, 0.9, 0.8, 0.7, 0.6]]
    line = {"step": 10, "loss": [0.9], "errors": errors}
    result = report(setup, params, [line]).as_dict()
    assert (result["task"], result["normalizer"]) == ("decision_tree", 1.0)
    assert result["exact"] == {}
    assert set(result["prompts"]) == set(result["curves"])
    few = {"two-layer network", "greedy tree", "greedy tree on signs"}
    for name, count in result["prompts"].items():
        assert count == (4 if name in few else 16)
        assert len(result["curves"][name]["mean"]) == 5
    assert "(4 of two-layer network, greedy tree" in result["tables"][0]["title"]
    assert len(result["claims"]) == 2


def a_checkpoint(path, **sizes):
    """A file of the published layout with random weights."""
    from icltheory._safetensors import write_safetensors
    from icltheory.models import GPT2
    from icltheory.models.garg_checkpoint import _parameters, _stored

    rng = np.random.default_rng(0)
    model = GPT2(**sizes)
    shapes = _stored(_parameters(model))
    listed = [(name, shape, np.float32) for name, shape in shapes.items()]
    write_safetensors(
        path, listed, lambda name: np.float32(0.3 * rng.standard_normal(shapes[name]))
    )
    return path


def test_a_published_checkpoint_is_evaluated_as_one_of_ours(tmp_path, monkeypatch):
    sizes = {"dim": 2, "num_positions": 12, "width": 8, "num_layers": 1}
    path = a_checkpoint(tmp_path / "model.safetensors", **sizes, num_heads=2)
    seen = {}

    def report(setup, params, records):
        seen.update(setup=setup, params=params, records=records)
        return Report({"curves": {}})

    monkeypatch.setattr(published, "report", report)
    args = [str(path), "--num-heads", "2", "--eval-prompts", "32"]
    args += ["--output", str(tmp_path)]
    result = published.main(args)
    folder = run_folder(tmp_path)
    assert json.loads((folder / "result.json").read_text()) == result
    assert result["checkpoint"] == str(path)
    setup, params = seen["setup"], seen["params"]
    assert (setup.model.width, setup.model.num_positions) == (8, 12)
    assert (setup.config.num_points, setup.config.eval_prompts) == (5, 32)
    assert setup.task.dim == 2
    assert params["read_in"]["kernel"].shape == (1, 2, 8)
    assert seen["records"] == []
    with pytest.raises(ValueError, match="expected at least 22 positions for prompts"):
        published.main([*args, "--task", "decision_tree"])
    assert len(list((tmp_path / "garg_linear").iterdir())) == 1


def test_without_a_checkpoint_there_is_nothing_to_evaluate():
    with pytest.raises(ValueError, match="checkpoint: expected a file, got None"):
        published.main([])
