import jax
import numpy as np
import pytest

from icltheory.patterns import margin, miss_probability, pruned_hinge
from tests.raising import raises


def test_miss_probability_counts():
    rng = np.random.default_rng(0)
    hits = rng.random((40000, 5)) < 0.35
    missed = (~hits.any(1)).mean()
    exact = float(miss_probability(0.7, 5))
    assert abs(missed - exact) < 4.5 * (exact * (1 - exact) / 40000) ** 0.5
    np.testing.assert_allclose(miss_probability(1.0, np.arange(4)), 0.5 ** np.arange(4))


def test_the_margin_has_its_slope():
    np.testing.assert_allclose(jax.grad(margin)(0.3, 0.6, 0.5), 0.3)


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (margin, (1.0, -1.0, 1.0), "gain: expected a value >= 0, got -1"),
        (margin, (1.0, 1.0, -1.0), "ratio: expected a value >= 0"),
        (pruned_hinge, (1.0, 1.5), "pruned_fraction: expected a value in [0, 1]"),
        (miss_probability, (2, 3), "relevant_fraction: expected a value in [0, 1]"),
        (miss_probability, (0.5, -1), "num_examples: expected a value >= 0"),
    ],
)
def test_bad_input(function, args, message):
    with raises(message):
        function(*args)
