"""Missing answers run in smaller batches where memory runs out; keys are checked."""

import jax
import numpy as np
import pytest

from icltheory.bridge import cached_evaluator
from icltheory.bridge.answer_cache import AnswerCache, facts_of
from icltheory.bridge.cached_evaluator import CachedEvaluator, method_name
from icltheory.bridge.compositions import _Judge
from icltheory.bridge.evaluation import Grid, GridChunk
from icltheory.bridge.layer_search import algorithm1
from icltheory.bridge.spectra import Exact, Randomised, RandomVectors, SingularSystems
from icltheory.pruning import LowRank, Magnitude
from tests.bridge.evaluation_tasks import classification, tiny, with_test

RATES = (0.0, 0.5)
EXHAUSTED = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory: 1 TB")


def grid_of(task, made, failures):
    """In the place of Grid: known scores, and an error in the second batch."""
    truth = np.array([example.label for example in task.validation])
    scores = np.random.default_rng(0).normal(size=(len(RATES), len(truth), 3))

    class Known(Grid):
        labels, keys = truth, ((0, "mlp"),)

        def __init__(self, *args, batch_size=32, **options):
            self.size = batch_size

        def stream(self, examples=None, rates=None):
            made.append(self.size)
            chosen = np.arange(len(truth)) if examples is None else examples
            for start in range(0, len(chosen), self.size):
                if start and self.size in failures:
                    raise failures[self.size]
                some = np.asarray(chosen[start : start + self.size])
                yield GridChunk(0, "mlp", some, scores[:, some])

    return Known, scores.argmax(axis=2) == truth


def evaluator_of(task, size, parts=None):
    answers = AnswerCache(facts_of(task))
    progress = None if parts is None else lambda *call: parts.append(call)
    return CachedEvaluator(answers, None, task, batch_size=size, progress=progress)


def test_out_of_memory_halves_the_batch_and_keeps_what_is_answered(monkeypatch):
    task, made, parts = classification(9), [], []
    grid, expected = grid_of(task, made, {4: MemoryError(), 2: EXHAUSTED})
    monkeypatch.setattr(cached_evaluator, "Grid", grid)
    evaluator = evaluator_of(task, 4, parts)
    with pytest.warns(UserWarning, match="^batch_size: out of memory") as caught:
        right = evaluator.correct("validation", 0, "mlp", RATES)
    assert [str(w.message).split("memory ")[1] for w in caught] == [
        "at 4, going on with 2",
        "at 2, going on with 1",
    ]
    assert made == [4, 2, 1]
    np.testing.assert_array_equal(right, expected)
    assert [call[1] for call in parts if call[0] == 0] == [18, 10, 6]
    assert parts[-1] == (6, 6, "validation, rates 0, 0.5")
    assert evaluator.cache.added == 18  # none of them twice


@pytest.mark.parametrize(
    ("size", "error"),
    [(1, EXHAUSTED), (4, jax.errors.JaxRuntimeError("INTERNAL: something else"))],
)
def test_other_failures_and_the_smallest_batch_are_raised(monkeypatch, size, error):
    task = classification(9)
    grid, _ = grid_of(task, [], {size: error})
    monkeypatch.setattr(cached_evaluator, "Grid", grid)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        evaluator_of(task, size).correct("validation", 0, "mlp", RATES)
    assert caught.value is error


def test_answers_of_other_singular_systems_are_kept_apart(tmp_path, monkeypatch):
    stores = {
        str(n): SingularSystems(tmp_path / str(n), method)
        for n, method in enumerate((None, Exact("float64"), Randomised(4)))
    }
    names = [method_name(LowRank(), store) for store in (None, *stores.values())]
    assert names == ["svd", "svd", "svd", "svd/randomised-r4-i2-s0"]
    assert method_name(Magnitude(), stores["2"]) == "magnitude"
    task = classification(2)
    with pytest.raises(ValueError, match="^method: expected 'svd', as the answers"):
        CachedEvaluator(AnswerCache(facts_of(task)), None, task, systems=stores["2"])
    # The search hands its store to the key of its answers.
    kept = []

    def answers(*call):
        kept.append(call[-1])
        raise InterruptedError

    model, task = tiny("groups", num_layers=2), with_test(task, task.validation[:1])
    monkeypatch.setattr("icltheory.bridge.layer_search._answers", answers)
    for options in ({"cache": stores["2"]}, {"systems": stores["2"]}, {}):
        with pytest.raises(InterruptedError):
            algorithm1(model, task, "mlp", [0.5], 1, "max", layer=0, **options)
    assert kept == [names[-1], names[-1], "svd"]


def test_answers_of_a_search_of_compositions_name_systems_that_are_not_exact(tmp_path):
    model, task = tiny("groups", num_layers=2), classification(2)
    exact, drawn = (
        _Judge(model, task, 0, tmp_path / name, systems, LowRank(), 1, None)
        for name, systems in (
            ("answers", None),
            ("answers", SingularSystems(tmp_path / "systems", Randomised(4))),
        )
    )
    assert exact._cache(()).fields["method"] == "svd"
    assert drawn._cache(()).fields["method"] == "svd/randomised-r4-i2-s0"


def test_answers_of_a_rank_that_became_1_are_kept_apart():
    names = [method_name(LowRank(**how)) for how in ({}, {"at_least_one": True})]
    assert names == ["svd", "svd+1"]
    assert method_name(Magnitude(rule="ceil")) == "magnitude-ceil"
    assert method_name(RandomVectors(2, at_least_one=True)) == "random-vectors-s2+1"
