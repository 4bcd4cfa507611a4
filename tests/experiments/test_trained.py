"""Shared trained models: exact resume, snapshots, and what the recipes reach."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.frame import Run
from experiments.shared.descent import gradient_descent_errors
from experiments.shared.training import (
    GPT2_CPU,
    differing,
    linear_recipe,
    train,
    with_seeds,
)
from icltheory import constructions, training
from icltheory.layered import forward
from icltheory.regression import LinearStep, optimum

SMALL = {"steps": 40, "batch_size": 4, "chunk_steps": 10, "checkpoint_every": 20}
LINEAR = dataclasses.replace(
    linear_recipe(2, dim=2),
    seeds=(3, 5),
    snapshots=(0, 20, 40),
    optimizer=training.OptimizerConfig("adam", 1e-3, clip_norm=1.0),
    **SMALL,
)
GPT2 = dataclasses.replace(
    GPT2_CPU,
    dim=2,
    num_points=4,
    num_layers=1,
    width=8,
    num_heads=2,
    snapshots=(10, 40),
    optimizer=training.OptimizerConfig("adam", 1e-3),
    **SMALL,
)


RECIPES = {"linear": LINEAR, "gpt2": GPT2}


def trained(recipe, folder, **kwargs):
    folder.mkdir(exist_ok=True)
    return train(recipe, Run(folder), **kwargs)


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """The linear stack, trained and never interrupted, and where."""
    folder = tmp_path_factory.mktemp("linear")
    return trained(LINEAR, folder), folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    return trained(GPT2, folder), folder


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_an_interrupted_training_ends_bit_for_bit_the_same(
    name, tmp_path, interrupted, request
):
    recipe, (whole, folder) = RECIPES[name], request.getfixturevalue(name)
    with interrupted(3):
        trained(recipe, tmp_path / "cut")
    resumed = trained(recipe, tmp_path / "cut")
    assert resumed.timing.steps == recipe.steps
    same(resumed.params, whole.params)
    same(resumed.snapshots, whole.snapshots)
    assert resumed.records == whole.records
    lines = (tmp_path / "cut" / "metrics.jsonl").read_text()
    assert lines == (folder / "metrics.jsonl").read_text()
    # A third call trains nothing and reads everything back.
    same(trained(recipe, tmp_path / "cut").snapshots, whole.snapshots)


@pytest.mark.slow
def test_snapshots_are_the_parameters_of_a_shorter_training(linear, tmp_path):
    # A constant rate: a schedule knows how long the training is.
    long, _ = linear
    short = dataclasses.replace(LINEAR, steps=20, snapshots=())
    same(long.snapshots[20], trained(short, tmp_path / "short").params)
    same(long.snapshots[40], long.params)
    assert long.snapshots[0]["W_V"].shape == (2, 2, 3, 3)
    assert jax.tree.leaves(long.params)[0].dtype == jnp.float32


@pytest.mark.slow
def test_parameters_of_a_seed_stay_in_the_memory_they_are_in():
    """Several processes save NumPy arrays, and no array on a device of one of them."""
    for array in (np.ones(2), jnp.ones(2)):
        found = with_seeds({"w": array}, (0,))["w"]
        assert isinstance(found, type(array))
        assert found.shape == (1, 2)


def test_several_models_share_one_file_of_metrics(tmp_path):
    first = trained(LINEAR, tmp_path / "run", name="two")
    trained(GPT2, tmp_path / "run", earlier=first.records)
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    models = [json.loads(line)["model"] for line in text.splitlines()]
    assert models == ["two"] * 4 + ["gpt2"] * 4
    assert np.shape(json.loads(text.splitlines()[0])["loss"]) == (2,)


@pytest.mark.slow
def test_gradient_descent_weights_answer_as_gradient_descent():
    recipe = dataclasses.replace(linear_recipe(3, dim=2), init_std=0.0)

    @jax.jit
    def asked(key):
        prompt = recipe.task().sample(key, 8, 5)
        args, params = (prompt.X, prompt.y, prompt.x_query), recipe.start().params
        answer = recipe.module().apply({"params": params}, *args, method="predict")
        return prompt, answer

    prompt, answers = jax.device_get(asked(jax.random.key(0)))
    w = np.zeros((5, 2))
    X, y = np.asarray(prompt.X, np.float64), np.asarray(prompt.y, np.float64)
    for _ in range(3):
        residual = np.einsum("bnd,bd->bn", X, w) - y
        w -= 0.3 / 8 * np.einsum("bnd,bn->bd", X, residual)
    expected = np.einsum("bd,bd->b", w, np.asarray(prompt.x_query))
    np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_layered_model_answers_as_the_module(linear):
    out, _ = linear
    model, sign = out.layered()

    @jax.jit
    def both(key):
        prompt = LINEAR.task().sample(key, 8, 1)
        H, h = constructions.join_tokens(
            prompt.X[0], prompt.y[0][:, None], prompt.x_query[0]
        )
        args = prompt.X, prompt.y, prompt.x_query
        expected = out.module.apply({"params": out.of_seed(1)}, *args, method="predict")
        return sign * forward(model, out.stack(1), (H, h))[-1], expected[0]

    answer, expected = both(jax.random.key(1))
    np.testing.assert_allclose(answer, expected, rtol=1e-5)


def one_layer_optimum(recipe):
    """Exact risk / d of the best one-layer linear attention on 20 examples."""
    best = optimum(LinearStep, recipe.task(), 20)
    return float(best.risk) / recipe.dim


@pytest.mark.slow
def test_tuned_gradient_descent_of_one_step_is_near_the_exact_optimum():
    recipe = linear_recipe(1)
    draw = jax.jit(lambda key: recipe.task().sample(key, 20, 4096))
    prompt = draw(jax.random.key(0))
    errors, size = gradient_descent_errors(recipe, prompt, 1)
    # For isotropic data the best matrix is k / (k + d + 1) times the identity.
    assert size == pytest.approx(20 / 26, abs=0.05)
    error = errors.std(ddof=1) / 4096**0.5
    assert abs(errors.mean() - one_layer_optimum(recipe)) < 5 * error


@pytest.mark.slow
def test_one_layer_trains_to_the_exact_optimum(tmp_path):
    recipe = linear_recipe(1)
    out = trained(recipe, tmp_path / "run")
    prompt = recipe.task().sample(jax.random.key(7), 20, 8192)
    args = prompt.X, prompt.y, prompt.x_query
    answers = out.module.apply({"params": out.of_seed(0)}, *args, method="predict")
    errors = np.asarray(jnp.square(answers - prompt.y_query)) / 5
    standard = errors.std(ddof=1) / 8192**0.5
    assert errors.mean() < 1.02 * one_layer_optimum(recipe) + 5 * standard


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"seeds": (3, 6)}, "seeds"),
        ({"optimizer": training.OptimizerConfig("adam", 1e-2, clip_norm=1.0)}, "rate"),
    ],
)
def test_checkpoints_of_another_recipe_are_refused(change, name, linear, tmp_path):
    """States of one shape say nothing of the recipe that made them."""
    shutil.copytree(linear[1], tmp_path / "run")
    kept = (tmp_path / "run" / "metrics.jsonl").read_text()
    other = dataclasses.replace(LINEAR, **change)
    with pytest.raises(ValueError, match=f"^checkpoints: expected those .*{name}"):
        trained(other, tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == kept


def test_checkpoints_from_before_a_field_came_are_read():
    config = dataclasses.asdict(LINEAR)
    older = dict(config, optimizer=dict(config["optimizer"]))
    del older["mlp"], older["optimizer"]["average"]
    assert not differing(older, config)
    assert differing(config, older) == ["optimizer.average", "mlp"]


def test_a_snapshot_within_a_chunk_is_refused(tmp_path):
    with pytest.raises(ValueError, match="snapshots: expected multiples of chunk_"):
        trained(dataclasses.replace(LINEAR, snapshots=(15,)), tmp_path / "run")
