from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.pruning import (
    Intervention,
    choose_rate,
    kept_parameters,
    rank_for_rate,
)
from icltheory.pruning.rates import as_strength
from tests.raising import raises

pytestmark = pytest.mark.statement("Yao: Section 2 (xi -> r)")

RATES = (0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)


def test_ranks_of_the_published_models():
    ranks = [rank_for_rate((4096, 4096), rate) for rate in RATES]
    assert ranks == [4096, 3686, 2048, 1024, 409, 204, 40, 20]
    assert rank_for_rate((1000, 4000), 0.99) == 10
    assert int(1000 * (10 - 10 * 0.99) * 0.1) == 9  # what floats make of it


@pytest.mark.slow
def test_every_rate_of_three_decimals_is_exact():
    for size in (64, 300, 1600, 4096):
        for thousandth in range(1000):
            rate = thousandth / 1000
            exact = Fraction(1000 - thousandth, 1000) * size
            for rule, expected in (
                ("floor", exact.numerator // exact.denominator),
                ("ceil", -((-exact.numerator) // exact.denominator)),
            ):
                got = rank_for_rate((size, size), rate, rule, at_least_one=True)
                assert got == max(expected, 1)


def test_a_rate_computed_from_a_rank_gives_the_rank_back():
    for size in (7, 33, 1000, 4096):
        for rank in range(1, size + 1, max(1, size // 50)):
            for rule in ("floor", "nearest", "ceil"):
                assert rank_for_rate((size, size), 1 - rank / size, rule) == rank


@pytest.mark.parametrize("size", [*range(1, 100, 7), 82, 768])
def test_a_rate_computed_in_float32_gives_the_rank_back(size):
    one, whole = np.float32(1), np.float32(size)
    for rank in range(1, size + 1):
        for rate in (np.float32(1 - rank / size), one - np.float32(rank) / whole):
            for rule in ("floor", "nearest", "ceil"):
                assert rank_for_rate((size, size), rate, rule) == rank


@pytest.mark.parametrize("dtype", [np.float32, jnp.float32])
def test_a_decimal_means_the_same_in_every_dtype(dtype):
    # float32(0.3) is 0.30000001192..., which kept 6 of 10 where 0.3 keeps 7
    assert rank_for_rate((5120, 5120), dtype(0.1)) == 4608
    for text in ("0.3", "0.9", "0.995", "0.12345"):
        rate = float(text)
        assert Intervention(0, "W_V", dtype(rate)).strength == rate
        assert as_strength(dtype(rate)) == rate
        assert choose_rate(jnp.array([0.5]), np.array([rate], dtype), 0.4).rate == rate
    # a score of 0.6 in float32 is not better than 0.6
    assert choose_rate(np.array([0.6], dtype), [0.5], 0.6).index is None


def test_rules_differ_where_rounding_does():
    ranks = [rank_for_rate((4096, 4096), 0.9, r) for r in ("floor", "nearest", "ceil")]
    assert ranks == [409, 410, 410]
    assert rank_for_rate((5, 9), 0.5, "nearest") == 3  # a half is rounded up
    assert rank_for_rate((9, 5), np.float32(0.1)) == 4
    assert rank_for_rate((10, 10), np.float32(0.1)) == 9
    assert rank_for_rate((10, 10), np.array(0.3)) == 7


def test_kept_parameters():
    assert kept_parameters((4096, 11008), 20) == 20 * 15104
    assert kept_parameters((8, 8), 4) == kept_parameters((8, 8), 8) == 64
    assert kept_parameters((8, 4), 0) == 0


@pytest.mark.parametrize("rate", [1, 1.5, -0.1, np.nan, np.inf, "many", [0.1]])
def test_rates_outside_the_interval(rate):
    with raises(f"rate: expected a number in [0, 1), got {rate!r}"):
        rank_for_rate((4, 4), rate)


def test_bad_input():
    with raises("rate: expected a rate that leaves a rank >= 1 of 64, got 0.99"):
        rank_for_rate((64, 256), 0.99)
    assert rank_for_rate((64, 256), 0.99, at_least_one=True) == 1
    with raises("rule: expected one of 'floor', 'nearest', 'ceil', got 'round'"):
        rank_for_rate((4, 4), 0.5, "round")
    with raises("shape: expected (m, n), got (4,)"):
        rank_for_rate((4,), 0.5)
    with raises("shape: expected a positive integer, got 0"):
        rank_for_rate((4, 0), 0.5)
    with raises("rank: expected 0 <= rank <= 4, got 5"):
        kept_parameters((4, 6), 5)
