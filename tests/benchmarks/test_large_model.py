"""The rows of the benchmark of a billion weights, from what its sides say."""

import numpy as np

from benchmarks import large_model
from benchmarks._large_sides import EXACT, LABELS
from benchmarks.prune_search import RATES


def side(scores, seconds):
    phases = ("load", "search", "later search")
    memory = dict.fromkeys(phases, {"peak": 3.0, "now": 2.0, "files": 0.5})
    return {
        "seconds": dict.fromkeys(phases, seconds),
        "processor seconds": dict.fromkeys(phases, 2 * seconds),
        "memory": memory,
        "rate": 0.0,
        "validation": scores.tolist(),
    }


def sides():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(len(RATES), 32, len(LABELS)))
    near = scores + 1e-3 * rng.normal(size=scores.shape)
    return side(near, 1.0), side(scores, 10.0), side(scores[:1, :EXACT], 1.0)


def test_a_row_holds_both_times_both_memories_and_the_difference():
    load = large_model._load_row(*sides()[:2], size=2**31)
    assert (load.ours_s, load.alternative_s, load.ratio) == (1, 10, 10)
    assert load.facts["file GiB"] == 2
    assert load.facts["peak GiB"] == load.facts["its peak GiB"] == 3
    found = large_model._search_row(*sides())
    assert not found.bad
    assert 0 < found.error < 2e-3
    assert found.facts["processor s"] == 2
    assert found.facts["transformers from float32:"] == 0


def test_a_score_that_differs_by_more_than_rounding_makes_the_row_wrong():
    ours, theirs, exact = sides()
    ours["validation"][3][5] = [9.0, -9.0]
    found = large_model._search_row(ours, theirs, exact)
    assert found.wrong
    assert "answers, " in found.note


def test_the_task_is_the_same_at_every_run():
    made = large_model.task()
    assert made == large_model.task()
    assert [len(made[split]) for split in large_model.SIZES] == [4, 32, 16]
    texts = [text for split in large_model.SIZES for text, _ in made[split]]
    assert len(set(texts)) == len(texts)
