"""Exact moments of sample covariances, and the recurrences that they determine."""

import math
from fractions import Fraction

import numpy as np
import pytest

from icltheory.linalg import wishart_moments
from icltheory.linalg.random_matrices import exact_moments, recurrence_of_moments


@pytest.mark.parametrize("N", [1, 4, 7])
def test_in_one_dimension_they_are_those_of_chi_squared(N):
    expected = [math.prod(N + 2 * i for i in range(k)) / N**k for k in range(9)]
    np.testing.assert_allclose(wishart_moments(1, N, 8), expected, rtol=1e-15)


@pytest.mark.parametrize(("d", "N"), [(5, 20), (3, 2), (4, 4)])
def test_the_first_moments_have_closed_forms(d, N):
    m = exact_moments(d, N, 3)
    assert m[:3] == (1, 1, Fraction(N + d + 1, N))
    # E tr W^3 = N d (N^2 + d^2 + 3 N d + 3 N + 3 d + 4)
    third = Fraction(N**2 + d**2 + 3 * N * d + 3 * N + 3 * d + 4, N**2)
    assert m[3] == third


def test_d_and_n_are_alike():
    # X'X and XX' have the same nonzero eigenvalues.
    for k, (a, b) in enumerate(
        zip(exact_moments(3, 7, 8), exact_moments(7, 3, 8), strict=True)
    ):
        assert k == 0 or 3 * 7**k * a == 7 * 3**k * b


def test_moments_are_those_of_sampled_matrices():
    d, N, order, count = 3, 5, 5, 40_000
    X = np.random.default_rng(0).standard_normal((count, N, d))
    values = np.linalg.eigvalsh(np.swapaxes(X, 1, 2) @ X / N)
    powers = np.stack([(values**k).mean(axis=1) for k in range(1, order + 1)])
    error = powers.std(axis=1) / np.sqrt(count)
    z = np.abs(powers.mean(axis=1) - np.asarray(wishart_moments(d, N, order))[1:])
    assert (z / error).max() < 4.5


def test_a_moment_beyond_float64_is_infinite():
    assert np.isinf(wishart_moments(1, 1, 200)[-1])


def test_the_recurrence_of_an_exponential_law_is_that_of_laguerre():
    # Moments 3 k! 2^k: a_k = 2 (2 k + 1), b_k = (2 k)^2, b_0 = 3
    moments = [Fraction(3 * math.factorial(k) * 2**k) for k in range(80)]
    a, b = recurrence_of_moments(moments, 40)
    k = np.arange(40)
    np.testing.assert_allclose(a, 4 * k + 2, rtol=1e-15)
    np.testing.assert_allclose(b, np.where(k > 0, 4 * k**2, 3), rtol=1e-15)


def test_too_few_moments_are_refused():
    with pytest.raises(ValueError, match="moments: expected at least 6 for 3"):
        recurrence_of_moments([Fraction(1)] * 5, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5, 2), "dim: expected"),
        ((5, 0, 2), "num_examples: expected"),
        ((5, 5, -1), "order: expected"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        wishart_moments(*arguments)
