import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.linalg import (
    condition_number,
    effective_rank,
    low_rank_approximation,
    safe_sqrt,
    singular_values,
    stable_rank,
    svd,
    thin_frobenius_inner,
)
from icltheory.linalg.products import frobenius_norm, magnitude
from tests.raising import raises

SHAPES = [(5, 5), (4, 7), (7, 4)]


def matrix(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def with_values(values, shape, seed=0):
    """A matrix of the given shape with the given singular values."""
    rng = np.random.default_rng(seed)
    k = len(values)
    U = np.linalg.qr(rng.normal(size=(shape[0], k)))[0]
    V = np.linalg.qr(rng.normal(size=(shape[1], k)))[0]
    return U @ np.diag(values) @ V.T


@pytest.mark.parametrize("shape", SHAPES)
def test_svd_and_values_agree_with_scipy(shape):
    W = matrix(shape)
    expected = scipy.linalg.svdvals(W)
    np.testing.assert_allclose(singular_values(W), expected, rtol=1e-13)
    full = svd(W)
    np.testing.assert_allclose(full.s, expected, rtol=1e-13)
    np.testing.assert_allclose(full.truncate(min(shape)), W, atol=1e-13)


@settings(max_examples=20, deadline=None)
@given(
    shape=st.sampled_from(SHAPES), rank=st.integers(0, 4), seed=st.integers(0, 2**32)
)
def test_eckart_young_no_other_matrix_of_the_rank_is_closer(shape, rank, seed):
    W = matrix(shape, seed)
    best = np.asarray(low_rank_approximation(W, rank))
    s = scipy.linalg.svdvals(W)
    assert np.linalg.matrix_rank(best, tol=1e-10) == rank
    error = np.linalg.norm(W - best)
    np.testing.assert_allclose(error, np.sqrt((s[rank:] ** 2).sum()), atol=1e-12)
    tail = s[rank] if rank < len(s) else 0.0
    np.testing.assert_allclose(np.linalg.norm(W - best, 2), tail, atol=1e-12)
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rank, shape[1]))
    rival = W @ np.linalg.pinv(rows) @ rows  # the best of rank r with these rows
    assert error <= np.linalg.norm(W - rival) + 1e-12


def test_one_decomposition_serves_all_ranks():
    W = jnp.asarray(matrix((4, 7)))
    swept = jax.jit(jax.vmap(svd(W).truncate))(jnp.arange(5))
    traced = jax.jit(jax.vmap(low_rank_approximation, (None, 0)))(W, jnp.arange(5))
    for rank in range(5):
        direct = low_rank_approximation(W, rank)
        np.testing.assert_allclose(np.asarray(swept)[rank], direct, atol=1e-13)
        np.testing.assert_allclose(np.asarray(traced)[rank], direct, atol=1e-13)


# Equal values among the kept, among the removed, and at zero; the gap at the cut
# is what makes the map differentiable.
@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ((4, 4), [3.0, 3.0, 1.0, 1.0]),
        ((5, 3), [3.0, 3.0, 0.5]),
        ((3, 5), [3.0, 3.0, 0.0]),
        ((4, 6), [2.5, 2.0, 1.0, 0.3]),
    ],
)
def test_derivative_of_the_truncation_is_exact_at_repeated_values(shape, values):
    W, E, rank = with_values(values, shape), matrix(shape, 1), 2

    def truncated(W):
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        return (U[:, :rank] * s[:rank]) @ Vt[:rank]

    step = 1e-5
    expected = (truncated(W + step * E) - truncated(W - step * E)) / (2 * step)
    W, E = jnp.asarray(W), jnp.asarray(E)
    C = jnp.asarray(matrix(shape, 2))

    @jax.jit
    def derivatives(W, E):
        def best(W):
            return low_rank_approximation(W, rank)

        forward = jax.jvp(best, (W,), (E,))[1]
        backward = jax.grad(lambda W: (C * best(W)).sum())(W)
        return forward, (C * forward).sum(), (backward * E).sum()

    forward, *products = derivatives(W, E)
    # central differences: error ~ step^2 * curvature ~ 1e-9
    np.testing.assert_allclose(forward, expected, atol=1e-7)
    np.testing.assert_allclose(*products, rtol=1e-10)


@pytest.mark.slow
def test_derivative_through_the_plain_svd_is_not_finite_at_repeated_values():
    W = jnp.diag(jnp.array([2.0, 2.0, 1.0]))
    plain = jax.jit(jax.grad(lambda W: (svd(W).truncate(2) ** 2).sum()))(W)
    assert not np.isfinite(plain).all()
    safe = jax.jit(jax.grad(lambda W, r: (low_rank_approximation(W, r) ** 2).sum()))
    np.testing.assert_allclose(safe(W, 2), 2 * np.diag([2.0, 2, 0]), atol=1e-14)
    assert np.isfinite(safe(W, 1)).all()  # a tie across the cut


@jax.jit
@jax.value_and_grad
def value_and_slope(W, C):
    return (C * low_rank_approximation(W, 2)).sum()


def slope_at(W, C):
    return value_and_slope(W, C)[1]


def test_the_value_beside_a_derivative_is_that_without_one():
    W, C = (matrix((5, 4), seed) for seed in (0, 1))
    value = (C * low_rank_approximation(W, 2)).sum()
    np.testing.assert_allclose(value_and_slope(W, C)[0], value, rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e-22, 1e22])
def test_derivative_of_the_truncation_has_no_scale(size):
    W, C = (matrix((5, 4), seed).astype(np.float32) for seed in (0, 1))
    scaled, plain = slope_at(np.float32(size) * W, C), slope_at(W, C)
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=1e-5)


def test_a_tie_up_to_rounding_is_a_tie():
    Q, C = np.linalg.qr(matrix((5, 5)))[0], matrix((5, 5), 1)
    assert 0 < np.ptp(np.linalg.svd(Q)[1]) < 1e-14
    slope = slope_at(Q, C)
    assert np.linalg.norm(slope) <= np.linalg.norm(C)  # a projection of C


@pytest.mark.statement("Yao: Section 3.4, condition number")
def test_condition_number_is_a_ratio_of_singular_values():
    W = with_values([8.0, 4.0, 2.0], (3, 5))
    np.testing.assert_allclose(condition_number(W), 4.0, rtol=1e-13)
    np.testing.assert_allclose(condition_number(W, rank=2), 2.0, rtol=1e-13)
    W = matrix((5, 5))
    np.testing.assert_allclose(condition_number(W), np.linalg.cond(W), rtol=1e-10)


@pytest.mark.statement("Yao: Section 3.4, condition number")
def test_infinity_is_a_condition_number():
    assert condition_number(np.diag([1.0, 0.0])) == np.inf
    assert condition_number(np.zeros((2, 3))) == np.inf
    pruned = low_rank_approximation(matrix((4, 4)), 2)
    assert condition_number(pruned) > 1e13  # singular only up to rounding
    assert condition_number(pruned, rank=2) < 1e3


def test_ranks_of_known_spectra():
    s = np.array([3.0, 2.0, 1.0])
    W = with_values(s, (4, 6))
    p = s / s.sum()
    entropy = np.exp(-(p * np.log(p)).sum())
    np.testing.assert_allclose(effective_rank(W), entropy, rtol=1e-12)
    np.testing.assert_allclose(stable_rank(W), 14 / 9, rtol=1e-12)
    for rank in (effective_rank, stable_rank):
        assert float(rank(jnp.zeros((3, 3)))) == 0.0
        np.testing.assert_allclose(rank(jnp.ones((3, 3))), 1.0, rtol=1e-12)
        for scale in (1.7e308, 1e308, 1.0, 1e-300):
            np.testing.assert_allclose(rank(scale * jnp.eye(3)), 3.0, rtol=1e-12)
        np.testing.assert_allclose(rank(7.0 * W), rank(W), rtol=1e-12)


def test_spectra_take_stacks_of_matrices():
    stack = matrix((3, 4, 5))
    measures = singular_values, condition_number, effective_rank, stable_rank
    run = jax.jit(lambda W: [measure(W) for measure in measures])
    for together, *apart in zip(run(stack), *map(run, stack), strict=True):
        np.testing.assert_allclose(together, apart, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_thin_products_equal_the_dense_ones(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    C, D = rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
    dense = np.sum((A @ B.T) * (C @ D.T))
    np.testing.assert_allclose(thin_frobenius_inner(A, B, C, D), dense, atol=1e-12)


@pytest.mark.parametrize("size", [1e-200, 3.0, 1e200])
def test_norms_do_not_square_out_of_range(size):
    A = size * matrix((3, 2))
    norm = np.linalg.norm(A / size)
    np.testing.assert_allclose(frobenius_norm(A) / size, norm, rtol=1e-13)
    unit = magnitude(jnp.asarray(A)) / np.abs(A).max()
    assert 0.5 < unit <= 1


@pytest.mark.slow
def test_norm_of_nothing_is_zero_with_gradient_zero():
    assert float(frobenius_norm(jnp.ones((4, 0)))) == 0.0
    np.testing.assert_array_equal(jax.grad(frobenius_norm)(jnp.zeros((4, 2))), 0)


def test_dtype_follows_the_input():
    W = jnp.ones((3, 2), jnp.bfloat16)
    best = low_rank_approximation(W, 1)
    assert best.dtype == jnp.bfloat16
    np.testing.assert_array_equal(best.astype(float), 1.0)
    assert jax.eval_shape(singular_values, W).dtype == jnp.float32
    W = W.astype(jnp.float32)
    for measure in (condition_number, effective_rank, stable_rank):
        assert jax.eval_shape(measure, W).dtype == jnp.float32


def test_bad_input_says_what_was_expected():
    W = jnp.ones((3, 4))
    for rank in (-1, 4):
        with raises("rank: expected 0 <= rank <= 3, got"):
            low_rank_approximation(W, rank)
        with raises("rank: expected 0 <= rank <= 3, got"):
            svd(W).truncate(rank)
    with raises("rank: expected 1 <= rank <= 3, got 0"):
        condition_number(W, rank=0)
    with raises("B: expected shape (n, 4), got (3, 2)"):
        thin_frobenius_inner(W, W[:, :2], W, W)


def test_a_safe_root_is_the_root_and_0_below_0():
    x = jnp.array([-1e-17, 0.0, 0.25, 4.0, jnp.nan])
    np.testing.assert_array_equal(safe_sqrt(x), np.array([0, 0, 0.5, 2, np.nan]))
