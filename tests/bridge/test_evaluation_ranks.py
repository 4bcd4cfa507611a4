"""Ranks beside rates in evaluations and in stored answers."""

import numpy as np
import pytest

from icltheory.bridge import prune_model
from icltheory.bridge.answer_cache import AnswerCache, facts_of
from icltheory.bridge.answer_file import AnswerFile
from icltheory.bridge.cached_evaluator import CachedEvaluator
from icltheory.bridge.evaluation import (
    GridChunk,
    evaluate,
    evaluate_grid,
    evaluate_rates,
)
from icltheory.bridge.spectra import Cumulative
from icltheory.pruning import Magnitude, Rank
from tests.bridge.evaluation_tasks import classification, tiny
from tests.raising import raises

TASK = classification(4)
SHAPES = {"buckets": 1, "batch_size": 4}


def test_ranks_are_stored_beside_rates(tmp_path):
    strengths = (0.0, 0.5, Rank(3))

    def cache():
        return AnswerCache(facts_of(TASK), AnswerFile(tmp_path / "answers.sqlite"))

    scores = np.random.default_rng(0).normal(size=(3, 4, 3))
    chunk = GridChunk(1, "mlp", np.arange(4), scores)
    cache().add("validation", strengths, [chunk], np.arange(4) % 3)
    again = cache()
    assert again.known("validation", 1, "mlp", strengths).all()
    assert not again.known("validation", 1, "mlp", [Rank(4)]).any()
    found = again.scores("validation", 1, "mlp", strengths[::-1])
    np.testing.assert_array_equal(found, scores[::-1])


@pytest.mark.slow
def test_a_rank_is_answered_as_the_clipped_model_answers():
    model, strengths, parts = tiny("groups", num_layers=2), (0.0, 0.5, Rank(3)), []

    def progress(*call):
        parts.append(call)

    answers = AnswerCache(facts_of(TASK))
    evaluator = CachedEvaluator(answers, model, TASK, progress=progress, **SHAPES)
    evaluator.evaluate_missing("validation", [1], ["W_Q,W_in"], strengths)
    assert parts[-1] == (12, 12, "validation, rates 0, 0.5, rank=3")
    found = answers.scores("validation", 1, "W_Q,W_in", strengths)
    pruned = prune_model(model, ["1:W_Q,W_in:rank=3"])
    plain = evaluate(pruned, TASK, **SHAPES).scores
    np.testing.assert_allclose(found[2], plain, atol=1e-9)
    one = evaluate_rates(model, TASK, 1, "W_Q,W_in", [Rank(3), Rank(16)], **SHAPES)
    np.testing.assert_allclose(one[0].scores, plain, atol=1e-9)
    np.testing.assert_allclose(one[1].scores, found[0], atol=1e-9)


def test_ranks_that_cannot_be():
    model = tiny("groups", num_layers=2)
    for function, at in ((evaluate_rates, (1, "mlp")), (evaluate_grid, ([1], ["mlp"]))):
        with raises("rank: expected 1 <= rank <= 16, got 17"):
            function(model, TASK, *at, [Rank(17)])
    for method, why in (
        (Magnitude(), "rates: expected rates for Magnitude, got rank=3"),
        (Cumulative((0.5,)), "method: expected rates for a loop, got rank=3"),
    ):
        with raises(why):
            evaluate_rates(model, TASK, 1, "mlp", [Rank(3)], method=method)
