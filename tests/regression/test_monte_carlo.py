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


@functools.cache
def the_task():
    return LinearRegression(np.eye(3), np.zeros(3), np.eye(3), 0.5)


STATIC = ("num_prompts", "num_examples", "query_noise", "batch_size")


@functools.partial(jax.jit, static_argnums=(0, 3), static_argnames=STATIC)
def errors_of(predictor, task, key, num_prompts, **options):
    return squared_errors(predictor, task, key, num_prompts, **options)


@functools.partial(jax.jit, static_argnums=1)
def prompts(key, shape):
    return the_task().sample(key, *shape)


def raises(message):
    return pytest.raises(ValueError, match="^" + re.escape(message))


def test_errors_are_squared_differences_to_the_query_labels(key):
    task = the_task()
    whole = prompts(key, (6, 8))
    prompt = whole.prefixes()
    answers = np.asarray(jax.jit(averaging_prefixes)(prompt.X, prompt.y))
    expected = (answers - np.asarray(prompt.y_query)) ** 2
    errors = jax.jit(functools.partial(squared_errors, averaging_prefixes))
    np.testing.assert_allclose(errors(prompt), expected, rtol=1e-10)
    np.testing.assert_allclose(errors(whole), expected, rtol=1e-10)
    risk = jax.jit(lambda k: monte_carlo_risk(averaging_prefixes, task, k, 8))(key)
    assert risk.mean.shape == (7,)  # 2 d examples by default
    np.testing.assert_allclose(risk.mean, expected.mean(axis=0))
    np.testing.assert_allclose(
        risk.standard_error, expected.std(axis=0, ddof=1) / np.sqrt(8)
    )


def test_noiseless_targets_differ_by_the_noise_of_the_query(key):
    task, drawn = the_task(), (key, 2000)
    noisy = np.asarray(errors_of(zero_prefixes, task, *drawn, num_examples=2))
    clean = errors_of(zero_prefixes, task, *drawn, num_examples=2, query_noise=False)
    gap = noisy - np.asarray(clean)
    error = gap.std(axis=0, ddof=1) / np.sqrt(2000)
    assert np.all(np.abs(gap.mean(axis=0) - 0.5) < 5 * error)
    found = jax.jit(MonteCarloRisk.of)(gap)
    np.testing.assert_allclose(found.mean, gap.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-12)
    task = QuadraticRegression(3)
    prompt = jax.jit(lambda k: task.sample(k, 2, 5).prefixes())(key)
    options = {"num_examples": 2, "query_noise": False}
    quadratic = errors_of(zero_prefixes, task, key, 5, **options)
    np.testing.assert_allclose(quadratic, np.asarray(prompt.y_query) ** 2)


def test_batches_are_drawn_in_turn(key):
    task = the_task()
    got = errors_of(zero_prefixes, task, key, 12, num_examples=2, batch_size=4)
    expected = [
        errors_of(zero_prefixes, task, k, 4, num_examples=2)
        for k in jax.random.split(key, 3)
    ]
    np.testing.assert_allclose(got, np.concatenate(expected))
    with raises("batch_size: expected a divisor of 12, got 5"):
        squared_errors(zero_prefixes, task, key, 12, num_examples=2, batch_size=5)


def test_shifts_and_other_samplers_are_sources_too(key):
    shift = garg_shift("random_quadrants", 3)
    prompt, got = jax.jit(
        lambda k: (shift(k, 7, 4), squared_errors(averaging_prefixes, shift, k, 4))
    )(key)
    answers = jax.jit(averaging_prefixes)(prompt.X, prompt.y, prompt.X_query)
    expected = (np.asarray(answers) - np.asarray(prompt.y_query)) ** 2
    np.testing.assert_allclose(got, expected, atol=1e-12)
    with raises("query_noise: expected True for a sampler"):
        squared_errors(averaging_prefixes, shift, key, 4, query_noise=False)
    with raises("query_noise: expected True for prompts already drawn"):
        squared_errors(averaging_prefixes, prompt, query_noise=False)
    with raises("key: expected a key and num_prompts unless"):
        squared_errors(averaging_prefixes, the_task())
    with raises("num_prompts: expected a positive integer, got 0"):
        squared_errors(averaging_prefixes, the_task(), key, 0)


@pytest.mark.slow
def test_a_paired_difference_is_more_precise_than_two_risks(key):
    step = functools.partial(gradient_descent_prefixes, steps=1, step_size=0.9)
    first, second = (
        np.asarray(errors_of(f, the_task(), key, 400, num_examples=6))
        for f in (averaging_prefixes, step)
    )
    risk = jax.jit(MonteCarloRisk.of)
    apart = np.hypot(*(risk(errors).standard_error for errors in (first, second)))
    paired = np.asarray(risk(first - second).standard_error)
    assert np.all(paired[1:] < 0.5 * apart[1:])


@pytest.mark.slow
def test_the_bootstrap_is_gargs(key):
    errors = np.random.default_rng(0).exponential(size=(300, 2))
    interval = jax.jit(bootstrap_interval)(errors, key)
    rng = np.random.default_rng(1)
    means = np.sort(errors[rng.integers(300, size=(1000, 300))].mean(axis=1), axis=0)
    # same order statistics of another 1,000 resamples: they agree to their own spread
    tolerance = 6 * errors.std(axis=0) / np.sqrt(300) / np.sqrt(1000) * 2.1
    assert np.all(np.abs(interval.low - means[50]) < tolerance)
    assert np.all(np.abs(interval.high - means[950]) < tolerance)
    few = jax.jit(bootstrap_interval, static_argnums=2)(errors, key, 1)
    np.testing.assert_array_equal(few.low, few.high)


@pytest.mark.slow
def test_levels_name_the_order_statistics_of_the_resamples(key):
    errors = np.random.default_rng(0).exponential(size=(30, 1))

    @functools.partial(jax.jit, static_argnums=0)
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


@pytest.mark.slow
def test_intervals_cover_the_mean_as_often_as_they_say(key):
    # 200 experiments of 100 exponential errors, mean 1
    errors = np.random.default_rng(2).exponential(size=(100, 200))
    both = jax.jit(lambda e: (student_interval(e), bootstrap_interval(e, key, 400)))
    for interval in jax.tree.map(np.asarray, both(errors)):
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
