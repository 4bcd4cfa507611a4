from itertools import permutations

import numpy as np
import pytest

from icltheory import patterns
from icltheory.patterns.task_sets import held_out_tasks, read_tasks
from tests.raising import raises


def test_all_tasks_are_the_ordered_pairs():
    assert patterns.all_tasks(5) == tuple(permutations(range(5), 2))


@pytest.mark.parametrize("shifts", [(1,), (2, 5), (1, 2, 3), (1, 2, 3, 4, 5)])
def test_circulants_cover_and_the_rest_is_held_out(shifts):
    tasks = patterns.circulant_tasks(6, shifts)
    assert len(set(tasks)) == len(tasks) == 6 * len(shifts)
    assert patterns.covers(tasks, 6)
    assert patterns.task_ratio(tasks, 6) == len(shifts) / 5
    if len(shifts) < 5:
        left = held_out_tasks(tasks, 6)
        assert sorted(left + tasks) == sorted(patterns.all_tasks(6))


def test_cover_counts_each_pattern_and_label():
    def by_hand(tasks, M):
        counts = np.zeros((M, 2), int)
        for a, b in tasks:
            counts[a, 0] += 1
            counts[b, 1] += 1
        return counts.min() >= 1 and counts.min() == counts.max()

    rng = np.random.default_rng(0)
    found = set()
    for _ in range(300):
        M = int(rng.integers(2, 5))
        order = rng.permutation(M * (M - 1))[: rng.integers(1, M * (M - 1) + 1)]
        tasks = [patterns.all_tasks(M)[i] for i in order]
        assert patterns.covers(tasks, M) == by_hand(tasks, M)
        found.add(patterns.covers(tasks, M))
    assert found == {True, False}


def test_a_task_given_twice_counts_once_in_the_ratio():
    assert patterns.task_ratio([(0, 1), (0, 1)], 3) == 1 / 6


def test_bad_input():
    with raises("shifts: expected distinct numbers from 1 to 5, got [1, 1]"):
        patterns.circulant_tasks(6, [1, 1])
    with raises("shifts: expected distinct numbers from 1 to 5, got [0]"):
        patterns.circulant_tasks(6, [0])
    with raises("num_relevant: expected an integer >= 2, got 1"):
        patterns.all_tasks(1)
    with raises("tasks: expected two different patterns from 0 to 2, got (1, 1)"):
        read_tasks([(1, 1)], 3)
    with raises("tasks: expected two different patterns from 0 to 2, got (0, 3)"):
        patterns.covers([(0, 3)], 3)
    with raises("tasks: expected pairs of integers, got []"):
        read_tasks([], 3)
    with raises(
        "tasks: expected fewer than all 6 tasks, so that some are unseen, got 6"
    ):
        held_out_tasks(patterns.all_tasks(3), 3)
