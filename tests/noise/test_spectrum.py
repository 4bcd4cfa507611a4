"""The spectrum: precision, size, batches and what a user mistypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.constructions import gradient_descent
from icltheory.noise import (
    demonstration_gradients,
    noise_covariance,
    noise_spectrum,
    noisy_trajectory,
    support_dims,
)
from icltheory.noise._routes import singular_values
from icltheory.noise.spectrum import _from_rows, of_gradients
from icltheory.noise.support import _independent
from icltheory.trajectory import TrajectoryFactors, implicit_gd
from tests import stacks
from tests.derivatives import slope_error
from tests.raising import raises


def problem(L=2, N=24, n=6):
    return stacks.problem(L, N, n, rho=0.3)[:2]


@pytest.mark.slow
def test_float32_keeps_small_eigenvalues_that_its_gram_matrix_loses():
    stack, H = problem(L=1, N=128, n=8)
    low = jax.tree.map(lambda a: np.asarray(a, np.float32), (stack, H))
    exact = np.asarray(stacks.spectrum(stack, H, 64).eigenvalues)[0, :36]
    assert exact[0] / exact[-1] > 1e6

    def error(method):
        got = stacks.spectrum(*low, 64, method=method)
        assert got.eigenvalues.dtype == jnp.float32
        assert method == "gram" or got.rank.tolist() == [36]
        return np.max(np.abs(np.asarray(got.eigenvalues)[0, :36] / exact - 1))

    # singular values err by eps sqrt(condition), a Gram matrix by eps * condition
    eps, condition = np.finfo(np.float32).eps, float(exact[0] / exact[-1])
    assert error("symmetric") < 10 * eps * condition**0.5
    assert error("rows") < 10 * eps * condition**0.5
    assert error("gram") > 0.03


def test_wide_tokens_need_no_matrix_of_the_ambient_size():
    stack, H = problem(L=2, N=6, n=96)
    compute = jax.jit(lambda s, H: noise_spectrum(s, H, 3))
    memory = compute.lower(stack, H).compile().memory_analysis()
    if memory is not None:  # n^2 x n^2 would be 650 MB
        assert memory.temp_size_in_bytes < 20e6
    spectrum = compute(stack, H)
    assert spectrum.rank.tolist() == [5, 5]
    assert spectrum.support_dim.tolist() == [96 * 97 // 2] * 2
    g = stacks.gradients(stack, H)[1]
    rows = g.reshape(6, -1) - g.reshape(6, -1).mean(axis=0)
    values = np.linalg.eigvalsh(rows @ rows.T)[::-1] * (3 / (3 * 5)) * 6
    got = np.asarray(spectrum.eigenvalues)[1, :5]
    np.testing.assert_allclose(got, values[:5], rtol=1e-9)


@pytest.mark.slow
def test_noise_at_given_weights_is_that_of_their_trajectory():
    stack, H = problem(n=3)
    W = np.asarray(implicit_gd(stack, H).W)
    before = np.concatenate([np.zeros_like(W[:1]), W[:-1]])
    a, b = stacks.spectrum(stack, H, 4), stacks.spectrum(stack, H, 4, W=before)
    np.testing.assert_allclose(a.log_pdet, b.log_pdet, rtol=1e-10)
    C = noise_covariance(stack, H, 4, 1, W=before)
    np.testing.assert_allclose(C, noise_covariance(stack, H, 4, 1), rtol=1e-9)


@pytest.mark.slow
def test_duplicates_and_equal_demonstrations():
    stack, H = problem(n=3)
    four = np.asarray(H)[:4]
    twice = stacks.spectrum(stack, np.tile(four, (6, 1)), 2)
    assert twice.rank.tolist() == [3, 3]
    same = stacks.spectrum(stack, np.tile(four[:1], (24, 1)), 2)
    assert not np.any(np.asarray(same.eigenvalues) > 1e-25)


@pytest.mark.parametrize(
    ("N", "method"),
    [(30, "symmetric")]
    + [pytest.param(4, m, marks=pytest.mark.slow) for m in ("rows", "symmetric")],
)
def test_the_gradient_is_that_of_differences_where_weights_are_singular(N, method):
    # those of gradient descent are, exactly, and a triangle of their factors with them
    stack = gradient_descent(np.array([0.5, 0.5]), d_in=4)
    H = np.random.default_rng(1).normal(size=(N, 5))

    def total(H):
        found = stacks.spectrum(stack, H, 2, scale=1 / N, method=method)
        parts = (found.trace, found.log_pdet, found.eigenvalues[:, 1])
        return sum(jnp.sum(part) for part in parts)

    assert abs(slope_error(total, H, step=1e-5)) < 1e-7


@pytest.mark.slow
def test_traced_shots_and_frozen_demonstrations():
    stack, H = problem(n=3)
    trace = stacks.spectrum(stack, H, 7, demo_updates="frozen").trace
    C = noise_covariance(stack, H, 7, 1, demo_updates="frozen")
    assert abs(float(trace[1]) / np.trace(C) - 1) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rows", "symmetric", "gram"])
def test_what_is_not_finite_has_no_finite_determinant(method):
    stack, H = problem(n=3)
    for broken in (np.nan, 1e60):
        found = stacks.spectrum(stack, broken * np.asarray(H), 4, method=method)
        assert np.isnan(found.log_pdet[1])


def test_bad_input():
    stack, H = problem(n=3)
    key = {"key": jax.random.key(0)}
    for message, run in (
        (
            "shots: expected an integer from 1 to N = 24",
            lambda: noise_spectrum(stack, H, 25),
        ),
        ("shots", lambda: noise_covariance(stack, H, 0, 0)),
        ("layer: expected 0 to 1, got 2", lambda: noise_covariance(stack, H, 4, 2)),
        (
            "H: expected at least 2 demonstrations, got 1",
            lambda: noise_spectrum(stack, H[:1], 1),
        ),
        (
            "H: expected shape (N, 3), got (24, 2)",
            lambda: noise_spectrum(stack, H[:, :2], 4),
        ),
        ("method: expected one of", lambda: noise_spectrum(stack, H, 4, method="svd")),
        (
            "demo_updates: expected one of 'shared', 'frozen'",
            lambda: noisy_trajectory(stack, H, 4, demo_updates="causal", **key),
        ),
        (
            "noise: expected one of",
            lambda: noisy_trajectory(stack, H, 4, noise="laplace", **key),
        ),
    ):
        with raises(message):
            run()


def test_wide_weights_are_counted_up_to_the_number_of_examples(monkeypatch):
    """With more examples than width the dimension exceeds the width."""
    monkeypatch.setattr("icltheory.noise.support._WIDE", 1)
    rng = np.random.default_rng(41)
    stack = LinearAttentionStack(*(0.3 * rng.normal(size=(3, 2, 3, 3))))
    found = noise_spectrum(stack, rng.normal(size=(23, 3)), 5)
    assert found.support_dim.tolist() == [6, 6]


def test_wide_weights_are_counted_by_their_ranks():
    n, rng = 33, np.random.default_rng(0)
    regular, W = rng.normal(size=(2, 1, n, n))
    singular = W.copy()
    singular[0, -1] = singular[0, 0]
    for weights, rank in ((W, n), (singular, n - 1)):
        dims = support_dims(LinearAttentionStack(weights, regular, regular))
        assert int(dims[0]) == rank * n - rank * (rank - 1) // 2
    # the same row space of all three, of dimension n - 1
    dims = support_dims(LinearAttentionStack(singular, singular, singular))
    assert int(dims[0]) == n * (n - 1) // 2


@pytest.mark.parametrize(("N", "limit", "kept"), [(7, 63, 2), (8, 71, 1)])
def test_gradients_that_fit_are_not_squared(N, limit, kept, monkeypatch):
    # an eigenvalue of 1e-20 of the largest is below the rounding of a Gram matrix
    monkeypatch.setattr("icltheory.noise.spectrum._ROWS_LIMIT", limit)
    left = np.zeros((1, N, 3))
    left[0, 0, 0], left[0, 1, 1] = 1, 1e-10
    gradients = TrajectoryFactors(*map(jnp.asarray, (left, left, left + 1)))
    assert of_gradients(gradients, 3, np.array([9])).rank.tolist() == [kept]


@pytest.mark.parametrize(("size", "kept"), [(12, 1), (20, 2)])
def test_the_floor_of_singular_values_is_set_by_the_longer_side(size, kept):
    rows = np.zeros((1, 64, 4))
    rows[0, 0, 0], rows[0, 1, 1] = 1, size * np.finfo(float).eps  # 2 sqrt(64) = 16
    found = _from_rows(jnp.asarray(rows), np.array([4]), 64, 8)
    assert found.rank.tolist() == [kept]


@pytest.mark.parametrize(
    "shape",
    [(3, 4, 2)]
    + [
        pytest.param(s, marks=pytest.mark.slow)
        for s in ((3, 40, 21), (2, 16, 36), (40, 41), (5, 6))
    ],
)
def test_singular_values_by_way_of_qr_are_those_of_the_svd_with_its_derivative(shape):
    rng = np.random.default_rng(0)
    rows, change = rng.standard_normal((2, *shape))
    rows -= rows.mean(axis=-2, keepdims=True)  # a triangle of it is singular
    got, moved = jax.jvp(singular_values, (jnp.asarray(rows),), (jnp.asarray(change),))
    np.testing.assert_allclose(got, np.linalg.svd(rows)[1], rtol=0, atol=1e-12)
    ends = [np.linalg.svd(rows + step * change)[1] for step in (1e-6, -1e-6)]
    kept = np.asarray(got) > 1e-6  # a vanishing value has no derivative
    slope = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(np.asarray(moved)[kept], slope[kept], atol=1e-7)


@pytest.mark.statement("Yao: C_t (definition)")
def test_no_demonstrations_have_no_gradients():
    stack, H = problem()
    assert demonstration_gradients(stack, H[:0]).left.shape == (2, 0, 6)


@pytest.mark.statement("Yao: C_t positive definite")
def test_a_deficient_weight_of_large_scale_is_counted_below_the_limit():
    rng = np.random.default_rng(3)
    W = rng.normal(size=(1, 6, 6))
    one = 1e8 * rng.normal(size=(1, 6, 1)) * rng.normal(size=(1, 1, 6))
    for weights, dim in (((one, W, W), 6), ((W, W, one), 6), ((one, W, one), 1)):
        stack = LinearAttentionStack(*weights)
        assert support_dims(stack, limit=15).tolist() == [dim]


@pytest.mark.statement("Yao: C_t positive definite")
def test_columns_are_independent_by_a_margin_far_above_rounding():
    found = [bool(_independent(jnp.diag(jnp.array([9, x])), 1.0)) for x in (1e-9, 1e-7)]
    assert found == [False, True]
