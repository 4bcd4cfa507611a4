"""The experiment on pruning of pattern models: its measures, a small run, pictures."""

import dataclasses
import functools
import json
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments import pattern_pruning
from experiments._frame.stored import read_config
from experiments._patterns import PatternEnsemble, TrainedEnsemble
from experiments._patterns.gpt2 import Gpt
from experiments.pattern_pruning.basis import basis_of, in_basis
from experiments.pattern_pruning.bridge import (
    AXES,
    ENTRIES,
    NEURONS,
    SVD,
    Bridge,
    Kept,
)
from experiments.pattern_pruning.drawing import (
    PrunedLine,
    errors_against_kept,
    errors_against_pruned,
    spectra_after_training,
)
from experiments.pattern_pruning.gpt2 import gpt_keys, gpt_prompts, without
from experiments.pattern_pruning.gpt2_report import gap_ratio, gpt_claims
from experiments.pattern_pruning.prompts import PROMPTS, errors, prompts_of
from experiments.pattern_pruning.summary import interval, least_kept
from icltheory.layered import forward
from icltheory.patterns import prune_neurons
from icltheory.pruning import clip, magnitude_prune

ENSEMBLE = PatternEnsemble(
    num_relevant=4,
    num_irrelevant=4,
    num_shifted=3,
    shifts=(1, 2),
    num_neurons=8,
    attention_scale=0.3,
    neuron_scale=0.1,
    steps=40,
    batch_size=16,
    num_examples=8,
    record_every=40,
    seeds=(0, 3),
)
CONFIG = pattern_pruning.Config(
    ENSEMBLE,
    rates=(0.0, 0.25, 0.5),
    ranks=(1, 3),
    draws=2,
    prompts=16,
    bridge_prompts=8,
    alphas=(0.8, 1.0),
    num_examples=8,
    random_orders=2,
    gpt=Gpt(
        8,
        2,
        2,
        0.5,
        4,
        4,
        dataclasses.replace(Gpt().optimizer, warmup_steps=0),
        chunk_steps=2,
    ),
    gpt_seeds=(0, 3),
    gpt_rates=(0.0, 0.1, 0.5),
    gpt_random_orders=2,
    gpt_draws=2,
    gpt_prompts=8,
)
SMALL = """
    --preset cpu --ensemble.num-relevant 4 --ensemble.num-irrelevant 4
    --ensemble.num-shifted 3 --ensemble.shifts 1 2 --ensemble.num-neurons 8
    --ensemble.attention-scale 0.3 --ensemble.neuron-scale 0.1 --ensemble.steps 40
    --ensemble.record-every 40 --ensemble.batch-size 16 --ensemble.num-examples 8
    --ensemble.seeds 0 3 --rates 0 0.25 0.5 --ranks 1 3 --draws 2 --prompts 16
    --bridge-prompts 8 --alphas 0.8 1 --num-examples 8 --random-orders 2
    --gpt.width 8 --gpt.num-layers 2 --gpt.num-heads 2 --gpt.init-std 0.5 --gpt.steps 4
    --gpt.batch-size 4 --gpt.optimizer.warmup-steps 0 --gpt.chunk-steps 2
    --gpt-seeds 0 3 --gpt-rates 0 0.1 0.5 --gpt-random-orders 2
    --gpt-draws 2 --gpt-prompts 8
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One small run: its folder, its result, and what its parts returned."""
    folder, parts = tmp_path_factory.mktemp("runs"), {}
    main = sys.modules["experiments.pattern_pruning.main"]

    def watched(name):
        function = getattr(main, name)

        def wrapper(*args):
            parts[name] = function(*args)
            return parts[name]

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for name in ("train_ensemble", "prune", "compare", "train_gpt", "prune_gpt"):
            patch.setattr(main, name, watched(name))
        result = pattern_pruning.main([*SMALL.split(), "--output", str(folder)])
    (run,) = (folder / "pattern_pruning").iterdir()
    return run, result, parts


@pytest.fixture(scope="module")
def trained(ran) -> TrainedEnsemble:
    return ran[2]["train_ensemble"]


def asked(trained, seed, alphas, prompts):
    """Task, parameters and prompts of one seed, as the experiment draws them."""
    task, params = trained.of_seed(seed)
    key = ENSEMBLE.keys(PROMPTS)[seed]
    return task, params, ask(task, key, alphas, prompts)


@functools.partial(jax.jit, static_argnums=(2, 3))
def ask(task, key, alphas, prompts):
    return prompts_of(CONFIG, task, key, alphas, prompts)


@jax.jit
def margins_of(params, prompt):
    return prompt.z * forward(ENSEMBLE.model(), params, prompt)


def hinge(margins):
    return np.maximum(1 - np.asarray(margins), 0)


@pytest.mark.slow
def test_pruned_neurons_have_the_errors_of_the_pruned_model(ran, trained):
    found = ran[2]["prune"]
    for seed in range(2):
        _, params, prompt = asked(trained, seed, 2, CONFIG.prompts)
        assert prompt.z.shape == (3, 2, 16)
        for place, rate in enumerate(CONFIG.rates):
            for order in ("magnitude", "reverse"):
                cut = prune_neurons(params, rate, order=order)
                margins = np.asarray(margins_of(cut, prompt))
                curve = found.curves[order]
                np.testing.assert_allclose(
                    curve.hinge[seed, place], hinge(margins).mean((1, 2)), atol=1e-5
                )
                np.testing.assert_allclose(
                    curve.error[seed, place], (margins <= 0).mean((1, 2)), atol=1e-6
                )
    # Nothing pruned: the formulas are the error itself, in any order.
    for curve in found.curves.values():
        np.testing.assert_allclose(curve.hinge[:, 0], curve.counted[:, 0], atol=1e-6)
        np.testing.assert_allclose(curve.hinge[:, 0], curve.weighed[:, 0], atol=1e-6)


def cut_by_loop(params, rate, largest_first):
    """Zeroes rows and biases of a GPT-2, one neuron at a time."""
    params = jax.tree.map(np.array, params)
    for layer in range(2):
        into = params[f"block_{layer}"]["mlp_in"]
        norms = [np.sqrt(sum(w**2 for w in column)) for column in into["kernel"].T]
        order = sorted(range(32), key=lambda i: norms[i], reverse=largest_first)
        for i in order[: round(32 * rate)]:
            into["kernel"][:, i] = 0
            into["bias"][i] = 0
    return params


@pytest.mark.slow
def test_pruned_gpt2_has_the_errors_of_a_loop_over_its_rows(ran):
    gpt, found = ran[2]["train_gpt"], ran[2]["prune_gpt"]
    assert found.sizes.shape == (2, 2, 32)
    predict = jax.jit(functools.partial(gpt.module.apply, method="predict"))
    keys, draw = gpt_keys(CONFIG), jax.jit(lambda key: gpt_prompts(CONFIG, gpt, key))
    for seed in range(2):
        params = jax.tree.map(lambda leaf, s=seed: leaf[s], gpt.params)
        prompt = draw(keys[seed])
        assert prompt.z.shape == (3, 2, 8)
        flat = [np.asarray(x).reshape(48, *x.shape[3:]) for x in (prompt.X, prompt.y)]
        asked_for = *flat, np.asarray(prompt.x_query).reshape(48, -1)
        kernel = np.asarray(params["block_1"]["mlp_in"]["kernel"])
        norms = np.sort(np.sqrt((kernel**2).sum(0)))
        np.testing.assert_allclose(found.sizes[seed, 1], norms, rtol=1e-5)
        for place, rate in enumerate(CONFIG.gpt_rates):
            for order in ("magnitude", "reverse"):
                cut = cut_by_loop(params, rate, order == "reverse")
                outputs = np.asarray(predict({"params": cut}, *asked_for))
                margins = outputs.reshape(3, 2, 8) * np.asarray(prompt.z)
                losses, wrong = hinge(margins).mean((1, 2)), (margins <= 0).mean((1, 2))
                close = functools.partial(np.testing.assert_allclose, atol=1e-5)
                close(found.hinge[order][seed, place], losses[1])
                close(found.error[order][seed, place], wrong[1])
                if order == "magnitude":
                    close(found.test_hinge[seed, place], losses)
                    close(found.test_error[seed, place], wrong)
    for order in ("reverse", "random"):  # nothing pruned
        np.testing.assert_allclose(
            found.hinge[order][:, 0], found.hinge["magnitude"][:, 0], rtol=1e-5
        )
    assert np.ptp(found.hinge["magnitude"]) > 1e-4


@pytest.mark.slow
def test_a_pruned_neuron_of_gpt2_sends_nothing(ran):
    gpt = ran[2]["train_gpt"]
    params = jax.tree.map(lambda leaf: leaf[0] + 0.1, gpt.params)
    kept = np.arange(64).reshape(2, 32) % 3 > 0
    into = without(params, kept)["block_1"]["mlp_in"]
    h = np.linspace(-2, 2, 40).reshape(5, 8)
    sent = np.asarray(jax.nn.gelu(h @ into["kernel"] + into["bias"][None]))
    np.testing.assert_array_equal(sent[:, ~kept[1]], 0)
    assert np.all(np.abs(sent[:, kept[1]]).max(0) > 0)
    whole = without(params, kept | True)
    jax.tree.map(np.testing.assert_array_equal, whole, params)


def test_claims_of_gpt2_follow_the_curves():
    seeds = np.array([[0.0], [0.001]])

    def held(small, at_random, alphas, sizes):
        error = {"magnitude": seeds + small, "random": seeds + at_random}
        tests = seeds[..., None] + np.stack([small, small, alphas], axis=-1)
        curves = SimpleNamespace(
            error=error, hinge=error, test_error=tests, sizes=np.array(sizes)
        )
        config = dataclasses.replace(CONFIG, gpt_rates=(0.0, 0.1, 0.4))
        return [claim.held for claim in gpt_claims(config, curves)]

    as_published = np.array([0.007, 0.0057, 0.030]), np.array([0.007, 0.0108, 0.044])
    low = np.array([0.006, 0.006, 0.01])
    assert held(*as_published, low, [[[0.15, 0.17, 0.4]]]) == [True] * 6
    flat = np.full(3, 0.02)
    assert held(flat, flat, flat, [[[0.3, 0.35, 0.4]]]) == [False] * 6
    assert gap_ratio(np.array([1.0, 2.0, 3.0])) == 2


@pytest.mark.slow
def test_methods_keep_as_many_parameters_and_prune_as_they_say(ran, trained):
    bridge = ran[2]["compare"]
    counts = {(c.module, c.method): c.parameters.tolist() for c in bridge.curves}
    for module in ("W_O", "W_V", "W_Q", "W_K", "all"):
        assert counts[module, SVD] == counts[module, ENTRIES] == counts[module, AXES]
    assert counts["W_V", SVD] == [32, 96]  # r (m + n)
    assert counts["W_O", NEURONS] == [16, 64]  # whole rows of 16, of 24 and 72

    def check(curve, place, seed, params, prompt):
        expected = hinge(margins_of(params, prompt)).mean((1, 2))
        np.testing.assert_allclose(curve.hinge[seed, place], expected, atol=1e-5)

    for seed in range(2):
        task, params, prompt = asked(trained, seed, 1, CONFIG.bridge_prompts)
        for place, rank in enumerate(CONFIG.ranks):
            cut = params | {"W_Q": clip(params["W_Q"], rank=rank)}
            check(bridge.of("W_Q", SVD), place, seed, cut, prompt)
            cut = params | {"W_O": magnitude_prune(params["W_O"], kept=24 * rank)}
            check(bridge.of("W_O", ENTRIES), place, seed, cut, prompt)
            along, turned = in_basis(params, prompt, basis_of(task))
            cut = along | {"W_K": magnitude_prune(along["W_K"], kept=32 * rank)}
            check(bridge.of("W_K", AXES), place, seed, cut, turned)


@pytest.mark.slow
def test_the_basis_of_the_patterns_is_orthogonal_and_changes_no_output(trained):
    task, params, prompt = asked(trained, 1, 1, CONFIG.bridge_prompts)
    R = basis_of(task)
    np.testing.assert_allclose(R.T @ R, np.eye(task.width), atol=1e-5)
    np.testing.assert_allclose(
        task.relevant[2] @ R[:8, :8], 2 * np.eye(8)[2], atol=1e-5
    )
    np.testing.assert_allclose(R[8:, 8], task.label_embedding, atol=1e-6)
    same = margins_of(*in_basis(params, prompt, R))
    np.testing.assert_allclose(same, margins_of(params, prompt), atol=1e-5)


def test_the_least_kept_is_behind_the_last_rank_that_harms():
    def kept(*hinges):
        values = np.stack([np.array(hinges), np.zeros(3)])[..., None] * np.ones(2)
        return Kept("W_O", SVD, np.array([10, 20, 30]), 99, values, values)

    config = dataclasses.replace(CONFIG, tolerance=0.1)
    bridge = Bridge((), np.zeros((2, 2)), np.zeros((2, 2)), {})
    for hinges, expected in (
        ((0.5, 0.0, 0.0), 20),
        ((0.0, 0.5, 0.0), 30),
        ((0.0, 0.0, 0.5), 99),
        ((0.0, 0.09, 0.0), 10),
    ):
        found = least_kept(config, bridge, kept(*hinges), 1)
        assert found.tolist() == [expected, 10]


def test_an_answer_that_is_no_number_is_wrong():
    answers = np.array([np.nan, 2.0, -2.0, 2.0])[None, None]
    assert float(errors(answers, np.ones((1, 4)))[1][0]) == 0.5


def test_the_interval_is_students():
    found = interval([[1.0], [2.0], [3.0]])
    assert found.high[0] - 2 == pytest.approx(4.302653 / 3**0.5)


@pytest.mark.slow
def test_a_small_run_writes_its_numbers_and_pictures(ran):
    folder, result, _ = ran
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    assert {p.name for p in folder.glob("*.png")} == {
        "neurons.png",
        "gpt2.png",
        "gpt2_fractions.png",
        "kept.png",
        "kept_in_domain.png",
        "kept_errors.png",
        "kept_errors_in_domain.png",
        "spectra.png",
    }
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert len(result["claims"]) == 20
    assert read_config(folder, CONFIG) == CONFIG
    # Eight neurons learn little in forty steps, but a rank is a rank.
    assert result["bridge"]["curves"][0]["parameters"] == [24, 72]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--coefficient-sum 1.5", "sums: expected M1' S_1^2 <= M1"),
        ("--rates 0.1 0.2", "rates: expected 0 and then ascending rates below 1"),
        ("--rates 0 0.5 0.2", "rates: expected 0 and then ascending rates below 1"),
        ("--rates 0 1", "rates: expected 0 and then ascending rates below 1"),
        ("--ranks 2 1", "ranks: expected ascending ranks"),
        ("--ranks 0 1", "ranks: expected r (m + n) <= m n in every matrix"),
        ("--ranks 1 31", "ranks: expected r (m + n) <= m n in every matrix"),
        ("--alphas 0.8 1.2", "alphas: expected at least one value, each in (0, 1]"),
        (
            "--gpt-rates 0.1 0.2",
            "gpt_rates: expected 0 and then ascending rates below 1",
        ),
        ("--gpt-seeds 1", "gpt_seeds: expected at least two seeds"),
        ("--gpt-draws 0", "gpt_draws: expected at least 1, got 0"),
        ("--draws 0", "draws: expected at least 1, got 0"),
        ("--tolerance 0", "tolerance: expected a number > 0"),
        ("--ensemble.seeds 1", "ensemble.seeds: expected at least two seeds"),
        ("--ensemble.shifts 1 2 3 4 5", "ensemble.shifts: expected fewer than 5"),
    ],
)
def test_impossible_configs_are_refused_before_anything_is_written(
    change, message, refused
):
    refused(pattern_pruning.main, change.split(), message)


def test_pictures_show_their_numbers():
    line = PrunedLine([0.0, 0.5], [0.1, 0.4], [0.0, 0.3], [0.2, 0.5], 1)
    sizes = np.array([[0.1, 0.9, 1.0], [0.2, 0.3, 1.0]])
    figure = errors_against_pruned({("one", "hinge"): {"a": line}}, "title", sizes)
    norms, panel = figure.axes[:2]
    assert norms.get_title() == "1 to 2 of 3 neurons are small (rings)"
    np.testing.assert_array_equal(panel.get_lines()[0].get_ydata(), [0.1, 0.4])
    assert [text.get_text() for text in panel.texts] == ["a"]
    read = line._replace(mean=[0.0, -0.1], style="--", kind="published")
    figure = errors_against_pruned({("b", "d"): {"a": line, "_a": read}}, "t")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["published"]
    assert figure.axes[0].get_ylim()[0] < -0.1
    figure = errors_against_kept({"W": {"a": line}}, "title", "hinge")
    assert figure.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a"]
    figure = spectra_after_training({"W": [[3.0, 2.0, 1e-9]]}, {"W": 2}, "title")
    assert len(figure.axes[0].get_lines()[0].get_ydata()) == 2  # rounding left out
