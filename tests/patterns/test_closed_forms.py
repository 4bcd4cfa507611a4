import jax
import numpy as np
import pytest

from icltheory.patterns import hinge, margin, miss_probability, pruned_hinge

margin_jit = jax.jit(margin)


def test_margin_entry_by_entry():
    def by_hand(S, g, c):
        positive = 1 + c * S if 1 + c * S > 0 else 0
        negative = c * S - 1 if c * S - 1 > 0 else 0
        return g * (positive - negative)

    for S in (-3.0, -1.0, 0.0, 0.4, 1.0, 2.5):
        for g, c in ((0.5, 0.9), (1.3, 0.0), (0.2, 4.0)):
            got = margin_jit(S, g, c)
            np.testing.assert_allclose(got, by_hand(S, g, c), atol=1e-15)


def test_shape_of_the_margin():
    """Rising, 2 g from 1/c on, 0 up to -1/c, and g at 0 whatever c."""
    S = np.linspace(-4, 4, 101)
    F = np.asarray(margin_jit(S, 0.6, 0.5))
    assert np.all(np.diff(F) >= 0)
    np.testing.assert_allclose(F[S >= 2], 1.2)
    np.testing.assert_array_equal(F[S <= -2], 0)
    for ratio in (0.1, 7.0):
        np.testing.assert_allclose(margin_jit(0.0, 0.6, ratio), 0.6)
    slope = jax.jit(jax.grad(lambda s: margin(s, 0.6, 0.5)))(0.3)
    np.testing.assert_allclose(slope, 0.3)


def test_hinge_and_pruning():
    np.testing.assert_array_equal(
        hinge(np.array([-1.0, 0.5, 1.0, 3.0])), [2, 0.5, 0, 0]
    )
    g = np.array([0.0, 0.2, 0.5, 1.0])
    np.testing.assert_allclose(pruned_hinge(1.25, g), [0, 0, 0.375, 1], atol=1e-15)


def test_miss_probability_counts():
    rng = np.random.default_rng(0)
    hits = rng.random((40000, 5)) < 0.35
    missed = (~hits.any(1)).mean()
    exact = float(miss_probability(0.7, 5))
    assert abs(missed - exact) < 4.5 * (exact * (1 - exact) / 40000) ** 0.5
    np.testing.assert_allclose(miss_probability(1.0, np.arange(4)), 0.5 ** np.arange(4))


def test_bad_input():
    with pytest.raises(ValueError, match="gain: expected a value >= 0, got -1"):
        margin(1.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="ratio: expected a value >= 0"):
        margin(1.0, 1.0, -1.0)
    with pytest.raises(
        ValueError, match=r"pruned_fraction: expected a value in \[0, 1\]"
    ):
        pruned_hinge(1.0, 1.5)
    with pytest.raises(
        ValueError, match=r"relevant_fraction: expected a value in \[0, 1\]"
    ):
        miss_probability(2, 3)
    with pytest.raises(ValueError, match="num_examples: expected a value >= 0"):
        miss_probability(0.5, -1)
