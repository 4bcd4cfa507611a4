"""Pruned models in one pass against plain evaluation, and what is kept of it."""

import dataclasses
import functools
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Decoder, Evaluator, evaluate, evaluate_naive, prune_model
from icltheory.bridge import evaluator as evaluator_module
from icltheory.bridge.evaluation._split import SplitEvaluator
from icltheory.bridge.evaluator import digest_of, method_name
from icltheory.bridge.methods import Cumulative, RandomVectors
from icltheory.bridge.pruning import pruned_stacks
from icltheory.bridge.sharding import leaf_at
from icltheory.bridge.spectra import Exact, Randomised, SingularSystems
from icltheory.linalg import SVD, svd
from icltheory.pruning import Intervention, LowRank, Magnitude, Rank, Whitened
from tests.bridge.evaluation_tasks import choice, classification, tiny
from tests.bridge.test_evaluation import with_nan
from tests.bridge.tiers import quick
from tests.raising import raises

RATES = (0.0, 0.5, 0.75)
SIZE = {"batch_size": 4}  # two batches, the last one filled up
TASKS = {
    "label_token": classification(7),
    "average_log_likelihood": choice(4),
    "mean_logit": choice(4, scoring="mean_logit"),
}


@functools.cache
def plainly(family, scoring, models, shots):
    model = tiny(family)
    pruned = prune_model(model, models) if models else model
    return evaluate_naive(pruned, TASKS[scoring], shots=shots)


def check(found, family, models, scoring="label_token", shots=None):
    for one, fast in zip(models, found, strict=True):
        strong = one if one and not str(one).endswith(":0") else ()
        plain = plainly(family, scoring, strong, shots)
        np.testing.assert_allclose(fast.scores, plain.scores, atol=1e-9, rtol=0)
        np.testing.assert_array_equal(fast.predictions, plain.predictions)
        assert fast.accuracy == plain.accuracy


def every(layers, modules, rates=RATES):
    return [Intervention(*one) for one in itertools.product(layers, modules, rates)]


ALL, BOTH = range(3), ("attn", "mlp")
SINGLE = ("all", "W_Q", "W_K", "W_O", "W_gate")
# Families, scorings, layers, modules and numbers of demonstrations.
CASES = [
    ("groups", "mean_logit", (0, 2), BOTH, None),
    ("gptj", "mean_logit", (0, 2), BOTH, None),
    ("groups", "average_log_likelihood", (0, 2), BOTH, None),
    ("gptj", "average_log_likelihood", (0, 2), BOTH, None),
    ("groups", "label_token", ALL, BOTH, None),
    ("gptj", "label_token", ALL, BOTH, None),
    ("groups", "label_token", (1,), SINGLE, 0),
    ("experts", "label_token", (1,), ("expert_1", "mlp"), None),
    # The pruned layer has a window, the one above none, and rotations of its own.
    ("mixed", "label_token", (0,), ("attn",), None),
]


@pytest.mark.parametrize("case", quick(CASES[:1], CASES))
def test_pruned_models_score_as_in_plain_evaluation(case):
    family, scoring, layers, modules, shots = case
    models = every(layers, modules)
    found = Evaluator(tiny(family), TASKS[scoring], shots, **SIZE)
    rows = found.evaluate("validation", models)
    check(rows, family, models, scoring, shots)
    assert np.ptp([row.scores for row in rows], axis=0).max() > 1e-2
    # The unpruned model is one of them, whatever the place of a rate of 0.
    pruned = sum(model.strength > 0 for model in models)
    assert len(found.answers) == len(TASKS[scoring].validation) * (1 + pruned)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**31, 1])
def test_compositions_the_ends_and_ranks(size, monkeypatch):
    """Some share a base, some change the embeddings or the head, in any order."""
    monkeypatch.setattr(evaluator_module, "_MOST_BYTES", size)
    models = [
        ("2:mlp:0.5",),
        (),
        ("0:W_V:0.75", "1:attn:rank=3"),
        ("0:W_V:0.75", "1:attn:0.5"),
        ("0:W_V:0.75",),
        ("1:W_Q,W_in:rank=3", "head:rank=5"),
        ("embeddings:0.5",),
    ]
    found = Evaluator(tiny("groups"), TASKS["label_token"], **SIZE)
    check(found.evaluate("validation", models), "groups", models)
    assert len(found.answers) == 7 * len(models)
    turned = found.scores("validation", [["1:attn:0.5", "0:W_V:0.75"]])
    assert len(found.answers) == 7 * len(models)  # the same composition
    again = found.scores("validation", ["0:W_V:0.75 1:attn:0.5", ""])
    assert len(found.answers) == 7 * len(models)
    every = found.scores("validation", models)
    for one in (turned[0], again[0]):
        np.testing.assert_array_equal(one, every[3])
    np.testing.assert_array_equal(again[1], every[1])


@pytest.fixture
def traces(monkeypatch):
    """Counts how often a block is traced."""
    counted, run_block = [], Decoder.run_block

    def counting(self, *args, **kwargs):
        counted.append(1)
        return run_block(self, *args, **kwargs)

    monkeypatch.setattr(Decoder, "run_block", counting)
    return counted


@pytest.mark.slow
def test_one_program_for_all_rates_and_one_for_all_layers(traces):
    # Sizes of its own, so that nothing is compiled yet.
    model, task = tiny("groups", mlp_width=20, num_layers=5), TASKS["label_token"]

    def traced(layers, rates):
        before = len(traces)
        evaluator = Evaluator(model, task, **SIZE)
        evaluator.scores("validation", every(layers, ["mlp"], rates))
        return len(traces) - before

    # The trunk, the pruned block, those above it and the last one, each for the prefix
    # and for the questions.
    assert traced((2,), (0.25, 0.5, 0.75)) == 8
    assert traced((2,), (0.1, 0.2, 0.3)) == 0
    assert traced((0, 1, 2, 3), (0.1, 0.25, 0.6)) == 0
    assert traced((2,), (0.0, 0.25, 0.5)) == 0  # the model itself is no other program
    # Another number of rates is another shape, but not a program for each.
    assert traced((2,), tuple(i / 20 for i in range(1, 16))) == 6
    # A last layer that is pruned is a program of its own.
    assert traced((4,), (0.25, 0.5, 0.75)) == 2


def test_singular_systems_from_elsewhere_and_each_matrix_once():
    asked = []

    class Systems:
        def of(self, W):
            asked.append(W.shape)
            parts = svd(W)
            return parts.U, parts.s, parts.Vt

    model, models = tiny("groups"), every([1], ["mlp"])
    task = TASKS["label_token"]
    task = dataclasses.replace(task, test=task.validation[:2])
    found = Evaluator(model, task, systems=Systems(), **SIZE)
    check(found.evaluate("validation", models), "groups", models)
    # A search that tests its choice decomposes nothing again.
    found.scores("test", ["1:mlp:0.5"])
    assert asked == [(24, 16), (24, 16), (16, 24)]


@pytest.mark.parametrize("method", [LowRank(), Whitened()])
def test_a_store_with_too_few_singular_values_is_refused(method, tmp_path):
    model, systems = tiny("groups"), SingularSystems(tmp_path, Randomised(4))
    with pytest.raises(ValueError, match="^systems: expected at least 8 singular v"):
        pruned_stacks(model, (1, "W_Q"), (0.0, 0.5, Rank(3)), method, systems)
    cut = (0.0, Rank(3))
    _, (stack,) = pruned_stacks(model, (1, "W_Q"), cut, method, systems)
    assert np.linalg.matrix_rank(stack[1], 1e-5) == 3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_stacks_are_the_matrices_of_prune_model(dtype):
    model, method = tiny("groups"), LowRank(at_least_one=True)
    cast = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, dtype)), model.params)
    model = model.replace(params=cast)
    for rates in ((0.0, 0.5), (0.99,)):
        specs, stacks = pruned_stacks(model, (1, "all"), rates, method)
        pruned = prune_model(model, Intervention(1, "all", rates[-1]), method=method)
        for spec, stack in zip(specs, stacks, strict=True):
            at = ("layers", 1, *spec.path)
            W, old = (leaf_at(one.params, at) for one in (pruned, model))
            assert stack.dtype == dtype
            np.testing.assert_array_equal(stack[-1], W)
            if rates[0] == 0:
                np.testing.assert_array_equal(stack[0], old)


@pytest.mark.slow
def test_matrices_are_pruned_in_full_precision_whatever_the_default(monkeypatch):
    seen, truncate = [], SVD.truncate

    def noting(self, rank):
        seen.append(jax.config.jax_default_matmul_precision)
        return truncate(self, rank)

    monkeypatch.setattr(SVD, "truncate", noting)
    model = tiny("groups", dtype="float32")
    with jax.default_matmul_precision("bfloat16"):
        prune_model(model, "1:W_Q:0.5")
        for method in (LowRank(), Cumulative((0.5,))):
            pruned_stacks(model, (1, "W_Q"), (0.5,), method)
    assert seen == ["highest"] * 3


def test_only_what_is_missing_is_computed(tmp_path, monkeypatch):
    model, task = tiny("groups"), TASKS["label_token"]
    path, calls = tmp_path / "answers.sqlite", []
    whole = Evaluator(model, task).scores("validation", every([0, 1], ["mlp"]))
    how = {"answers": path, "progress": lambda *call: calls.append(call)}
    found = Evaluator(model, task, **how, **SIZE)
    some = found.scores("validation", every([1], ["mlp"], (0.75,)), [5, 2])
    np.testing.assert_allclose(some[0], whole[-1][[5, 2]], atol=1e-9)
    assert len(found.answers) == 2
    found.scores("validation", every([1], ["mlp"], (0.5, 0.75)), [2, 3])
    assert len(found.answers) == 5
    calls.clear()
    again = Evaluator(model, task, **how, **SIZE)
    scores = again.scores("validation", every([0, 1], ["mlp"]))
    np.testing.assert_allclose(scores, whole, atol=1e-9)
    assert len(again.answers) == 5 * 7
    assert calls[0] == (0, 5 * 7 - 5, "")
    assert calls[-1][:2] == (30, 30)
    assert {part for _, _, part in calls[1:]} == {
        f"validation, {name}" for name in ("mlp of layer 0", "mlp of layer 1")
    }
    monkeypatch.setattr(SplitEvaluator, "stream", None)
    third = Evaluator(model, task, answers=path)
    again = third.scores("validation", every([0, 1], ["mlp"]))
    np.testing.assert_array_equal(again, scores)
    for other in (prune_model(model, "0:mlp:0.5"), tiny("groups", dtype="float32")):
        with pytest.raises(ValueError, match="config.weights is"):
            Evaluator(other, task, answers=path)


def test_answers_of_other_prompts_methods_and_systems_are_kept_apart(tmp_path):
    task = with_draw = TASKS["label_token"]
    assert digest_of(task) == digest_of(dataclasses.replace(task, sources=("here",)))
    with_draw = task.with_demonstrations(task.demonstrations[::-1])
    assert digest_of(task) != digest_of(with_draw)
    stores = [
        SingularSystems(tmp_path / str(n), method)
        for n, method in enumerate((None, Exact("float64"), Randomised(4)))
    ]
    names = [method_name(LowRank(), store) for store in (None, *stores)]
    assert names == ["svd", "svd", "svd", "svd/randomised-r4-i2-s0"]
    assert method_name(Magnitude(), stores[2]) == "magnitude"
    assert method_name(LowRank(at_least_one=True)) == "svd+1"
    assert method_name(Magnitude(rule="ceil")) == "magnitude-ceil"
    assert method_name(RandomVectors(2, at_least_one=True)) == "random-vectors-s2+1"
    found = Evaluator(tiny("groups"), task, 2, systems=stores[2])
    assert found.key == {
        "task": "toy", "digest": digest_of(task), "shots": 2, "method": names[-1],
    }  # fmt: skip


def test_a_rate_passes_through_few_modules():
    """CONTRIBUTING lists them; two more (config and measure) are the experiment's."""
    met = set()

    def carries(value, depth=3):
        if isinstance(value, tuple | list | dict) and depth:
            return any(carries(one, depth - 1) for one in list(value)[:20])
        value = (
            vars(value).get("strength") if isinstance(value, Intervention) else value
        )
        return isinstance(value, str | float) and "0.3725" in str(value)

    def follow(frame, event, _):
        if event == "call" and any(map(carries, frame.f_locals.values())):
            met.add(frame.f_globals.get("__name__", ""))

    found = Evaluator(tiny("groups"), TASKS["label_token"], **SIZE)
    sys.setprofile(follow)
    try:
        found.scores("validation", ["1:mlp:0.3725"])
    finally:
        sys.setprofile(None)
    path = {"bridge.evaluator", "bridge.answers", "bridge.pruning"}
    path |= {f"pruning.{name}" for name in ("interventions", "methods", "rates")}
    own = {name for name in met if name.startswith("icltheory.")}
    assert own - {"icltheory._checks"} == {f"icltheory.{name}" for name in path}


EXHAUSTED = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory: 1 TB")


def failing(monkeypatch, failures):
    """The second batch of a pass raises, for some batch sizes."""
    made, stream = [], SplitEvaluator.stream

    def fails(self, examples=None):
        made.append(self.batch_size)
        for number, one in enumerate(stream(self, examples)):
            if number and self.batch_size in failures:
                raise failures[self.batch_size]
            yield one

    monkeypatch.setattr(SplitEvaluator, "stream", fails)
    return made


def test_out_of_memory_halves_the_batch_and_keeps_what_is_answered(monkeypatch):
    model, task = tiny("groups"), classification(9, 2, longest=6)
    expected, parts = evaluate(model, task).correct, []
    made = failing(monkeypatch, {4: MemoryError(), 2: EXHAUSTED})
    how = {"batch_size": 4, "progress": lambda *call: parts.append(call)}
    found = Evaluator(model, task, **how)
    with pytest.warns(UserWarning, match="^batch_size: out of memory") as caught:
        right = found.correct("validation")
    assert [str(w.message).split("memory ")[1] for w in caught] == [
        "at 4, going on with 2",
        "at 2, going on with 1",
    ]
    assert made == [4, 2, 1]
    np.testing.assert_array_equal(right[0], expected)
    totals = [call[1] for call in parts if call[0] == 0]
    assert totals[0] == 9 > totals[1] > totals[2] > 0
    assert len(found.answers) == 9


@pytest.mark.parametrize(
    ("size", "error"),
    [(1, EXHAUSTED), (4, jax.errors.JaxRuntimeError("INTERNAL: something else"))],
)
def test_other_failures_and_the_smallest_batch_are_raised(monkeypatch, size, error):
    failing(monkeypatch, {size: error})
    task = classification(9, 2, longest=6)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        Evaluator(tiny("groups"), task, batch_size=size).correct("validation")
    assert caught.value is error


@pytest.mark.usefixtures("as_for_a_user")
def test_wrong_models_and_options():
    model, task = tiny("groups"), TASKS["label_token"]

    loop = Cumulative((0.5,))
    for one, how, why in (
        ("1:mlp:rank=17", {}, "rank: expected 1 <= rank <= 16, got 17"),
        ("0:mlp:0.99", {}, "rate: expected a rate that leaves a rank >= 1 of 16"),
        ("3:mlp:0", {}, "layer: expected 0 to 2, got 3"),
        ("0:moe:0.5", {}, "module: expected one of"),
        ("0:mlp:0.5 0:W_in:0.75", {}, "interventions: expected each matrix once, got"),
        ((), {"batch_size": 0}, "batch_size: expected a positive integer, got 0"),
        ((), {"method": "random"}, "method: expected a Method, got 'random'"),
        ("1:mlp:rank=3", {"method": Magnitude()}, "rates: expected rates for Magnit"),
        ("1:mlp:rank=3", {"method": loop}, "method: expected rates for a loop, got"),
    ):
        with raises(why):
            Evaluator(model, task, **how).scores("validation", [one])
    with raises("toy test: expected examples, got none"):
        Evaluator(model, task).scores("test")
    for examples in ([-1], [1000], 3, [True, False], [0.5]):
        with raises("examples: expected whole numbers from 0 to"):
            Evaluator(model, task).correct("validation", [()], examples)
    broken = with_nan(model, 1, "mlp", "W_in")
    with pytest.raises(ValueError, match="W_in: expected finite entries"):
        Evaluator(broken, task).scores("validation", ["1:mlp:0.5"])
