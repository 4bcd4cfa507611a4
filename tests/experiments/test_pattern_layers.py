"""The experiment on several layers: its training, a small run, its pictures."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import pattern_layers
from icltheory.layered import forward

SMALL = """
    --preset cpu --layers.num-relevant 4 --layers.num-irrelevant 4
    --layers.num-shifted 3 --layers.shifts 1 2 --layers.num-neurons 8
    --layers.num-layers 2 --layers.steps 6 --layers.batch-size 8
    --layers.num-examples 6 --layers.record-every 3 --layers.seeds 0 3
    --sums 1.1 0.5 --draws 2 --prompts 8 --probe-prompts 16 --num-examples 8
"""


@pytest.fixture(scope="module")
def ran(small_run):
    """One small run: all of it, and what it trained and measured."""
    parts, measure = [], pattern_layers.measure

    def watched(config, trained):
        parts.append((trained, measure(config, trained)))
        return parts[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern_layers, "measure", watched)
        return *small_run(pattern_layers, SMALL), parts


@pytest.mark.slow
def test_a_small_run_writes_its_numbers_and_pictures(ran):
    folder, result, pictures, parts = ran
    assert pictures == {"attention", "sums"}
    assert list(result["sets"]) == ["8 tasks", "4 tasks"]
    assert [len(trained.tasks.tasks) for trained, _ in parts] == [8, 4]
    phases = json.loads((folder / "timing.json").read_text())["seconds"]
    assert len(phases) == 4  # two sets of tasks are trained and measured
    assert len(result["checks"]) == 6
    assert len(result["claims"]) == 9


@pytest.mark.slow
def test_what_is_followed_is_the_model_along_training(ran):
    trained, found = ran[3][0]
    assert found["steps"] == [0, 3, 6]
    start = trained.ensemble.start(trained.tasks)
    for name, leaf in start.items():
        np.testing.assert_array_equal(trained.path.params[name][:, 0], leaf)
    # Label parts of the last layer at the end, from the sum notation.
    task, params = trained.of_seed(1)
    rows = np.asarray(params["W_O"][1], float) @ np.asarray(params["W_V"][1], float)
    label = rows[:, task.dim :]
    size = np.linalg.norm(label, axis=1)
    np.testing.assert_allclose(found["label norm"][1, -1, 1], size, rtol=1e-5)
    cosine = abs(label @ np.asarray(task.label_embedding)) / size
    angle = np.arccos(cosine) / np.pi
    np.testing.assert_allclose(found["label angle"][1, -1, 1], angle, atol=1e-4)
    assert (found["label angle"] <= 0.5).all()


@pytest.mark.slow
def test_attention_is_of_the_query_in_every_layer(ran):
    trained, found = ran[3][0]
    task, params = trained.of_seed(0)
    key = trained.ensemble.keys(6)[0]
    prompt = jax.jit(lambda task: task.sample(key, 8, 16))(task)
    weights = trained.model.attention(params, prompt)
    mass = np.where(prompt.same, weights, 0).sum(-1).mean(-1)
    np.testing.assert_allclose(found["attention"][0, -1], mass, atol=1e-5)
    margins = np.asarray(prompt.z * forward(trained.model, params, prompt))
    expected = np.maximum(1 - margins, 0).mean()
    np.testing.assert_allclose(found["hinge"][0, -1], expected, atol=1e-5)


def test_summaries_are_those_of_their_definition():
    rng = np.random.default_rng(0)
    _, error, _ = pattern_layers.estimate(rng.normal(size=(3, 400)))
    assert error == pytest.approx((1 / 1200) ** 0.5, rel=0.1)
    # One seed, two steps, one layer, one neuron.
    found = {
        "label norm": np.array([[[[1.0]], [[3.0]]]]),
        "label angle": np.array([[[[0.5]], [[0.2]]]]),
        "attention": np.array([[[0.1, 0.1], [0.9, 0.2], [0.1, 0.3]]]),
    }
    summary = pattern_layers.summary([0, 3, 6], found)
    assert summary["growth"].tolist() == [[3.0]]
    np.testing.assert_allclose(summary["turned"], [[0.3]])
    np.testing.assert_array_equal(summary["jump"], [[3.0, np.nan]])


def test_pictures_show_their_numbers():
    found = {
        "steps": [0, 5],
        "attention": np.array([[[0.4, 0.5], [0.8, 0.9]]]),
        # One seed, two sums (1.1 and .5), two draws.
        "outside": dict.fromkeys(
            ("error", "hinge"), np.array([[[0.0, 0.2], [0.2, 0.2]]])
        ),
    }
    (axes,) = pattern_layers.draw_attention({"one": found}, "title").axes
    np.testing.assert_array_equal(axes.get_lines()[-1].get_ydata(), [0.5, 0.9])
    assert {text.get_text() for text in axes.texts} == {"layer 0", "layer 1"}
    config = dataclasses.replace(pattern_layers.PRESETS["cpu"], sums=(1.1, 0.5))
    axes, _ = pattern_layers.draw_sums(config, {"one": found}, "title").axes
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [0.2, 0.1])
