"""Models with headroom: their prompts, the arms, and what is made of the searches."""

import dataclasses
import json
import math
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments._trained import Timing
from experiments.headroom import PRESETS, Config, main
from experiments.headroom.arms import ARMS, SEARCHED, Scaled
from experiments.headroom.measure import choose, search
from experiments.headroom.prompts import draw
from experiments.headroom.summary import ALL, beyond, gain_rows, rate_curves
from experiments.headroom.train import initial_states, make_steps
from experiments.small_lm import checkpoint, ideal
from experiments.small_lm import vocabulary as v
from experiments.small_lm.model import load, start
from experiments.small_lm.train import initial_state, make_step
from experiments.small_lm.words import GROUP, LIST_LENGTH, NONCE
from icltheory.bridge.evaluation import Grid

SMALL = PRESETS["small"]
KIND, NOISE = SMALL.conditions[0]


@pytest.fixture(scope="module")
def many():
    """Enough prompts to count."""
    return dataclasses.replace(SMALL, test=600, noises=(0.25,))


@pytest.fixture(scope="module")
def drawn(many):
    return draw(many, 0, KIND, 0.25)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("model")
    recipe = SMALL.model(0)
    params = start(recipe, jax.random.key(5))
    return load(str(checkpoint.save(recipe, params, folder)))


def class_of(sentence):
    """The topic that most words of a sentence speak of; ``None`` for a tie."""
    lists = [(v.ID[word] - v.FIRST_WORD) // LIST_LENGTH for word in sentence.split()]
    first = v.FIRST_LIST[v.ATTRIBUTES.index("topic")]
    votes = np.bincount([x - first for x in lists if 0 <= x - first < 4], minlength=4)
    best = np.flatnonzero(votes == votes.max())
    return int(best[0]) if len(best) == 1 else None


def test_a_prompt_has_demonstrations_of_its_own(many, drawn):
    texts = [example.fields["text"] for example in drawn.task.test]
    assert (len(texts), len(drawn.task.validation)) == (600, 12)
    assert len(drawn.calibration) == 4
    assert len(set(texts)) == 600
    for text in texts:
        *shown, asked = text.split("\n")
        assert len(shown) == many.demonstrations
        assert ":" not in asked
    assert drawn.task.query(drawn.task.test[0]).endswith(" :")


def test_questions_have_true_labels_and_demonstrations_noisy_ones(many, drawn):
    # Two demonstrations of one class state two words if exactly one of them is wrong,
    # or both are wrong and differ.
    same = []
    for example in drawn.task.test:
        *shown, _ = example.fields["text"].split("\n")
        pairs = [line.split(" : ") for line in shown]
        classes = [class_of(sentence) for sentence, _ in pairs]
        if classes[0] is not None and classes[0] == classes[1]:
            same.append(pairs[0][1] == pairs[1][1])
    p = 0.25
    expected = (1 - p) ** 2 + p**2 / 3
    error = math.sqrt(expected * (1 - expected) / len(same))
    # The words themselves mislead now and then.
    assert np.mean(same) == pytest.approx(expected, abs=4 * error + 0.05)
    labels = [example.label for example in drawn.task.test]
    assert np.bincount(labels, minlength=4).min() > 100


def test_the_ideal_learner_is_below_who_knows_the_task(drawn):
    assert drawn.ideal.shape == drawn.informed.shape == (600,)
    assert 0.3 < drawn.ideal.mean() < drawn.informed.mean() <= 1


def words_of(task, example):
    return [option.strip() for option in task.options(example)]


def test_label_words_never_met_in_training_and_are_the_prompts_own(drawn):
    pairs = []
    for example in drawn.task.test:
        words = words_of(drawn.task, example)
        *shown, _ = example.fields["text"].split("\n")
        assert {line.split(" : ")[1] for line in shown} <= set(words)
        (group,) = {NONCE.index(word) // GROUP for word in words}
        assert len(set(words)) == len(words) == 4
        pairs.append((group, *words))
    assert drawn.groups.tolist() == [group for group, *_ in pairs]
    # Of 8 groups, in every order.
    assert np.bincount([group for group, *_ in pairs], minlength=8).min() > 40
    assert len(set(pairs)) > 150


def test_all_prompts_of_a_model_may_have_one_pair(many):
    one = dataclasses.replace(many, one_pair=True)
    for seed, group in ((0, 0), (9, 1)):
        task = draw(one, seed, KIND, 0.25).task
        (words,) = {tuple(words_of(task, example)) for example in task.test}
        assert list(words) == NONCE[GROUP * group : GROUP * (group + 1)]


def test_models_of_other_seeds_get_other_prompts():
    one, other = (draw(SMALL, seed, KIND, NOISE).task for seed in (0, 1))
    assert one.test[0].fields != other.test[0].fields


def test_label_noise_makes_the_ideal_learner_less_sure():
    # A demonstration of a known class, with the right label 3 times of 4.
    known = ideal.Reading((np.array([[1.0, 0.0]]),), np.zeros((1, 1)))
    tasks = [ideal.LanguageTask(0, order, 1.0) for order in ((0, 1), (1, 0))]
    found = ideal.learner(known, np.array([0]), known, tasks, label_noise=0.25)
    np.testing.assert_allclose(found, [[0.75, 0.25]])
    four = ideal.Reading((np.eye(4)[:1],), np.zeros((1, 1)))
    orders = [(0, 1, 2, 3), (1, 0, 2, 3)]
    tasks = [ideal.LanguageTask(0, order, 1.0) for order in orders]
    found = ideal.learner(four, np.array([0]), four, tasks, label_noise=0.3)
    np.testing.assert_allclose(found, [[7 / 8, 1 / 8, 0, 0]])


def test_a_scalar_multiplies_its_matrices_and_no_other():
    method = Scaled(("W_O",), ((0.25, 0.0), (0.5, 1.5)))
    W = np.arange(6.0).reshape(2, 3)
    cut = method.cutter(W, lambda rate: 1, (0, "W_O"))
    np.testing.assert_array_equal(cut(0.5), 1.5 * W)
    np.testing.assert_array_equal(cut(0.25), 0 * W)
    np.testing.assert_array_equal(method.cutter(W, lambda rate: 1, (0, "W_Q"))(0.5), W)
    assert method.fresh is method
    assert method.name == "scaled-W_O-0,1.5"


@pytest.mark.slow
def test_a_scaled_module_is_the_model_with_scaled_weights(model):
    task = draw(SMALL, 0, KIND, NOISE).task
    arm = ARMS["scale"]
    options = {"method": arm.method(SMALL, {}), "at_least_one": True}
    grid = Grid(model, task, [1], ["mlp"], arm.places(SMALL), "test", **options)
    found = np.concatenate([chunk.scores for chunk in grid.stream()], axis=1)
    for place, factor in enumerate(SMALL.factors):
        layers = list(model.params["layers"])
        mlp = layers[1]["mlp"]
        weight = factor * mlp["W_out"]["weight"]
        scaled = {**mlp, "W_out": {**mlp["W_out"], "weight": weight}}
        layers[1] = {**layers[1], "mlp": scaled}
        other = model.replace(params={**model.params, "layers": tuple(layers)})
        plain = Grid(other, task, [0], ["mlp"], (0.0,), "test")
        expected = np.concatenate([chunk.scores for chunk in plain.stream()], axis=1)
        np.testing.assert_allclose(found[place], expected[0], rtol=1e-5, atol=1e-5)


def test_every_search_has_the_same_number_of_settings():
    config = PRESETS["cpu"]
    budgets = {ARMS[name].settings(config) for name in SEARCHED}
    assert len(budgets) == 1
    assert ARMS["algorithm1"].settings(config) == 2 * len(config.rates)
    places = ARMS["temperature"].places(config)
    assert len(set(places)) == len(config.temperatures)
    assert 0 < min(places) < max(places) < 1


def test_the_best_setting_is_chosen_only_if_it_is_better():
    grid = {
        "attn": np.array([[0.5, 0.7], [0.6, 0.5]]),
        "mlp": np.array([[0.4, 0.7], [0.75, 0.75]]),
    }
    layers = {"attn": 1, "mlp": 0}
    best = choose(SMALL, ARMS["svd"], grid, layers, 0.65)
    assert best is not None
    assert (best["layer"], best["module"], best["place"]) == (1, "mlp", 0.5)
    assert best["validation_gain"] == pytest.approx(0.1)
    by_condition = choose(SMALL, ARMS["algorithm1"], grid, layers, 0.65)
    assert by_condition is not None
    assert (by_condition["layer"], by_condition["place"]) == (0, 0.75)
    assert choose(SMALL, ARMS["algorithm1"], grid, layers, 0.7) is None


def made_up(config, gains):
    """Searches of each model in which an arm gains so many test answers."""
    grids = {
        name: {
            module: [[0.5] * len(ARMS[name].places(config))] * 2
            for module in ARMS[name].modules
        }
        for name in SEARCHED
    }
    choice = {
        "layer": 1,
        "module": "attn",
        "place": 0.5,
        "number": 0.5,
        "validation_gain": 0.25,
    }
    return [
        [
            {
                "task": f"{KIND}, label noise {NOISE:g}",
                "validation": 0.6,
                "test": 0.6 + seed / 100,
                "ideal": 0.8,
                "informed": 0.9,
                "by_words": [0.5, 0.6 + seed / 100, 0.7],
                "layers": {"attn": 1, "mlp": 0},
                "grids": grids,
                "arms": {
                    arm: {**choice, "gained": own[seed], "lost": 1}
                    if (own := gains.get(arm))
                    else {"gained": 0, "lost": 0}
                    for arm in ARMS
                },
            }
        ]
        for seed in range(len(config.seeds))
    ]


def test_models_are_the_units_of_the_means():
    config = dataclasses.replace(SMALL, seeds=(0, 1, 2))
    found = made_up(config, {"svd": (3, 5, 4), "scale": (3, 1, 2)})
    rows = {row.arm: row for row in gain_rows(config, found)[ALL]}
    gains = np.array([2, 4, 3]) / config.test
    np.testing.assert_allclose(rows["svd"].test, gains)
    numbers = rows["svd"].numbers(0.95)["test"]
    assert numbers["mean"] == pytest.approx(gains.mean())
    assert numbers["standard_error"] == pytest.approx(gains.std(ddof=1) / 3**0.5)
    assert (rows["svd"].chosen, rows["magnitude"].chosen) == (3, 0)
    # t = 3 / (1 / sqrt 3) with two degrees of freedom, times the seven arms
    t = 3 * 3**0.5
    p = 1 - t / math.sqrt(2 + t**2)
    assert rows["svd"].holm == pytest.approx(7 * p)
    other = beyond(config, list(rows.values()))["svd"]["scale"]
    assert other["mean"] == pytest.approx(2 / config.test)
    curves = rate_curves(config, found)
    np.testing.assert_allclose(curves["svd"]["mean"], [-0.1, -0.1])
    assert "scale" not in curves


def test_the_command_line_reports_what_was_found(tmp_path, monkeypatch):
    place = sys.modules["experiments.headroom.main"]
    found = made_up(SMALL, {"svd": (3, 5), "temperature": (2, 3)})
    fitted = SimpleNamespace(records=[{"loss": [2.0, 1.9]}], timing=Timing())
    monkeypatch.setattr(place, "train", lambda config, run: fitted)
    monkeypatch.setattr(place, "search_all", lambda config, run: found)
    result = main(["--preset", "small", "--output", str(tmp_path)])
    (folder,) = (tmp_path / "headroom").iterdir()
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    for name in ("gains", "rates"):
        assert (folder / f"{name}.png").stat().st_size > 10_000
    assert result["passed"]
    assert result["gains"][ALL]["svd"]["test"]["values"] == [2 / 16, 4 / 16]
    assert result["settings"]["svd"] == result["settings"]["temperature"] == 8
    held = {claim["claim"]: claim["held"] for claim in result["claims"]}
    # Two models cannot tell.
    assert not any(held.values())
    assert len(result["searches"]) == 2 * len(ARMS)
    # Five gained and one lost of 16 prompts
    (words,) = result["accuracy_by_words"].values()
    assert (words["lowest"], words["highest"]) == (0.5, 0.7)
    assert words["values"][1][1] == 0.61
    best = result["searches"][len(ARMS) + list(ARMS).index("svd")]
    assert best["p_value"] == pytest.approx(2 * 7 / 2**6)
    assert best["interval"][0] < best["test_gain"] == 0.25 < best["interval"][1]
    counted = result["beyond_chance"]["svd"]
    assert counted == {"searches": 2, "better": 0, "worse": 0}


@pytest.mark.slow
def test_models_are_trained_as_each_alone():
    together, metrics = jax.jit(make_steps(SMALL))(initial_states(SMALL))
    alone = jax.jit(make_step(SMALL.recipe))
    for place, seed in enumerate(SMALL.seeds):
        one, own = alone(initial_state(SMALL.model(seed)))
        assert metrics["loss"][place] == pytest.approx(float(own["loss"]), rel=1e-5)
        for a, b in zip(
            jax.tree.leaves(together.params), jax.tree.leaves(one.params), strict=True
        ):
            np.testing.assert_allclose(a[place], b, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_random_weights_are_searched_by_every_arm(model):
    found = search(SMALL, model, draw(SMALL, 0, KIND, NOISE))
    assert set(found["arms"]) == set(ARMS)
    for name in SEARCHED:
        for module, grid in found["grids"][name].items():
            assert np.shape(grid) == (2, len(ARMS[name].places(SMALL))), module
    # What keeps every parameter of square matrices keeps every answer.
    assert found["test"] == pytest.approx(0.25, abs=0.3)


@pytest.mark.slow
def test_a_small_run_is_read_back(tmp_path):
    pytest.importorskip("tokenizers")
    result = main(["--preset", "small", "--output", str(tmp_path)])
    (folder,) = (tmp_path / "headroom").iterdir()
    assert (folder / "seed1" / "checkpoint" / "model.safetensors").is_file()
    again = main(["--resume", str(folder)])
    for name in ("gains", "searches", "accuracy"):
        assert again[name] == result[name]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kinds": ("topic",)}, "kinds: expected some of nonce_sentiment"),
        ({"factors": (0.5,)}, "factors: expected 2 for an equal search budget, got 1"),
        ({"temperatures": (0.5,)}, "temperatures: expected 4"),
        ({"rates": (0.0, 0.5)}, "rates: expected ascending rates above 0"),
        ({"noises": (1.0,)}, r"noises: expected numbers in \[0, 1\)"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"top_k": 3}, "top_k: expected at most 2 layers, got 3"),
        ({"level": 1.0}, "level"),
    ],
)
def test_impossible_configs_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Config(**{**vars(SMALL), **changed})
