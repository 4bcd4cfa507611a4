"""The experiment on pruning of pattern models: its measures and a small run."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from experiments import pattern_pruning
from experiments.frame.config import read_config
from experiments.pattern_pruning import (
    AXES,
    CURVES,
    ENTRIES,
    NEURONS,
    ORDERS,
    SIZES,
    SVD,
)
from icltheory import training
from icltheory.layered import forward
from icltheory.patterns import prune_neurons
from icltheory.pruning import Magnitude, Rank, prune

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
close = functools.partial(np.testing.assert_allclose, atol=1e-5)


@pytest.fixture(scope="module")
def ran(small_run):
    """One small run: all of it, and what its parts returned."""
    parts = {}

    def watched(name, function):
        def wrapper(config, *args):
            parts[name], parts["config"] = function(config, *args), config
            return parts[name]

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for name in ("train_ensemble", "train_gpt", "prune", "compare", "prune_gpt"):
            function = getattr(pattern_pruning, name)
            patch.setattr(pattern_pruning, name, watched(name, function))
        found = small_run(pattern_pruning, SMALL)
    parts["config"] = read_config(found[0], pattern_pruning.PRESETS["cpu"])
    return *found, parts


def asked(parts, seed, alphas, prompts):
    """Task, parameters and prompts of one seed, as the experiment draws them."""
    config, trained = parts["config"], parts["train_ensemble"]
    task, params = trained.of_seed(seed)
    key = config.ensemble.keys(pattern_pruning.PROMPTS)[seed]
    draw = jax.jit(pattern_pruning.prompts_of, static_argnums=(0, 3, 4, 5))
    return task, params, draw(config, task, key, alphas, config.draws, prompts)


def hinge(margins):
    return np.maximum(1 - np.asarray(margins), 0)


@pytest.mark.slow
def test_a_small_run_writes_its_numbers_and_pictures(ran):
    folder, result, pictures, _ = ran
    assert pictures == {"neurons", "gpt2", "kept"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert len(result["claims"]) == 9
    # Eight neurons learn little in forty steps, but a rank is a rank.
    assert result["bridge"]["rows"][0]["parameters"] == [24, 72]


@pytest.mark.slow
def test_pruned_neurons_have_the_errors_of_the_pruned_model(ran):
    parts = ran[3]
    config, curves = parts["config"], parts["prune"][CURVES]
    margins_of = jax.jit(lambda w, p: p.z * forward(config.ensemble.model(), w, p))
    for seed in range(2):
        _, params, prompt = asked(parts, seed, config.alphas, config.prompts)
        assert prompt.z.shape == (2, 2, 16)
        for place, rate in enumerate(config.rates):
            for order in ("magnitude", "reverse"):
                cut = prune_neurons(params, rate, order=order)
                margins = np.asarray(margins_of(cut, prompt))
                at = {name: x[seed, place] for name, x in curves[order].items()}
                close(at["hinge"], hinge(margins).mean((1, 2)))
                close(at["error"], (margins <= 0).mean((1, 2)))
    # Nothing pruned: the formula is the error itself, in any order.
    for curve in curves.values():
        close(curve["hinge"][:, 0], curve["counted"][:, 0])


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
    config, gpt, found = (ran[3][x] for x in ("config", "train_gpt", "prune_gpt"))
    assert found[SIZES].shape == (2, 2, 32)
    predict = jax.jit(functools.partial(gpt.module.apply, method="predict"))
    draw = jax.jit(pattern_pruning.prompts_of, static_argnums=(0, 3, 4, 5))
    for seed in range(2):
        params = jax.tree.map(lambda leaf, s=seed: leaf[s], gpt.params)
        key = training.stream_key(config.gpt_seeds[seed], "evaluation")
        prompt = draw(config, gpt.task, key, config.alphas, 2, 8)
        leaves = (prompt.X, prompt.y, prompt.x_query)
        flat = [np.asarray(x).reshape(32, *x.shape[3:]) for x in leaves]
        for place, rate in enumerate(config.gpt_rates):
            for order in ("magnitude", "reverse"):
                cut = cut_by_loop(params, rate, order == "reverse")
                outputs = np.asarray(predict({"params": cut}, *flat))
                margins = outputs.reshape(2, 2, 8) * np.asarray(prompt.z)
                at = {n: x[seed, place] for n, x in found[CURVES][order].items()}
                close(at["hinge"], hinge(margins).mean((1, 2)))
                close(at["error"], (margins <= 0).mean((1, 2)))
    hinges = {order: found[CURVES][order]["hinge"] for order in ORDERS}
    for order in ORDERS:  # nothing pruned
        close(hinges[order][:, 0], hinges["magnitude"][:, 0])
    assert np.ptp(hinges["magnitude"]) > 1e-4


@pytest.mark.slow
def test_methods_keep_as_many_parameters_and_prune_as_they_say(ran):
    parts = ran[3]
    config, bridge = parts["config"], parts["compare"]
    margins_of = jax.jit(lambda w, p: p.z * forward(config.ensemble.model(), w, p))
    rows = bridge["rows"]
    of = {(row["module"], row["method"]): row for row in rows}
    counts = {name: row["parameters"].tolist() for name, row in of.items()}
    for module in ("W_O", "W_V", "W_Q", "W_K", "all"):
        assert counts[module, SVD] == counts[module, ENTRIES] == counts[module, AXES]
    assert counts["W_V", SVD] == [32, 96]  # r (m + n)
    assert counts["W_O", NEURONS] == [16, 64]  # whole rows of 16, of 24 and 72
    for seed in range(2):
        task, params, prompt = asked(parts, seed, (0.8,), config.bridge_prompts)
        R = pattern_pruning.basis_of(task)
        close(R.T @ R, np.eye(task.width))
        close(task.relevant[2] @ R[:8, :8], 2 * np.eye(8)[2])
        close(R[8:, 8], task.label_embedding)
        along, turned = pattern_pruning.in_basis(params, prompt, R)
        close(margins_of(along, turned), margins_of(params, prompt))
        for place, rank in enumerate(config.ranks):
            entries = Magnitude().by_size(params["W_O"])(24 * rank)
            axes = Magnitude().by_size(along["W_K"])(32 * rank)
            pruned = prune(params["W_Q"], Rank(rank))
            for name, method, cut, prompts in (
                ("W_Q", SVD, params | {"W_Q": pruned}, prompt),
                ("W_O", ENTRIES, params | {"W_O": entries}, prompt),
                ("W_K", AXES, along | {"W_K": axes}, turned),
            ):
                expected = hinge(margins_of(cut, prompts)).mean()
                close(of[name, method]["hinge"][seed, place], expected)


def test_claims_of_figures_follow_the_curves():
    seeds = np.array([[0.0], [0.001]])[..., None]
    config = dataclasses.replace(pattern_pruning.PRESETS["cpu"], alphas=(0.8, 1.0))

    def held(small, at_random, larger_alpha, sizes):
        curves = {
            order: dict.fromkeys(("error", "hinge"), seeds + np.stack(both, axis=-1))
            for order, both in {
                "magnitude": (small, larger_alpha),
                "random": (at_random, larger_alpha),
            }.items()
        }
        found = {CURVES: curves, SIZES: np.array(sizes)}
        made = pattern_pruning.figure_claims("GPT-2", config, found, (0.0, 0.1, 0.4))
        return [claim.held for claim in made]

    as_published = np.array([0.007, 0.0057, 0.030]), np.array([0.007, 0.0108, 0.044])
    low, flat = np.array([0.006, 0.006, 0.01]), np.full(3, 0.02)
    assert held(*as_published, low, [[[0.15, 0.17, 0.4]]]) == [True] * 4
    assert held(flat, flat, flat, [[[0.3, 0.35, 0.4]]]) == [False] * 4


def test_the_least_kept_is_behind_the_last_rank_that_harms():
    config = dataclasses.replace(pattern_pruning.PRESETS["cpu"], tolerance=0.1)
    for hinges, expected in (
        ((0.5, 0.0, 0.0), 20),
        ((0.0, 0.5, 0.0), 30),
        ((0.0, 0.0, 0.5), 99),
        ((0.0, 0.09, 0.0), 10),
    ):
        values = np.stack([np.array(hinges), np.zeros(3)])
        row = {"parameters": np.array([10, 20, 30]), "total": 99, "hinge": values}
        found = pattern_pruning.least_kept(config, np.zeros(2), row)
        assert found.tolist() == [expected, 10]


def test_an_answer_that_is_no_number_is_wrong():
    answers = np.array([np.nan, 2.0, -2.0, 2.0])[None, None]
    assert float(pattern_pruning.errors(answers, np.ones((1, 4)))[1][0]) == 0.5
