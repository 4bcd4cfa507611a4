"""Algorithm 1 over ranks: the search of the rates that leave them, and its errors."""

import numpy as np
import pytest

from icltheory.bridge.answer_cache import AnswerCache, TaskFacts
from icltheory.bridge.answer_file import AnswerFile
from icltheory.bridge.evaluation import GridChunk
from icltheory.bridge.layer_search import algorithm1, read_algorithm1
from icltheory.pruning import Rank
from tests.bridge.evaluation_tasks import classification, tiny, with_test

RATES, RANKS = (0.25, 0.5, 0.75), (12, 8, 4)  # of 16
SAME = ("validation_scores", "unpruned_score", "test_before", "test_after")
SAME += ("p_value", "evaluations", "comparison")


@pytest.fixture(scope="module")
def model():
    return tiny("groups", num_layers=2)


@pytest.fixture(scope="module")
def task():
    return with_test(classification(9), classification(9, seed=5).validation)


def test_ranks_are_searched_as_the_rates_that_leave_them(model, task, tmp_path):
    by_rate = algorithm1(model, task, "mlp", RATES, 1, "max", layer=1)
    path = tmp_path / "answers.sqlite"
    options, ranks = {"layer": 1, "answers": path}, [*map(Rank, RANKS)]
    by_rank = algorithm1(model, task, "mlp", ranks, 1, "max", **options)
    for name in SAME:
        assert getattr(by_rank, name) == getattr(by_rate, name), name
    assert by_rank.rates == tuple(map(Rank, RANKS))
    pairs = dict(zip((0, *RATES), (0.0, *map(Rank, RANKS)), strict=True))
    assert by_rank.rate == pairs[by_rate.rate]
    assert by_rank.selection.rate == by_rank.rate
    assert by_rank.selection[1:] == by_rate.selection[1:]
    # The answers were kept: nothing is evaluated again.
    before = list(AnswerFile(path))
    again = algorithm1(model, task, "mlp", ranks, 1, "max", **options)
    assert again.validation_scores == by_rank.validation_scores
    assert list(AnswerFile(path)) == before


def answers_of(right):
    """Answers of which these are right, unpruned first and then at ``RANKS``."""
    size = right.shape[1]
    facts = TaskFacts(
        "toy",
        "paper",
        "label_token",
        "n",
        ("a", "b"),
        {"validation": size, "test": size},
        "",
    )
    answers, labels = AnswerCache(facts), np.zeros(size, int)
    scores = np.stack([right, 1.0 - right], axis=-1)
    chunk = GridChunk(0, "mlp", np.arange(size), scores)
    for split in ("validation", "test"):
        answers.add(split, (0.0, *map(Rank, RANKS)), [chunk], labels)
    return answers


def test_a_tie_goes_to_the_larger_rank_in_whatever_order_they_are_given():
    right = np.zeros((4, 40))
    right[0, :10] = right[1, :30] = right[2, :30] = right[3, :5] = 1
    answers = answers_of(right)
    for ranks in (RANKS, RANKS[::-1]):
        found = read_algorithm1(answers, 0, "mlp", [*map(Rank, ranks)])
        assert found.rate == Rank(12)
        assert found.rates == tuple(map(Rank, ranks))
        assert str(found).startswith("mlp of layer 0, rank=12: ")
        assert found.validation_score == found.selection.score == 0.75


def test_no_rank_that_improves_is_rate_0():
    found = read_algorithm1(answers_of(np.ones((4, 8))), 0, "mlp", [*map(Rank, RANKS)])
    assert (found.rate, found.p_value) == (0, 1)
    assert "rate 0: " in str(found)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ([], "rates: expected at least one, got none"),
        ([Rank(8), 0.5, Rank(8)], "rates: expected no duplicates, got rank=8, 0.5, ra"),
        ([Rank(17)], "rank: expected 1 <= rank <= 16, got 17"),
    ],
)
def test_impossible_ranks_are_refused(model, task, rates, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        algorithm1(model, task, "attn", rates, 1, "max", layer=0)
