import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from icltheory.regression.predictors import (
    averaging_prefixes,
    gradient_descent_prefixes,
    zero_prefixes,
)
from icltheory.regression.risks import (
    MonteCarloRisk,
    bootstrap_interval,
    monte_carlo_risk,
    squared_errors,
    student_interval,
)
from icltheory.regression.shifts import garg_shift
from icltheory.regression.tasks import LinearRegression, QuadraticRegression

TASK = LinearRegression.isotropic(3, 0.5)


def raises(message):
    return pytest.raises(ValueError, match="^" + re.escape(message))


def test_errors_are_squared_differences_to_the_query_labels(key):
    prompt = TASK.sample(key, 6, 8).prefixes()
    expected = (averaging_prefixes(prompt.X, prompt.y) - prompt.y_query) ** 2
    np.testing.assert_allclose(squared_errors(averaging_prefixes, prompt), expected)
    np.testing.assert_allclose(
        squared_errors(averaging_prefixes, TASK.sample(key, 6, 8)), expected
    )
    risk = monte_carlo_risk(averaging_prefixes, TASK, key, 8)
    assert risk.mean.shape == (7,)  # 2 d examples by default
    np.testing.assert_allclose(risk.mean, expected.mean(axis=0))
    np.testing.assert_allclose(
        risk.standard_error, expected.std(axis=0, ddof=1) / np.sqrt(8)
    )


def test_noiseless_targets_differ_by_the_noise_of_the_query(key):
    noisy = squared_errors(zero_prefixes, TASK, key, 2000, num_examples=2)
    clean = squared_errors(
        zero_prefixes, TASK, key, 2000, num_examples=2, query_noise=False
    )
    gap = MonteCarloRisk.of(noisy - clean)
    assert np.all(np.abs(gap.mean - 0.5) < 5 * gap.standard_error)
    prompt = QuadraticRegression(3).sample(key, 2, 5).prefixes()
    quadratic = squared_errors(
        zero_prefixes, QuadraticRegression(3), key, 5, num_examples=2, query_noise=False
    )
    np.testing.assert_allclose(quadratic, prompt.y_query**2)


def test_batches_are_drawn_in_turn(key):
    draw = functools.partial(squared_errors, zero_prefixes, TASK, num_examples=2)
    got = draw(key=key, num_prompts=12, batch_size=4)
    expected = jnp.concatenate(
        [draw(key=k, num_prompts=4) for k in jax.random.split(key, 3)]
    )
    np.testing.assert_allclose(got, expected)
    with raises("batch_size: expected a divisor of 12, got 5"):
        draw(key=key, num_prompts=12, batch_size=5)


def test_shifts_and_other_samplers_are_sources_too(key):
    shift = garg_shift("random_quadrants", 3)
    prompt = shift(key, 7, 4)
    got = squared_errors(averaging_prefixes, shift, key, 4)
    expected = (
        averaging_prefixes(prompt.X, prompt.y, prompt.X_query) - prompt.y_query
    ) ** 2
    np.testing.assert_allclose(got, expected, atol=1e-12)
    with raises("query_noise: expected True for a sampler"):
        squared_errors(averaging_prefixes, shift, key, 4, query_noise=False)
    with raises("query_noise: expected True for prompts already drawn"):
        squared_errors(averaging_prefixes, prompt, query_noise=False)
    with raises("key: expected a key and num_prompts unless"):
        squared_errors(averaging_prefixes, TASK)
    with raises("num_prompts: expected a positive integer, got 0"):
        squared_errors(averaging_prefixes, TASK, key, 0)


def test_a_paired_difference_is_more_precise_than_two_risks(key):
    step = functools.partial(gradient_descent_prefixes, steps=1, step_size=0.9)
    first, second = (
        squared_errors(f, TASK, key, 400, num_examples=6)
        for f in (averaging_prefixes, step)
    )
    apart = np.hypot(*(MonteCarloRisk.of(e).standard_error for e in (first, second)))
    paired = MonteCarloRisk.of(first - second).standard_error
    assert np.all(paired[1:] < 0.5 * apart[1:])


def test_the_bootstrap_is_gargs(key):
    errors = np.random.default_rng(0).exponential(size=(300, 2))
    interval = jax.jit(bootstrap_interval)(errors, key)
    rng = np.random.default_rng(1)
    means = np.sort(errors[rng.integers(300, size=(1000, 300))].mean(axis=1), axis=0)
    # same order statistics of another 1,000 resamples: they agree to their own spread
    tolerance = 6 * errors.std(axis=0) / np.sqrt(300) / np.sqrt(1000) * 2.1
    assert np.all(np.abs(interval.low - means[50]) < tolerance)
    assert np.all(np.abs(interval.high - means[950]) < tolerance)
    few = bootstrap_interval(errors, key, 1)
    np.testing.assert_array_equal(few.low, few.high)


def test_levels_name_the_order_statistics_of_the_resamples(key):
    errors = np.random.default_rng(0).exponential(size=(30, 1))

    def ends(level):
        return bootstrap_interval(errors, key, 10, level=level)

    lows = [float(ends(level).low[0]) for level in (0.98, 0.8, 0.6, 0.4, 0.2)]
    highs = [float(ends(level).high[0]) for level in (0.01, 0.2, 0.4, 0.6, 0.8)]
    # ten different values of ten resamples: each is the one of its number
    assert np.all(np.diff(lows + highs) > 0)


def test_student_intervals_agree_with_scipy():
    errors = np.random.default_rng(0).normal(size=(7, 2))
    for level in (0.5, 0.9):
        interval = student_interval(jnp.asarray(errors), level=level)
        low, high = scipy.stats.t.interval(
            level, 6, errors.mean(axis=0), scipy.stats.sem(errors)
        )
        np.testing.assert_allclose(interval.low, low, rtol=1e-10)
        np.testing.assert_allclose(interval.high, high, rtol=1e-10)


def test_intervals_cover_the_mean_as_often_as_they_say(key):
    # 200 experiments of 100 exponential errors, mean 1
    errors = jax.random.exponential(key, (100, 200))
    for interval in (student_interval(errors), bootstrap_interval(errors, key, 400)):
        covered = np.mean((interval.low < 1) & (interval.high > 1))
        assert 0.82 < covered < 0.96


def test_one_prompt_has_no_standard_error():
    risk = MonteCarloRisk.of(jnp.ones((1, 3)))
    assert np.all(np.isnan(risk.standard_error))
    with raises("errors: expected at least two prompts, got 1"):
        student_interval(jnp.ones((1, 3)))


def test_bad_intervals_say_what_was_expected(key):
    errors = jnp.ones((4, 2))
    with raises("level: expected a value within (0, 1), got 1"):
        student_interval(errors, level=1.0)
    with raises("resamples: expected a positive integer, got 0"):
        bootstrap_interval(errors, key, 0)
