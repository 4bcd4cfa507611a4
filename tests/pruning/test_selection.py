"""A search over rates, judged on examples that took no part in it."""

import re

import numpy as np
import pytest

from icltheory.pruning import corrected_selection


def test_selection_among_equals_promises_what_is_not_there():
    """Eight coins: the best on 100 examples looks better than 1/2; judged apart not."""
    best, judged = [], []
    for trial in range(150):
        right = np.random.default_rng(trial).random((9, 100)) < 0.5
        found = corrected_selection(
            right[1:], np.arange(8) / 8, right[0], splits=4, seed=trial
        )
        best.append(found.score)
        judged.append(found.corrected)
    error = np.std(judged, ddof=1) / np.sqrt(len(judged))
    assert abs(np.mean(judged) - 0.5) < 4 * error
    assert np.mean(best) > 0.5 + 20 * np.std(best, ddof=1) / np.sqrt(len(best))


def test_selection_by_hand():
    rng = np.random.default_rng(5)
    right, base = rng.random((3, 11)) < 0.6, rng.random(11) < 0.5
    rates = [0.5, 0.0, 0.9]
    found = corrected_selection(right, rates, base, splits=7, seed=1)
    order, judged, picked = np.random.default_rng(1), [], []
    for _ in range(7):
        shuffled = order.permutation(11)
        for on, off in [(shuffled[:5], shuffled[5:]), (shuffled[5:], shuffled[:5])]:
            means = [right[i, on].mean() for i in (1, 0, 2)]
            best = [1, 0, 2][int(np.argmax(means))]
            improves = max(means) > base[on].mean()
            judged.append((right[best] if improves else base)[off].mean())
            picked.append(best if improves else None)
    assert found.corrected == pytest.approx(np.mean(judged), abs=1e-14)
    assert found.frequencies == tuple(picked.count(i) / 14 for i in range(3))
    assert found.unpruned == base.mean()


def test_one_clear_winner_needs_no_correction():
    right = np.array([[False] * 20, [True] * 20])
    found = corrected_selection(right, [0.1, 0.5], right[0])
    assert (found.rate, found.score, found.corrected, found.optimism) == (0.5, 1, 1, 0)
    assert found.frequencies == (0.0, 1.0)


def test_bad_input_is_named():
    yes = np.ones(4, bool)
    for right, rates, base, message in (
        (yes[None], [1.0], yes, "rates: expected numbers in [0, 1), got 1.0"),
        (yes[None, :1], [0.5], yes[:1], "correct: expected at least two examples, got"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            corrected_selection(right, rates, base)
