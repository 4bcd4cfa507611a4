"""Pattern classification in context: small parts, the task of GPT-2, the whole way."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from experiments import pattern_icl
from experiments._patterns import PatternEnsemble, scores_on_all, train_ensemble
from experiments._patterns.gpt2 import PairTask
from experiments.pattern_icl.baselines import CLASSIFIERS, MethodComparison, classify
from experiments.pattern_icl.checks import miss_law, start_attention
from experiments.pattern_icl.clouds import NeuronCloud, neurons_along_training
from experiments.pattern_icl.drawing import PatternPanel, PatternSeries, pattern_panels
from experiments.pattern_icl.gpt2 import margins_by_length
from experiments.pattern_icl.lengths import prefix
from experiments.pattern_icl.speed import _speed, crossing
from icltheory.models import GPT2
from icltheory.patterns import PatternTask, circulant_tasks

SMALL = PatternEnsemble(
    num_irrelevant=2,
    num_neurons=4,
    steps=2,
    record_every=1,
    batch_size=4,
    num_examples=6,
    seeds=(0, 1),
)


def test_the_crossing_lies_between_two_snapshots():
    steps, values = np.arange(0, 50, 10), np.array([1.0, 0.6, 0.3, 0.05, 0.2])
    assert crossing(steps, values, 0.1) == pytest.approx(20 + 10 * 0.2 / 0.25)
    assert crossing(steps, values, 2.0) == 0
    assert np.isnan(crossing(steps, values, 0.01))


def test_the_slope_is_that_of_a_power_law():
    alphas, steps = np.array([1.0, 0.5, 0.25]), np.arange(0, 4001, 1)
    hit = 100 * alphas[:, None] ** (-2 / 3) * np.array([[1.0, 2.0]])
    hinge = 1 - 0.9 * steps[None, None] / hit[:, :, None]
    found = _speed(alphas, steps, hinge, 0.1)
    assert found.slope == pytest.approx(-2 / 3, abs=1e-6)
    assert found.slope_error == pytest.approx(0, abs=1e-6)
    never = _speed(alphas, steps[:50], hinge[..., :50], 0.1)
    assert np.isnan(never.slope)


@pytest.mark.slow
def test_the_trainer_reads_pairs_with_the_query_last(key):
    task = PatternTask(4, 4, 2.0)

    @jax.jit
    def both(key):
        drawn = PairTask(task, 0.8).sample(key, 6, 3, active_dims=8)
        return drawn.points(), task.sample(key, 6, 3)

    (X, y), prompt = both(key)
    assert X.shape == (3, 7, 8)
    np.testing.assert_array_equal(X[:, :6], prompt.X)
    np.testing.assert_array_equal(X[:, 6], prompt.x_query)
    np.testing.assert_array_equal(y[:, 6], prompt.z)


@pytest.mark.slow
def test_one_pass_answers_after_every_context(key):
    task = PatternTask(4, 4, 2.0)
    module = GPT2(
        8, 5, width=8, num_layers=1, num_heads=2, token_layout="matrix", init_std=0.3
    )
    prompt = jax.jit(lambda key: task.sample(key, 4, 3))(key)
    params = jax.jit(module.init)(key, prompt.X, prompt.y)["params"]
    margins = jax.jit(margins_by_length, static_argnums=0)(module, params, prompt)
    part = jax.jit(lambda prompt: prefix(prompt, 3))(prompt)
    predict = jax.jit(partial(module.apply, method="predict"))
    alone = predict({"params": params}, part.X, part.y, part.x_query)
    np.testing.assert_allclose(margins[:, 3], alone * prompt.z, atol=1e-6)
    assert margins.shape == (3, 5)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_find_the_nearest_pattern(name):
    X = np.repeat(3 * np.eye(2), 3, axis=0) + 0.01 * np.arange(6)[:, None]
    y = np.array([1.0, 1, 1, -1, -1, -1])
    assert classify(CLASSIFIERS[name], X, y, np.array([3.0, 0.1])) == 1
    assert classify(CLASSIFIERS[name], X, y, np.array([0.1, 3.0])) == -1
    assert classify(CLASSIFIERS[name], X, -np.ones(6), X[0]) == -1


def test_differences_of_methods_are_paired():
    wrong = np.array([[True, False, False, False], [True, True, False, False]])
    same = MethodComparison(0.8, {"a": wrong, "b": wrong}, wrong)
    assert same.difference("a", "b") == (0, 0)
    other = MethodComparison(0.8, {"a": wrong, "b": ~wrong}, wrong)
    mean, error = other.difference("a", "b")
    each = np.array([1.0, 0.0, -1.0, -1.0])
    assert mean == pytest.approx(each.mean())
    assert error == pytest.approx(each.std(ddof=1) / 2)


def test_laws_are_those_of_the_theory():
    config = dataclasses.replace(pattern_icl.PRESETS["cpu"], lengths=(1, 20))
    law = miss_law(config)
    np.testing.assert_allclose(law[:, 0], [0.7, 0.6, 0.5], rtol=1e-6)
    assert law[1, 1] == pytest.approx(0.6**20, rel=1e-5)
    assert start_attention(config) == pytest.approx(0.439, abs=1e-3)


@pytest.mark.slow
def test_unseen_tasks_are_those_left_out():
    trained = train_ensemble(SMALL)
    found, unseen = scores_on_all(trained, 400, num_examples=6)
    assert found.margins.shape == unseen.shape == (2, 400)
    assert float(unseen.mean()) == pytest.approx(12 / 30, abs=0.1)
    whole = dataclasses.replace(trained, tasks=trained.tasks.with_(tasks=ALL))
    assert not scores_on_all(whole, 400, num_examples=6)[1].any()
    task, params = trained.of_seed(1)
    assert task.tasks == circulant_tasks(6, (1, 2, 3))
    np.testing.assert_array_equal(params["a"], trained.params["a"][1])
    assert trained.steps == [0, 1, 2]


ALL = circulant_tasks(6, (1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sums": (1.5,)}, r"sums: expected M1' S_1\^2 <= M1, got 3 \* 1.5\^2 = 6.75"),
        ({"reference_sum": 2.0}, "sums: expected"),
        ({"gpt_sums": (-1.6,)}, "sums: expected"),
        ({"lengths": (4, 2)}, "lengths: expected whole numbers"),
        ({"lengths": (2, 21)}, "expected at most the 20 contexts"),
        ({"fractions": (0.0,)}, r"fractions: expected numbers in \(0, 1\]"),
        ({"covers": (1, 6)}, "covers: expected at most M1 - 1 = 5"),
        ({"alphas": (1.0,)}, "alphas: expected two or more"),
        ({"alpha_steps": 25}, "alpha_steps: expected a multiple of alpha_every 10"),
        ({"gpt_seeds": ()}, "gpt_seeds"),
        ({"target": 1.0}, "target"),
        ({"prompts": 1}, "prompts: expected at least 2"),
    ],
)
def test_configs_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        dataclasses.replace(pattern_icl.PRESETS["cpu"], **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record_every": 7}, "record_every: expected a divisor of steps 320"),
        ({"step_size": 0.0}, "step_size"),
        ({"relevant_fraction": 0.0}, "relevant_fraction"),
        ({"seeds": ()}, "seeds"),
        ({"shifts": (6,)}, "shift"),
        ({"num_neurons": 3}, "num_neurons"),
    ],
)
def test_ensembles_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PatternEnsemble(**changes)


def test_gpt2_that_cannot_be_is_refused():
    gpt = pattern_icl.PRESETS["cpu"].gpt
    with pytest.raises(ValueError, match="num_heads: expected a divisor"):
        dataclasses.replace(gpt, num_heads=3)
    with pytest.raises(ValueError, match="warmup_steps"):
        dataclasses.replace(gpt, steps=10)


def test_panels_draw_what_they_are_given():
    series = {
        "dots": PatternSeries([1, 2, 4], [0.5, 0.1, 0.0], [0.4, 0, 0], [0.6, 0.2, 0.1]),
        "law": PatternSeries([1, 2, 4], [0.5, 0.25, 0.1], kind="dashed"),
    }
    marks, law = {"one": 1.0}, "the law"
    panels = {
        "log": PatternPanel(series, "x", "y", "log", floor=0.01, marks=marks, laws=law),
        "both": PatternPanel(series, "x", "y", "log-log", floor=0.01),
        "plain": PatternPanel(series, "x", "y"),
    }
    figure = pattern_panels(panels, "title", columns=2)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(panels)
    dashed = [line for line in shown[0].get_lines() if line.get_linestyle() == "--"]
    np.testing.assert_array_equal(dashed[0].get_ydata(), [0.5, 0.25, 0.1])
    assert {text.get_text() for text in shown[0].texts} == {"dots", "law", "one"}
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["the law"]
    zeros = [line for line in shown[0].get_lines() if line.get_marker() == "v"]
    assert [0.01] in [line.get_ydata().tolist() for line in zeros]


def test_curves_that_end_at_one_place_are_named_in_the_legend():
    series = {
        "a": PatternSeries([2, 1], [0.0, 0.5]),
        "b": PatternSeries([2, 1], [0.0, 0.2]),
    }
    figure = pattern_panels({"one": PatternPanel(series, "x", "y")}, "title")
    assert not figure.axes[0].texts
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["a", "b"]


def test_every_neuron_is_a_line_of_angles_and_of_norms():
    rng = np.random.default_rng(0)
    size, angle = rng.random((3, 4)), np.pi * rng.random((3, 4))
    cloud = NeuronCloud(size, angle, [True, False] * 2)
    figure = neurons_along_training(
        {"a": cloud, "b": cloud}, [0, 5, 10], "title", ("+", "-")
    )
    above, _, below, _ = figure.axes
    for axes, values in ((above, angle), (below, size)):
        drawn = [line.get_ydata() for line in axes.get_lines()]
        np.testing.assert_array_equal(drawn, values.T[[0, 2, 1, 3]])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["+", "-"]


@pytest.mark.slow
def test_the_way_through(tmp_path):
    config = dataclasses.replace(
        pattern_icl.PRESETS["cpu"],
        figures=SMALL,
        shifted=SMALL,  # the same, which saves a compilation
        **TINY,
    )
    from experiments._frame.run import Run
    from experiments.pattern_icl.main import measure
    from experiments.pattern_icl.report import report

    run = Run.create(tmp_path, "pattern_icl", "tiny", config)
    result = run.finish(report(config, measure(config, run)))
    names = [check["name"] for check in result["checks"]]
    assert len(set(names)) == len(names)
    assert {claim["held"] for claim in result["claims"]} <= {True, False}
    assert len(list(run.folder.glob("*.png"))) == 7
    before = result["mechanism"]["attention"]["mean"][0]
    assert before == pytest.approx(start_attention(config), abs=0.05)
    assert len(result["baselines"][0]["error"]) == 2 + len(CLASSIFIERS)
    assert result["coverage"][0]["tasks"] == 18


TINY = {
    "gpt": dataclasses.replace(
        pattern_icl.PRESETS["cpu"].gpt,
        width=8,
        num_layers=1,
        steps=2,
        batch_size=2,
        chunk_steps=2,
        optimizer=dataclasses.replace(
            pattern_icl.PRESETS["cpu"].gpt.optimizer, warmup_steps=0
        ),
    ),
    "gpt_seeds": (0, 1),
    "prompts": 64,
    "draws": 2,
    "gpt_prompts": 8,
    "gpt_sums": (1.1, 0.5),
    "sums": (1.1, 0.5),
    "lengths": (6,),
    "fractions": (0.6, 1.0),
    "covers": (3,),
    "alphas": (1.0, 0.5),
    "alpha_length": 4,
    "alpha_steps": 2,
    "alpha_every": 1,
    "baseline_lengths": (6,),
    "baseline_fractions": (0.8,),
    "baseline_prompts": 6,
}
