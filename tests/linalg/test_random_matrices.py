"""The law of Marchenko and Pastur: its mass, its moments, and sampled matrices."""

import numpy as np
import pytest
from scipy import integrate

from icltheory.linalg import marchenko_pastur_density


@pytest.mark.parametrize(
    ("shape", "std"), [((40, 10), 0.3), ((10, 40), 2.0), ((8, 8), 1.0)]
)
def test_it_has_mass_one_and_the_second_moment_of_the_entries(shape, std):
    """The mean of s^2 is the squared norm over k: std^2 max(m, n)."""
    s = np.linspace(0, 1.01 * std * sum(np.sqrt(shape)), 400_001)
    density = np.asarray(marchenko_pastur_density(s, shape, std))
    assert density.min() == 0
    # Simpson's rule is off by the square roots at both ends.
    assert integrate.simpson(density, x=s) == pytest.approx(1, abs=1e-6)
    second = integrate.simpson(density * s**2, x=s)
    assert second == pytest.approx(std**2 * max(shape), rel=1e-6)


def test_singular_values_of_a_large_matrix_follow_it():
    """At 600 x 200 the distribution functions differ by O(1 / k) = 0.005."""
    shape, std = (600, 200), 0.5
    values = np.linalg.svd(np.random.default_rng(0).normal(0, std, shape))[1]
    s = np.linspace(0, 1.1 * std * sum(np.sqrt(shape)), 20_001)
    density = np.asarray(marchenko_pastur_density(s, shape, std))
    below = integrate.cumulative_trapezoid(density, s, initial=0)
    empirical = (np.arange(200) + 0.5) / 200
    difference = np.interp(np.sort(values), s, below) - empirical
    assert np.abs(difference).max() < 0.02


def test_it_is_zero_outside_and_nan_only_for_nan():
    s = np.array([-np.inf, -1.0, 0.0, 0.5, 9.0, np.inf, np.nan])
    for shape in ((9, 1), (4, 4)):
        density = np.asarray(marchenko_pastur_density(s, shape))
        outside = density[[0, 1, 4, 5]]
        np.testing.assert_array_equal(outside, 0)
        assert not np.signbit(outside).any()
        np.testing.assert_array_equal(np.isnan(density), np.isnan(s))


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match=r"^shape: expected two positive"):
        marchenko_pastur_density(1.0, (3, 0))
    with pytest.raises(ValueError, match=r"^std: expected a finite value > 0, got 0"):
        marchenko_pastur_density(1.0, (3, 2), 0.0)
