"""Missing answers are evaluated in smaller batches where memory runs out."""

import jax
import numpy as np
import pytest

from icltheory.bridge import cached_evaluator
from icltheory.bridge.answer_cache import AnswerCache, facts_of
from icltheory.bridge.cached_evaluator import CachedEvaluator
from icltheory.bridge.evaluation import Grid, GridChunk
from tests.bridge.evaluation_tasks import classification

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
