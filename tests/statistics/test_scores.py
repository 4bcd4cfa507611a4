"""The baseline of the most frequent class."""

import numpy as np

from icltheory.statistics import majority_baseline
from tests.raising import raises


def test_the_most_frequent_class_is_the_baseline():
    labels = np.repeat([0, 1, 2], [10, 25, 15])
    assert majority_baseline(labels, ("No", "Yes", "Maybe")) == (1, "Yes", 0.5, 25)
    assert majority_baseline([1, 0, 0, 1]).label == 0


def test_bad_input_is_named():
    with raises("labels: expected numbers >= 0, got -1"):
        majority_baseline([-1, 0])
    with raises("labels: expected whole numbers"):
        majority_baseline([0.5])
    with raises("names: expected one for each of 3 classes, got 2"):
        majority_baseline([2], ("a", "b"))
