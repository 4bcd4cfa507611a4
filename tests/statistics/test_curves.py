"""The bootstrap of a curve, against that of Garg et al. in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.statistics import Estimate, curve_interval
from tests.raising import raises


@pytest.mark.slow
def test_the_bootstrap_is_gargs(key):
    errors = np.random.default_rng(0).exponential(size=(300, 2))
    gargs = jax.jit(functools.partial(curve_interval, level=0.9))
    interval = gargs(errors, key=key)
    rng = np.random.default_rng(1)
    means = np.sort(errors[rng.integers(300, size=(1000, 300))].mean(axis=1), axis=0)
    # same order statistics of another 1,000 resamples: they agree to their own spread
    tolerance = 6 * errors.std(axis=0) / np.sqrt(300) / np.sqrt(1000) * 2.1
    assert np.all(np.abs(interval.low - means[50]) < tolerance)
    assert np.all(np.abs(interval.high - means[950]) < tolerance)
    few = curve_interval(errors, key=key, resamples=1)
    np.testing.assert_array_equal(few.low, few.high)


@pytest.mark.slow
def test_levels_name_the_order_statistics_of_the_resamples(key):
    errors = np.random.default_rng(0).exponential(size=(30, 1))

    @functools.partial(jax.jit, static_argnums=0)
    def ends(level):
        return curve_interval(errors, key=key, resamples=10, level=level)

    lows = [float(ends(level).low[0]) for level in (0.98, 0.8, 0.6, 0.4, 0.2)]
    highs = [float(ends(level).high[0]) for level in (0.01, 0.2, 0.4, 0.6, 0.8)]
    # ten different values of ten resamples: each is the one of its number
    assert np.all(np.diff(lows + highs) > 0)


@pytest.mark.slow
def test_intervals_cover_the_mean_as_often_as_they_say(key):
    # 200 experiments of 100 exponential errors, mean 1
    errors = np.random.default_rng(2).exponential(size=(100, 200))

    @jax.jit
    def both(errors):
        return Estimate.of(errors).interval(0.9), curve_interval(
            errors, key=key, resamples=400, level=0.9
        )

    for interval in jax.tree.map(np.asarray, both(errors)):
        covered = np.mean((interval.low < 1) & (interval.high > 1))
        assert 0.82 < covered < 0.96


def test_equal_errors_give_a_point(key):
    for dtype in (np.float32, np.float64):
        for ends in curve_interval(
            jnp.full((6400, 1), 0.1, dtype), key=key, resamples=20
        ):
            assert ends == dtype(0.1)


def test_bad_input_is_named(key):
    errors = jnp.ones((4, 2))
    with raises("level: expected a number between 0 and 1, got 1"):
        curve_interval(errors, key=key, level=1.0)
    with raises("resamples: expected a positive integer, got 0"):
        curve_interval(errors, key=key, resamples=0)
