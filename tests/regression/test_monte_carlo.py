import functools

import jax
import numpy as np
import pytest

from icltheory.regression import LinearPopulation, QuadraticRegression
from icltheory.regression.predictors import (
    averaging_prefixes,
    gradient_descent_prefixes,
    zero_prefixes,
)
from icltheory.regression.risks import monte_carlo_risk, squared_errors
from icltheory.regression.shifts import Shift
from icltheory.statistics import Estimate
from tests.raising import raises


@functools.cache
def the_task():
    return LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.5)


STATIC = ("num_prompts", "num_examples", "query_noise", "batch_size")


@functools.partial(jax.jit, static_argnums=(0, 3), static_argnames=STATIC)
def errors_of(predictor, task, key, num_prompts, **options):
    return squared_errors(predictor, task, key, num_prompts, **options)


@functools.partial(jax.jit, static_argnums=1)
def prompts(key, shape):
    return the_task().sample(key, *shape)


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
    found = jax.jit(Estimate.of)(gap)
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
    shift = Shift("random_quadrants", 3)
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
    with raises("key: expected key and num_prompts unless"):
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
    risk = jax.jit(Estimate.of)
    apart = np.hypot(*(risk(errors).standard_error for errors in (first, second)))
    paired = np.asarray(risk(first - second).standard_error)
    assert np.all(paired[1:] < 0.5 * apart[1:])
