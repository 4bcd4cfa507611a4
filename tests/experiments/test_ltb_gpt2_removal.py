"""<beta*, x> removed from the residual stream: directions, floors, routes, report."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments import ltb_gpt2
from experiments.ltb_gpt2 import removal, removal_report
from experiments.ltb_gpt2.config import ModelSetting
from experiments.ltb_gpt2.directions import carrying, random_direction
from experiments.ltb_gpt2.measure import References, Score
from experiments.ltb_gpt2.removal import (
    BLOCKS,
    EVERYWHERE,
    INPUT,
    PRIOR,
    RANDOM,
    READ_OUT,
    Removals,
    Removed,
    floors,
    removals,
)
from tests.weights import drawn

pytestmark = pytest.mark.usefixtures("float32")
CPU = ltb_gpt2.PRESETS["cpu"]
BAYES = 0.0198


# --- directions


def states_with(noise, width=7, rank=7, size=500):
    rng = np.random.default_rng(0)
    sources = rng.standard_normal((size, rank))
    states = 3 + sources @ rng.standard_normal((rank, width))
    scalar = 10 * sources[:, 0] + noise * rng.standard_normal(size)
    return states.astype(np.float32), scalar


@pytest.mark.parametrize(("noise", "rank"), [(0.0, 7), (0.0, 2), (5.0, 7)])
def test_after_the_removal_no_linear_function_predicts_the_scalar(noise, rank):
    states, scalar = states_with(noise, rank=rank)
    direction, explained = carrying(states, scalar)
    left = states - direction.part(states)
    centred = scalar - scalar.mean()
    correlation = centred @ (left - left.mean(axis=0)) / len(scalar)
    assert np.abs(correlation).max() < 1e-5 * scalar.std()
    np.testing.assert_allclose(left.mean(axis=0), states.mean(axis=0), atol=1e-5)
    assert np.linalg.matrix_rank(direction.part(states)) == 1
    # The share of the variance is that of ordinary least squares.
    design = np.column_stack([np.ones(len(states)), states.astype(float)])
    found = design @ np.linalg.lstsq(design, scalar, rcond=1e-5)[0]
    expected = 1 - (scalar - found).var() / scalar.var()
    assert explained == pytest.approx(expected, abs=1e-6)
    assert (explained > 1 - 1e-6) == (noise == 0)


def test_a_random_direction_is_an_orthogonal_projection_of_one_dimension():
    states, _ = states_with(0.0)
    direction = random_direction(np.random.default_rng(1), states)
    assert np.linalg.norm(direction.read) == pytest.approx(1)
    part = direction.part(states)
    again = direction.part(states - part)
    assert np.abs(again).max() < 1e-5
    assert np.linalg.matrix_rank(part) == 1


# --- the exact floors


def column(bayes=BAYES):
    """References of about the size of the real ones."""
    known = {"prior_mean": 2.01, "least_squares": 0.02, "bayes": bayes}
    lsa = dict.fromkeys(("attention", "attention_bound", "attention_sure"), 58.4)
    return References(block=0.76, step_from_zero=58.5, bayes_error=7e-5, **lsa, **known)


def test_floors_are_the_risks_of_bayes_without_one_coordinate():
    d, M, noise, mean = 2, CPU.num_examples, CPU.recipe.noise_var, 10.0
    rng, size = np.random.default_rng(0), 40_000
    X = rng.standard_normal((size, M, d))
    w = mean + rng.standard_normal((size, d))
    y = np.einsum("bmd,bd->bm", X, w) + noise**0.5 * rng.standard_normal((size, M))
    x = rng.standard_normal((size, d))
    asked = np.einsum("bd,bd->b", x, w) + noise**0.5 * rng.standard_normal(size)
    A = np.einsum("bmd,bme->bde", X, X) + noise * np.eye(d)
    moment = np.einsum("bmd,bm->bd", X, y - mean * X.sum(axis=2))
    guess = np.linalg.solve(A, moment[..., None])[..., 0]
    u = np.full(d, 1 / math.sqrt(d))
    across = x - np.outer(x @ u, u)
    known = np.einsum("bd,bd->b", across, mean + guess)
    bayes = noise + noise * np.trace(np.linalg.inv(A), axis1=1, axis2=2).mean()
    found = floors(CPU, mean, column(bayes))
    for name, answer in (
        ("unseen", known),
        ("passed", known + mean * math.sqrt(d) * (x @ u)),
    ):
        errors = (answer - asked) ** 2
        error = errors.std() / math.sqrt(size)
        assert abs(errors.mean() - getattr(found, name)) < 4 * error
    assert floors(CPU, 0.0, column()).unseen == floors(CPU, 0.0, column()).passed


# --- the routes


@pytest.fixture(scope="module")
def small():
    recipe = dataclasses.replace(
        CPU.recipe, width=8, num_layers=2, num_heads=2, seeds=(0, 1)
    )
    return dataclasses.replace(
        CPU, recipe=recipe, removal_prompts=256, random_directions=2
    )


def models(config, writes):
    """Random models whose blocks write nothing into the stream unless they may."""
    module, task = config.recipe.module(), config.recipe.task()
    prompt = task.sample(jax.random.key(0), config.recipe.num_points, 2)
    params = drawn(module.init, prompt.X, prompt.y)["params"]

    def silent(path, leaf):
        names = {str(getattr(key, "key", "")) for key in path}
        return leaf * 0 if names & {"attn_out", "mlp_out"} and not writes else leaf

    params = jax.tree.map_with_path(silent, params)
    return SimpleNamespace(module=module, of_seed=lambda index: params)


@pytest.mark.slow
def test_blocks_that_write_nothing_pass_the_scalar_by_the_residual_stream(small):
    with jax.default_matmul_precision("highest"):
        found = removals(small, models(small, False), ModelSetting(True, 10.0))
    before, after = found.before.mean, found.after
    for depth in range(2):
        everywhere = after[Removed(PRIOR, EVERYWHERE, depth)].mean
        read_out = after[Removed(PRIOR, READ_OUT, depth)].mean
        assert after[Removed(PRIOR, BLOCKS, depth)].mean == pytest.approx(before)
        assert read_out == pytest.approx(everywhere) != before
    # The stream is the same at every depth, and x is in it.
    np.testing.assert_allclose(found.explained, 1, atol=1e-5)
    assert len(found.explained) == 3


@pytest.mark.slow
def test_routes_differ_where_blocks_write(small):
    trained = models(small, True)
    with jax.default_matmul_precision("highest"):
        found = removals(small, trained, ModelSetting(True, 10.0))
    kinds = {
        (scalar, route, depth)
        for scalar in (PRIOR, INPUT)
        for route in (EVERYWHERE, BLOCKS, READ_OUT)
        for depth in (0, 1)
    }
    kinds |= {(scalar, EVERYWHERE, 2) for scalar in (PRIOR, INPUT)}
    kinds |= {(RANDOM, EVERYWHERE, depth) for depth in range(3)}
    assert set(found.after) == kinds
    three = [found.after[Removed(PRIOR, r, 0)].mean for r in (EVERYWHERE, BLOCKS)]
    assert len({*three, found.before.mean}) == 3
    # No model of any weights is better without the scalar than the least risk.
    least = floors(small, 10.0, column()).unseen
    score = found.after[Removed(PRIOR, EVERYWHERE, 0)]
    assert score.mean > least - 5 * score.prompt_error


# --- the report


def made_up(config, after=200.0, blocks=1.2, before=0.4):
    """Removals of all cells, of two seeds and three prompts."""

    def score(value):
        return Score.of(value * np.linspace(0.9, 1.1, 6).reshape(2, 3))

    depths = config.recipe.num_layers + 1
    kinds = {
        Removed(scalar, route, depth): score(blocks if route == BLOCKS else after)
        for scalar in (PRIOR, INPUT, RANDOM)
        for route in (EVERYWHERE, BLOCKS, READ_OUT)
        for depth in range(depths)
    }
    one = Removals(score(before), kinds, ((1.0, 1.0),) * depths)
    return {cell: one for cell in config.cells}


def test_the_report_says_what_is_left_and_checks_the_floors():
    found = made_up(CPU, after=230.0)
    columns = {mean: column() for mean in CPU.means}
    assert all(c.passed for c in removal_report.checks(CPU, found, columns))
    lucky = made_up(CPU, after=100.0)
    failed = [c for c in removal_report.checks(CPU, lucky, columns) if not c.passed]
    assert len(failed) == 2
    first, second = removal_report.findings(CPU, found, columns)
    assert "0.4 before, 230 if the read-out" in first
    assert "1.2 if the blocks" in first
    assert "without MLP" in second
    numbers = removal_report.numbers(CPU, found, columns)
    assert numbers["floors"]["mean_10"]["unseen"] == pytest.approx(201.0149)
    after = numbers["cells"]["mlp_mean_10"]["after"]
    assert after["prior_read_out_0"]["mean"] == pytest.approx(230)
    shown = removal_report.table(CPU, found, columns)
    assert (len(shown.columns), shown.row_count) == (5, 11)


@pytest.mark.slow
def test_the_figure_has_a_panel_for_each_model_and_a_line_for_each_removal():
    columns = {mean: column() for mean in CPU.means}
    figure = removal_report.figure(CPU, made_up(CPU), columns)
    assert [axes.get_title() for axes in figure.axes] == ["GPT-2", "GPT-2 without MLP"]
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        assert len(axes.containers) == 5
    assert removal.Removed(PRIOR, READ_OUT, 2).name == "prior_read_out_2"
