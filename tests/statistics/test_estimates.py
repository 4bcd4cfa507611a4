"""Means with their standard errors, against SciPy, in NumPy and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from icltheory.statistics import Estimate, crossed_estimate
from tests.raising import raises


@pytest.mark.parametrize("read", [np.asarray, jax.device_put])
def test_mean_error_and_interval_are_scipys(read):
    values = np.random.default_rng(0).normal(size=(7, 2))
    for axis in (0, 1):
        found = Estimate.of(read(values), axis)
        np.testing.assert_allclose(found.mean, values.mean(axis), rtol=1e-14)
        error = scipy.stats.sem(values, axis)
        np.testing.assert_allclose(found.standard_error, error, rtol=1e-12)
        for level in (0.5, 0.9):
            low, high = scipy.stats.t.interval(
                level, values.shape[axis] - 1, values.mean(axis), error
            )
            np.testing.assert_allclose(found.interval(level), (low, high), rtol=1e-10)


def test_it_is_a_pytree_that_jits_and_keeps_the_dtype():
    values = jax.device_put(np.arange(6, dtype=np.float32).reshape(3, 2))
    found = jax.jit(Estimate.of)(values)
    assert (found.mean.dtype, found.dof) == (np.float32, 2)
    mean, error = found
    np.testing.assert_allclose(mean, [2, 3])
    np.testing.assert_allclose(error, (4 / 3) ** 0.5)
    assert found.half_width().dtype == np.float32


def test_one_value_has_neither_error_nor_interval():
    for values in (np.ones((1, 3)), jnp.ones((1, 3))):
        found = Estimate.of(values)
        assert np.all(np.isnan(found.standard_error))
        assert np.all(np.isnan(found.interval()))


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_the_paired_test_is_scipys(alternative):
    a, b = np.random.default_rng(0).normal(size=(2, 4, 30))
    expected = scipy.stats.ttest_rel(a, b, axis=-1, alternative=alternative)
    found = Estimate.of(a - b, axis=-1).p_value(alternative)
    np.testing.assert_allclose(found, expected.pvalue, rtol=1e-10)


def test_no_difference_is_no_evidence():
    found = Estimate.of(np.zeros((2, 5)), axis=-1)
    assert found.p_value("less").tolist() == [1.0, 1.0]
    assert found.interval().high.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [0.1, 0.5, 0.7, -0.3, 1e8 / 3])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
def test_equal_values_have_one_answer_which_fits_their_interval(value, dtype):
    def of(values):
        return Estimate.of(values if dtype is None else jnp.asarray(values, dtype))

    for size in (2, 3, 7, 1000):
        found = of(np.full(size, value))
        assert found.standard_error == 0
        assert found.interval() == (found.mean, found.mean)
        sides = [found.p_value(one) for one in ("two-sided", "less", "greater")]
        assert sides == [0, value > 0, value < 0]
    roundings = np.array([[0, 0], [1, 100], [-1, -100]])
    values = value * (1 + np.finfo(dtype or float).eps * roundings)
    assert (of(values).standard_error > 0).tolist() == [False, True]


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (np.float32, 1e-25),
        (np.float32, 1e25),
        (np.float64, 1e-200),
        (np.float64, 1e200),
    ],
)
def test_errors_are_right_where_their_squares_are_out_of_range(dtype, scale):
    """As 0, the error would make a p-value 0 of values whose signs differ."""
    values = np.array([[1, -1, 3], [2, 4, 3.5]])
    small = Estimate.of(jnp.asarray((scale * values).astype(dtype)), axis=1)
    expected = Estimate.of(values, axis=1)
    error = np.asarray(small.standard_error, float) / scale
    np.testing.assert_allclose(error, expected.standard_error, rtol=1e-6)
    np.testing.assert_allclose(small.p_value(), expected.p_value(), rtol=1e-5)


def test_half_precision_is_averaged_in_float32():
    found = Estimate.of(jnp.asarray([2.3125, 2.328125, 2.34375], jnp.bfloat16))
    assert found.mean.dtype == found.standard_error.dtype == np.float32
    assert found.standard_error == pytest.approx(0.015625 / 3**0.5, rel=1e-6)


def test_an_unknown_error_has_no_p_value():
    assert np.isnan(Estimate.of([1.0, np.nan, 2.0]).p_value())
    assert np.isnan(Estimate.of([1.0]).p_value())
    assert 0 < Estimate(1, 0.5, 10).p_value() < 1


def crossed(draws, questions, rng):
    """Answers with effects of the draw, of the question, and of both."""
    # One draw says nothing about others: it is taken for what is asked about.
    a = 0.3 * rng.normal(size=(draws, 1)) * (draws > 1)
    b = 0.3 * rng.normal(size=(1, questions))
    return 0.5 + a + b + 0.3 * rng.normal(size=(draws, questions))


@pytest.mark.parametrize(("draws", "questions"), [(5, 40), (4, 8), (1, 30)])
def test_crossed_intervals_cover_as_often_as_they_say(draws, questions):
    rng, runs = np.random.default_rng(1), 600
    found = [
        crossed_estimate(crossed(draws, questions, rng)).interval(0.9)
        for _ in range(runs)
    ]
    share = np.mean([low <= 0.5 <= high for low, high in found])
    # It may be wider: the part of both is counted twice. 4 standard errors of a share.
    assert share >= 0.9 - 4 * (0.09 / runs) ** 0.5


def test_the_crossed_error_adds_draws_and_questions():
    values = np.random.default_rng(0).normal(size=(4, 7))
    between = values.mean(1).var(ddof=1) / 4
    among = values.mean(0).var(ddof=1) / 7
    both = crossed_estimate(values)
    assert both.standard_error == pytest.approx((between + among) ** 0.5)
    dof = (between + among) ** 2 / (between**2 / 3 + among**2 / 6)
    assert both.dof == pytest.approx(dof)
    assert crossed_estimate(np.ones((3, 5))).interval() == (1.0, 1.0)
    assert np.isnan(crossed_estimate([[1.0]]).interval().low)
    assert crossed_estimate(np.full((3, 7), 0.1)).standard_error == 0
    assert crossed_estimate(1e-90 * values).dof == pytest.approx(dof)


def test_bad_input_is_named():
    with raises("values: expected at least one, got shape (0,)"):
        Estimate.of([])
    with raises("values: expected (draws, questions), got (2,)"):
        crossed_estimate([0.0, 1.0])
    with raises("level: expected a number between 0 and 1, got 1"):
        Estimate.of([0.0, 1.0]).interval(1)
    with raises("alternative: expected one of 'two-sided', 'less', 'greater'"):
        Estimate.of([0.0, 1.0]).p_value("both")
