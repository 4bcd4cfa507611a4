"""Searches over interventions: by made-up scores, and against full evaluations."""

import jax
import numpy as np
import pytest

from icltheory.layered import LayeredStack, forward
from icltheory.pruning import prune_model, search
from tests.pruning.models import INPUTS, MODEL, STACK, TARGETS
from tests.raising import raises

PLAIN = LayeredStack(3, (("W_V", "attn"), ("W_K", "attn"), ("W_Q", "attn")))
# Three candidates that do not overlap.
LETTERS = {"a": "0:W_V:0.5", "b": "1:W_V:0.5", "c": "2:W_V:0.5"}


def searched(values, budget=None, beam=1, letters=LETTERS):
    """The search over made-up scores, by the letters of a set; the rest scores 0."""
    names, asked = {text: letter for letter, text in letters.items()}, []

    def score(compositions):
        sets = ["".join(sorted(names[str(one)] for one in c)) for c in compositions]
        asked.extend(sets)
        return [float(values.get(one, 0)) for one in sets]

    found = search(PLAIN, list(names), score, budget=budget, beam=beam)
    assert len(found.tried) == len(asked) == len(set(asked))
    return "".join(names[str(one)] for one in found.path), found, asked


def test_a_beam_finds_what_greed_misses():
    values = {"": 3, "a": 5, "b": 4, "c": 2, "ab": 5, "ac": 5, "bc": 7, "abc": 6}
    best, found, asked = searched(values)
    assert (best, found.stopped) == ("a", "no improvement")
    assert asked == ["", "a", "b", "c", "ab", "ac"]
    best, found, asked = searched(values, beam=2)
    assert (best, found.scores) == ("bc", (3, 4, 7))
    # abc is looked at once, though two sets of the beam lead to it.
    assert asked == ["", "a", "b", "c", "ab", "ac", "bc", "abc"]
    assert found.stopped == "no improvement"


def test_a_budget_leaves_out_the_last_candidates():
    values = {"": 3, "a": 5, "b": 6, "c": 9, "ab": 10}
    best, found, asked = searched(values, 3)
    assert (best, found.stopped, asked) == ("b", "budget", ["", "a", "b"])
    best, found, asked = searched(values, 4)
    assert (best, found.stopped, len(asked)) == ("c", "budget", 4)


def test_only_what_is_strictly_better_is_taken_and_the_first_of_equals():
    best, found, _ = searched({"": 3, "a": 3, "b": 3}, beam=2)
    assert (best, found.scores, found.stopped) == ("", (3,), "no improvement")
    assert searched({"": 3, "a": 4, "b": 4})[0] == "a"
    best, found, _ = searched({"": 3, "a": np.nan, "b": 4})
    assert found.scores == (3, 4)


def test_candidates_that_overlap_are_never_together():
    values, letters = {"a": 1, "b": 1, "ab": 9, "ac": 2}, dict(LETTERS)
    letters["b"] = "0:W_V,W_K:0.5"
    best, _, asked = searched(values, beam=3, letters=letters)
    assert best == "ac"
    assert "ab" not in asked
    two = {"a": "0:W_V:0.5", "b": "0:W_V:0.75"}
    best, found, asked = searched({"a": 1, "b": 2}, letters=two)
    assert (best, found.stopped, len(asked)) == ("b", "no candidates", 3)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_search_is_the_loop_with_full_evaluations(sign):
    run = jax.jit(lambda params: forward(MODEL, params, INPUTS))
    candidates = [
        f"{layer}:{name}:{rate}"
        for layer, name in ((3, "W_V"), (1, "W_V"), (2, "W_K"))
        for rate in (0.1, 0.5, 0.75)
    ]

    def full(names):
        outputs = run(prune_model(MODEL, STACK, list(names)))
        return sign * float(np.mean(np.sum((outputs - TARGETS) ** 2, axis=-1)))

    best, size = (), 0
    while len(best) == size:
        wider = [(*best, one) for one in candidates if one[:5] not in str(best)]
        top = max(wider, key=full, default=best)
        best, size = (top if full(top) > full(best) else best), size + 1
    found = search(MODEL, candidates, lambda sets: list(map(full, sets)))
    assert tuple(map(str, found.path)) == best != ()
    np.testing.assert_allclose(found.scores[-1], full(best), rtol=1e-12)


def test_what_cannot_be_searched():
    def search_for(candidates, score=1.0, **how):
        return search(PLAIN, candidates, lambda sets: [score] * len(sets), **how)

    with raises("candidates: expected at least one, got none"):
        search_for(())
    with raises("candidates: expected no duplicates, got 0:W_V:0.5 twice"):
        search_for(("0:W_V:0.5", "0:W_V:rate=0.5"))
    with raises("candidates: expected a sequence, got '0:W_V:0.5'"):
        search_for("0:W_V:0.5")
    with raises("layer: expected 0 to 2, got 9"):
        search_for(("9:attn:0.5",))
    with raises("budget: expected at least 2 evaluations, got 1"):
        search_for(("0:W_V:0.5",), budget=1)
    with raises("beam: expected a positive integer, got 0"):
        search_for(("0:W_V:0.5",), beam=0)
    with raises("score: expected a number of the unpruned model, got nan"):
        search_for(("0:W_V:0.5",), np.nan)
