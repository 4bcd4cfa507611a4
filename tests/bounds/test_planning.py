"""The planning rule against the formula, its inverse and the limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bounds import planned_bound, required_samples

DIMS = np.array([5, 5])


def test_planned_bound_is_the_expansion():
    for N, b in ((1000, 20), (200, 100)):
        total = sum(m * (math.log(N / (N - b)) + (m + 1) / (2 * N)) for m in DIMS)
        assert abs(planned_bound(N, b, DIMS, 2.0) - 2 * math.sqrt(total / N)) < 1e-12


def test_planned_bound_is_infinite_without_enough_demonstrations():
    assert math.isinf(planned_bound(10, 5, np.array([10]), 1.0))
    assert math.isinf(planned_bound(10, 10, np.array([2]), 1.0))
    n = 4096  # a language model's width, ten demonstrations
    assert math.isinf(planned_bound(10, 5, np.array([n * (n + 1) // 2]), 1.0))


def test_planned_bound_in_float32_where_few_of_many_are_shown():
    N, b = 10**9, 10  # 1 - b / N is 1 in float32
    total = sum(m * (-math.log1p(-b / N) + (m + 1) / (2 * N)) for m in DIMS)
    with jax.enable_x64(False):
        planned = planned_bound(N, b, DIMS.astype(np.int32), np.float32(1.0))
    assert planned.dtype == jnp.float32
    assert abs(planned / math.sqrt(total / N) - 1) < 1e-6


@pytest.mark.parametrize("target", [0.5, 0.1, 0.03])
def test_required_samples_is_the_smallest_pool(target):
    N = required_samples(target, 0.5, DIMS, 1.0)
    assert planned_bound(N, 0.5 * N, DIMS, 1.0) <= target
    assert planned_bound(N - 1, 0.5 * (N - 1), DIMS, 1.0) > target
    leading = 10 * math.log(2) / target**2
    assert leading <= N
    if target < 0.1:
        assert 1.01 * leading > N


def test_a_plan_has_at_least_one_shot():
    N = required_samples(0.1, 1e-9, [5], 1.0)
    assert planned_bound(N, 1, [5], 1.0) <= 0.1
    assert planned_bound(N - 1, 1, [5], 1.0) > 0.1


def test_a_tiny_target_needs_more_than_an_integer_of_64_bits():
    N = required_samples(1e-13, 0.5, DIMS, 1.0)
    assert pytest.approx(10 * math.log(2) * 1e26, rel=1e-6) == N


def test_bad_input():
    with pytest.raises(ValueError, match="target: expected a finite value > 0"):
        required_samples(0.0, 0.5, DIMS, 1.0)
    with pytest.raises(ValueError, match=r"fraction: expected a value in \(0, 1\)"):
        required_samples(0.1, 1.0, DIMS, 1.0)
    with pytest.raises(ValueError, match="subgaussian_scale"):
        planned_bound(100, 50, DIMS, -1.0)
