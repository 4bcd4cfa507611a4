"""Grids of pruned models: every layer, module and rate against plain evaluation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Decoder, prune_model
from icltheory.bridge.evaluation import (
    Grid,
    evaluate,
    evaluate_grid,
    evaluate_naive,
    evaluate_rates,
)
from icltheory.bridge.evaluation._stacks import pruned_stacks
from icltheory.bridge.spectra import Cumulative, Randomised, SingularSystems
from icltheory.linalg import SVD, svd
from icltheory.pruning import Intervention, LowRank, Rank, Whitened
from tests.bridge.evaluation_tasks import choice, classification, tiny
from tests.bridge.tiers import quick

RATES = (0.0, 0.5, 0.75)
# Shapes that the tests share: two batches, the last one filled up.
SHAPES = {"buckets": 1, "batch_size": 4}
TASKS = {
    "label_token": classification(7),
    "average_log_likelihood": choice(4),
    "mean_logit": choice(4, scoring="mean_logit"),
}


@functools.cache
def plainly(family, scoring, place, rate, dtype="float64", shots=None):
    model = tiny(family, dtype=dtype)
    if rate:
        model = prune_model(model, Intervention(*place, rate))
    return evaluate_naive(model, TASKS[scoring], shots=shots)


def check(found, family, place, scoring="label_token", atol=1e-9, **how):
    for rate, fast in zip(RATES, found, strict=True):
        # At rate 0 every place leaves the model as it is.
        plain = plainly(family, scoring, place if rate else None, rate, **how)
        np.testing.assert_allclose(fast.scores, plain.scores, atol=atol, rtol=0)
        np.testing.assert_array_equal(fast.predictions, plain.predictions)
        assert fast.accuracy == plain.accuracy


# The quick tier takes the family with grouped heads, a window and rotations.
SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gptj", "groups"])
def test_every_layer_module_and_rate(family):
    model, task = tiny(family), TASKS["label_token"]
    found = evaluate_grid(model, task, range(3), ("attn", "mlp"), RATES, **SHAPES)
    assert len(found) == 6
    for place, evaluations in found.items():
        check(evaluations, family, place)
    changed = [np.ptp([e.scores for e in found[key]], axis=0).max() for key in found]
    assert min(changed) > 1e-2


@SLOW
def test_layers_of_two_kinds():
    """The pruned layer has a window, the one above none, and rotations of its own."""
    model, task = tiny("mixed"), TASKS["label_token"]
    found = evaluate_rates(model, task, 0, "attn", RATES, **SHAPES)
    check(found, "mixed", (0, "attn"))
    assert np.ptp([one.scores for one in found], axis=0).max() > 1e-2


@SLOW
def test_single_precision():
    model, task = tiny("llama", dtype="float32"), TASKS["label_token"]
    for module in ("attn", "mlp"):
        fast = evaluate_rates(model, task, 1, module, RATES, **SHAPES)
        check(fast, "llama", (1, module), atol=1e-4, dtype="float32")


@pytest.mark.parametrize(
    "scoring", quick(["mean_logit"], ["average_log_likelihood", "mean_logit"])
)
@pytest.mark.parametrize("family", quick(["groups"], ["gptj", "groups"]))
def test_whole_options(family, scoring):
    model, task = tiny(family), TASKS[scoring]
    found = evaluate_grid(model, task, (0, 2), ("attn", "mlp"), RATES, **SHAPES)
    for place, evaluations in found.items():
        check(evaluations, family, place, scoring)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", quick(["all", "W_K"], ["all", "W_Q", "W_K", "W_O", "W_gate"])
)
def test_single_matrices_without_demonstrations(module):
    model, task = tiny("groups"), TASKS["label_token"]
    found = evaluate_rates(model, task, 1, module, RATES, shots=0, **SHAPES)
    check(found, "groups", (1, module), shots=0)


@pytest.mark.slow
def test_a_layer_alone_and_among_others():
    model, task = tiny("groups"), TASKS["label_token"]
    grid = evaluate_grid(model, task, (2, 0, 1), ("mlp",), RATES, **SHAPES)
    assert list(grid) == [(0, "mlp"), (1, "mlp"), (2, "mlp")]
    for layer in range(3):
        alone = evaluate_rates(model, task, layer, "mlp", RATES, **SHAPES)
        for one, other in zip(alone, grid[layer, "mlp"], strict=True):
            np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.slow
def test_rate_zero_is_the_model_itself():
    model, task = tiny("groups"), TASKS["label_token"]
    specs, stacks = pruned_stacks(model, 1, "all", RATES, LowRank(), None)
    for spec, stack in zip(specs, stacks, strict=True):
        group, name, _ = spec.path
        W = model.params["layers"][1][group][name]["weight"]
        np.testing.assert_array_equal(stack[0], W)
        clipped = prune_model(model, "1:all:0.5").params["layers"][1]
        np.testing.assert_array_equal(stack[1], clipped[group][name]["weight"])
    first = evaluate_rates(model, task, 1, "all", RATES, **SHAPES)[0]
    whole = evaluate(model, task, **SHAPES)
    np.testing.assert_allclose(first.scores, whole.scores, atol=1e-10)


@pytest.fixture
def traces(monkeypatch):
    """Counts how often a block is traced."""
    counted, run_block = [], Decoder.run_block

    def counting(self, *args, **kwargs):
        counted.append(1)
        return run_block(self, *args, **kwargs)

    monkeypatch.setattr(Decoder, "run_block", counting)
    return counted


@SLOW
def test_one_program_for_all_rates_and_one_for_all_layers(traces):
    # Sizes of its own, so that nothing is compiled yet.
    model, task = tiny("groups", mlp_width=20, num_layers=5), TASKS["label_token"]

    def traced(layers, rates, module="mlp"):
        before = len(traces)
        evaluate_grid(model, task, layers, (module,), rates, **SHAPES)
        return len(traces) - before

    # The trunk, the pruned block, those above it and the last one, each for the prefix
    # and for the questions.
    assert traced((2,), (0.0, 0.5, 0.75)) == 8
    assert traced((2,), (0.1, 0.2, 0.3)) == 0
    assert traced((0, 1, 2, 3), (0.1, 0.25, 0.6)) == 0
    # Another number of rates is another shape, but not a program for each.
    assert traced((2,), tuple(i / 20 for i in range(16))) == 6
    # A last layer that is pruned is a program of its own.
    assert traced((4,), (0.0, 0.5, 0.75)) == 2


@SLOW
def test_few_programs_for_all_lengths(traces):
    model = tiny("groups", mlp_width=22)
    task = classification(20, 2, longest=7)
    evaluate(model, task, buckets=3, batch_size=4, packed=False)
    # First, middle and last block, each for the prefix and for three lengths of four.
    assert len(traces) == 3 * (1 + 3)
    evaluate(model, task, batch_size=4)
    # Packed, for rows of one length alone; the prefix meets the programs above.
    assert len(traces) == 3 * (1 + 3) + 3


@pytest.mark.slow
def test_chunks_come_as_they_are_ready_and_add_up():
    model, task = tiny("groups"), TASKS["label_token"]
    grid = Grid(model, task, (0, 2), ("attn",), RATES, **SHAPES)
    assert (grid.num_examples, grid.rates) == (7, RATES)
    chunks = grid.stream()
    first = next(chunks)
    assert first.scores.shape == (3, len(first.examples), 3)
    calls = []
    whole = grid.evaluations(lambda *call: calls.append(call))
    assert calls[0] == (0, 14, "")
    assert calls[-1] == (14, 14, "layer 2, attn")
    seen = {key: [] for key in grid.keys}
    for chunk in (first, *chunks):
        key = chunk.layer, chunk.module
        seen[key] += chunk.examples.tolist()
        for found, scores in zip(whole[key], chunk.scores, strict=True):
            np.testing.assert_array_equal(found.scores[chunk.examples], scores)
    assert all(sorted(numbers) == list(range(7)) for numbers in seen.values())


@pytest.mark.slow
def test_some_examples_at_some_rates():
    model, task = tiny("groups"), TASKS["label_token"]
    grid = Grid(model, task, (1,), ("mlp",), (0.0, 0.5, 0.6, 0.8), **SHAPES)
    whole = np.stack([e.scores for e in grid.evaluations()[1, "mlp"]])
    for rates, examples in (((3,), [5, 2]), ((0, 2, 3), range(7)), ((3, 1), [6])):
        seen = []
        for chunk in grid.stream(examples, rates):
            seen += chunk.examples.tolist()
            expected = whole[np.ix_(rates, chunk.examples)]
            np.testing.assert_allclose(chunk.scores, expected, rtol=0, atol=1e-9)
        assert sorted(seen) == sorted(examples)
    assert not list(grid.stream([], (0, 1)))


def test_singular_systems_from_elsewhere():
    asked = []

    class Systems:
        def of(self, W):
            asked.append(W.shape)
            parts = svd(W)
            return parts.U, parts.s, parts.Vt

    model, task = tiny("groups"), TASKS["label_token"]
    options = {"systems": Systems(), **SHAPES}
    ours = evaluate_rates(model, task, 1, "mlp", RATES, **options)
    assert asked == [(24, 16), (24, 16), (16, 24)]
    own = evaluate_rates(model, task, 1, "mlp", RATES, **SHAPES)
    for one, other in zip(ours, own, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-10)


@pytest.mark.parametrize("method", [LowRank(), Whitened()])
def test_a_store_with_too_few_singular_values_is_refused(method, tmp_path):
    model, systems = tiny("groups"), SingularSystems(tmp_path, Randomised(4))
    cut = (0.0, 0.5, Rank(3))
    with pytest.raises(ValueError, match="^systems: expected at least 8 singular v"):
        pruned_stacks(model, 1, "W_Q", cut, method, systems)
    _, (stack,) = pruned_stacks(model, 1, "W_Q", cut[::2], method, systems)
    assert np.linalg.matrix_rank(stack[1], 1e-5) == 3


@pytest.mark.slow
def test_half_precision_is_decomposed_in_single():
    model = tiny("groups")
    half = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf, jnp.bfloat16)), model.params
    )
    model = model.replace(params=half)
    _, (stack, *_) = pruned_stacks(model, 0, "mlp", (0.0, 0.5), LowRank(), None)
    assert stack.dtype == jnp.bfloat16
    clipped = prune_model(model, "0:mlp:0.5").params["layers"][0]["mlp"]["W_in"]
    np.testing.assert_array_equal(stack[1], clipped["weight"])


@pytest.mark.slow
def test_a_rank_of_at_least_one_is_that_of_prune_model():
    model = tiny("groups", dtype="float32")
    specs, stacks = pruned_stacks(
        model, 1, "mlp", (0.99,), LowRank(at_least_one=True), None
    )
    clipped = prune_model(model, "1:mlp:0.99", method=LowRank(at_least_one=True))
    for spec, stack in zip(specs, stacks, strict=True):
        group, name, _ = spec.path
        W = clipped.params["layers"][1][group][name]["weight"]
        assert np.linalg.matrix_rank(W) == 1
        np.testing.assert_array_equal(stack[0], W)
    with pytest.raises(ValueError, match="rank >= 1 of 16"):
        prune_model(model, "1:mlp:0.99")


@pytest.mark.slow
def test_matrices_are_clipped_in_full_precision_whatever_the_default(monkeypatch):
    seen, truncate = [], SVD.truncate

    def noting(self, rank):
        seen.append(jax.config.jax_default_matmul_precision)
        return truncate(self, rank)

    monkeypatch.setattr(SVD, "truncate", noting)
    model = tiny("groups", dtype="float32")
    with jax.default_matmul_precision("bfloat16"):
        prune_model(model, "1:W_Q:0.5")
        for method in (LowRank(), Cumulative((0.5,))):
            pruned_stacks(model, 1, "W_Q", (0.5,), method, None)
    assert seen == ["highest"] * 3


def test_wrong_grids():
    model, task = tiny("groups"), TASKS["label_token"]
    for match, args in {
        "rates: expected at least one": ((0,), ("mlp",), ()),
        "rates: expected numbers in": ((0,), ("mlp",), (1.0,)),
        "rank >= 1 of 16": ((0,), ("mlp",), (0.99,)),
        "layer: expected 0 to 2": ((3,), ("mlp",), (0.0,)),
        "layers: expected at least one, got none": ((), ("mlp",), (0.0,)),
        "modules: expected at least one, got none": ((0,), (), (0.0,)),
        "module: expected one of": ((0,), ("moe",), (0.0,)),
    }.items():
        with pytest.raises(ValueError, match=match):
            evaluate_grid(model, task, *args)
    options = {"method": LowRank(at_least_one=True), **SHAPES}
    assert evaluate_rates(model, task, 0, "mlp", (0.99,), **options)
    layers = list(model.params["layers"])
    W_in = np.array(layers[1]["mlp"]["W_in"]["weight"])
    W_in[0, 0] = np.nan
    W_in = {"weight": jnp.asarray(W_in)}
    layers[1] = layers[1] | {"mlp": layers[1]["mlp"] | {"W_in": W_in}}
    broken = model.replace(params=model.params | {"layers": tuple(layers)})
    with pytest.raises(ValueError, match="W_in: expected finite entries"):
        evaluate_rates(broken, task, 1, "mlp", (0.5,))


def test_a_layer_that_is_no_number_is_named(as_for_a_user):
    model, task = tiny("groups"), TASKS["label_token"]
    with pytest.raises(ValueError, match="^layer: expected .*None"):
        evaluate_grid(model, task, [None], ["mlp"], [0.5])
    with pytest.raises(ValueError, match="^layer: expected .*None"):
        evaluate_rates(model, task, None, "mlp", [0.5])
