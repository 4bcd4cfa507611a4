"""Which predictions are right, and the baseline of the most frequent class."""

import numpy as np

from icltheory.statistics import majority_baseline, mark_correct
from tests.raising import raises


def test_the_most_frequent_class_is_the_baseline():
    labels = np.repeat([0, 1, 2], [10, 25, 15])
    assert majority_baseline(labels, ("No", "Yes", "Maybe")) == (1, "Yes", 0.5, 25)
    assert mark_correct(np.ones(50, int), labels).mean() == 0.5
    assert majority_baseline([1, 0, 0, 1]).label == 0


def test_no_prediction_is_wrong_whatever_the_label():
    assert not mark_correct([-1] * 3, [0, 1, 2]).any()
    assert mark_correct([[0, 1], [1, -1]], [0, 1]).tolist() == [[1, 1], [0, 0]]


def test_bad_input_is_named():
    with raises("predictions: expected numbers >= -1, got -2"):
        mark_correct([-2], [0])
    with raises("predictions: expected whole numbers"):
        mark_correct([0.5], [0])
    with raises("names: expected one for each of 3 classes, got 2"):
        majority_baseline([2], ("a", "b"))
