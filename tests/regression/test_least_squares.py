"""Least squares, ridge regression and Bayes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import LinearPopulation
from icltheory.regression.predictors import Bayes, LeastSquares, Ridge
from tests.regression import oracles
from tests.regression.calls import answer, answers

FIT = functools.partial(answer, LeastSquares())
PATH = functools.partial(answers, LeastSquares())


def cases(rng):
    """Prompts (9, 4) whose rows are dependent in one way or another."""
    X = rng.normal(size=(9, 4))
    duplicated = X.copy()
    duplicated[[1, 5, 8]] = X[[0, 2, 2]]
    subspace = X[:, :2] @ rng.normal(size=(2, 4))
    zeros = X.copy()
    zeros[[0, 3]] = 0
    combined = X.copy()
    combined[2] = 0.5 * X[0] - 3 * X[1]
    truncated = X.copy()
    truncated[:, 2:] = 0
    scaled = X * np.array([1.0, 1e-3, 1e3, 1.0, 1.0, 1e-3, 1.0, 1e3, 1.0])[:, None]
    return np.stack([X, duplicated, subspace, zeros, combined, truncated, scaled])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_minimum_norm_weights_agree_with_numpy_for_dependent_rows_too(seed):
    rng = np.random.default_rng(seed)
    X = cases(rng)
    y = rng.normal(size=X.shape[:2])
    Q = rng.normal(size=X.shape)
    got = np.asarray(PATH(X, y, Q))
    expected = oracles.each_prefix(oracles.ols, X, y, Q)
    for b in range(len(X)):
        for k in range(9):
            s = np.linalg.svd(X[b, :k], compute_uv=False) if k else np.ones(1)
            s = s[s > 1e-12 * s[0]] if s[0] else np.ones(1)
            # error of a backward stable method on inconsistent data: eps cond^2
            bound = 1e-14 * (s[0] / s[-1]) ** 2 * (1 + abs(expected[b, k])) / min(s)
            assert abs(got[b, k] - expected[b, k]) < 1e-9 + 100 * bound


def test_the_direct_call_agrees_with_numpy_for_dependent_rows_too():
    rng = np.random.default_rng(0)
    X = cases(rng)[:6]
    y, Q = rng.normal(size=X.shape[:2]), rng.normal(size=X.shape)
    for k in (3, 9):
        got = FIT(X[:, :k], y[:, :k], Q[:, -1])
        expected = [
            oracles.ols(a, b, x)
            for a, b, x in zip(X[:, :k], y[:, :k], Q[:, -1], strict=True)
        ]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_noiseless_labels_are_found_in_float32_at_every_prefix():
    # d = 20 and 41 points as in Garg: worst cases over 256 prompts
    rng = np.random.default_rng(0)
    X = rng.normal(size=(256, 41, 20)).astype(np.float32)
    w = rng.normal(size=(256, 20))
    y = np.einsum("bnd,bd->bn", X, w).astype(np.float32)
    got = np.asarray(PATH(X, y))
    assert got.dtype == np.float32
    exact = np.asarray(PATH(X.astype(np.float64), np.einsum("bnd,bd->bn", X, w)))
    errors = np.abs(got - exact)
    conditions = np.array([np.linalg.cond(X[:, :k]) for k in range(1, 41)])
    worst = np.maximum(conditions, 1).T * 20 * np.finfo(np.float32).eps * 20
    assert np.all(errors[:, 1:] < worst)
    assert np.median(errors[:, 20]) < 1e-4
    assert np.max(errors[:, 30:]) < 1e-4  # the spike at k = d does not linger


@pytest.mark.slow
def test_noisy_rows_of_a_subspace_are_fitted_inside_it_in_float32():
    # half of the directions are empty up to rounding; noise must not leak into them
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(20, 10)))[0]
    X = (rng.normal(size=(256, 41, 10)) @ basis.T).astype(np.float32)
    y = rng.normal(size=(256, 41)).astype(np.float32)
    got = np.asarray(PATH(X, y))
    Z = np.einsum("bnd,de->bne", X.astype(np.float64), basis)
    exact = np.asarray(PATH(Z, y.astype(np.float64)))
    errors = np.abs(got - exact)[:, 1:]
    conditions = np.array([np.linalg.cond(Z[:, :k]) for k in range(1, 41)]).T
    so_far = np.maximum.accumulate(conditions, axis=1)
    eps = np.finfo(np.float32).eps
    assert so_far.max() > 1e4  # some prompts are hard
    assert np.all(errors < 20 * eps * (so_far + conditions**2))
    assert np.max(errors[:, 20:]) < 1e-3
    assert np.median(errors) < 1e-5


@pytest.mark.parametrize("rows", [5, 20, 40])
@pytest.mark.parametrize("rank", [5, 3])
def test_float32_errs_by_the_condition_number_and_not_its_square(rows, rank):
    # d = 20; singular values from 1 to 1e-3, and zeros where the rank is less
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(64, rows, rows)))[0][:, :, :rank]
    V = np.linalg.qr(rng.normal(size=(64, 20, 20)))[0][:, :, :rank]
    s = np.logspace(0, -3, rank)
    X = np.einsum("bnk,k,bdk->bnd", U, s, V)
    w, x = rng.normal(size=(2, 64, 20))
    y = np.einsum("bnd,bd->bn", X, w)
    weight = np.einsum("bdk,bek,be->bd", V, V, w)
    got = np.asarray(FIT(*(np.asarray(a, np.float32) for a in (X, y, x))))
    sizes = np.linalg.norm(x, axis=1) * np.linalg.norm(weight, axis=1)
    errors = np.abs(got - np.einsum("bd,bd->b", weight, x)) / sizes
    assert got.dtype == np.float32
    assert errors.max() < 1e3 * 5 * np.finfo(np.float32).eps


@pytest.mark.parametrize("shape", [(3, 5), (5, 5), (8, 5)])
def test_derivatives_exist_where_the_fit_is_exact(shape):
    # the triangle behind the value is singular there
    rng = np.random.default_rng(0)
    X, dX = rng.normal(size=(2, *shape))
    w, x = rng.normal(size=(2, 5))
    y, dy = X @ w, rng.normal(size=shape[0])
    fit = jax.jit(
        lambda X, y, dX, dy: jax.jvp(lambda X, y: FIT(X, y, x), (X, y), (dX, dy))
    )
    slope = fit(X, y, dX, dy)[1]
    ahead, behind = (oracles.ols(X + h * dX, y + h * dy, x) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6)


B, N, D = 2, 9, 4


def data(seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(B, N, D)),
        rng.normal(size=(B, N)),
        rng.normal(size=(B, N, D)),
    )


def random_prior(seed, rank=D):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(D, rank))
    return rng.normal(size=D), root @ root.T


def bayes(mean, cov, noise):
    return Bayes(LinearPopulation(np.eye(len(mean)), mean, cov, noise))


def ridge(X, y, x, penalty):
    return answer(Ridge(penalty), X, y, x)


def both_of(rule, X, y, Q):
    return answers(rule, X, y, Q), answer(rule, X, y, Q[:, 0])


def both(X, y, Q, mean, cov, noise):
    return both_of(bayes(mean, cov, noise), X, y, Q)


least_squares = jax.jit(functools.partial(both_of, LeastSquares()))


POSTERIOR = jax.jit(
    lambda X, y, Q, mean, cov, noise: answers(bayes(mean, cov, noise), X, y, Q)
)


@pytest.mark.parametrize("rank", [0, 2, 4])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), noise=st.sampled_from([0.01, 1.0, 30.0]))
def test_bayes_is_gaussian_conditioning_also_for_a_singular_prior(rank, seed, noise):
    X, y, Q = data(seed)
    mean, cov = random_prior(seed, rank)
    got = POSTERIOR(X, y, Q, mean, cov, noise)
    expected = oracles.each_prefix(
        lambda X, y, x: oracles.bayes(X, y, x, mean, cov, noise), X, y, Q
    )
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def test_without_noise_bayes_is_least_squares_about_the_prior():
    X, y, Q = data()
    # the noise is known to be zero: it is no argument of what is traced
    found = jax.jit(lambda X, y, Q: both(X, y, Q, np.zeros(D), np.eye(D), 0.0))(X, y, Q)
    for got, expected in zip(found, least_squares(X, y, Q), strict=True):
        np.testing.assert_allclose(got, expected)
    mean, cov = random_prior(3, 2)
    w = mean + np.linalg.svd(cov)[0][:, :2] @ np.ones(2)
    labels = X @ w
    path, one = jax.jit(lambda X, y, Q: both(X, y, Q, mean, cov, 0.0))(X, labels, Q)
    np.testing.assert_allclose(np.asarray(path)[:, 2:], (Q @ w)[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(one, Q[:, 0] @ w, rtol=1e-6)
    # known also within a jit, which traces all arrays that are made there
    few = jax.jit(lambda X, y, Q: both(X, y, Q, np.zeros(D), np.eye(D), 0.0)[1])
    expected = [oracles.ols(X[b, :2], y[b, :2], Q[b, 0]) for b in range(B)]
    np.testing.assert_allclose(few(X[:, :2], y[:, :2], Q[:, :2]), expected, rtol=1e-10)
    # a traced zero is the limit on consistent labels
    traced = np.asarray(POSTERIOR(X, labels, Q, mean, cov, 0.0))
    np.testing.assert_allclose(traced[:, 2:], (Q @ w)[:, 2:], rtol=1e-5)


def test_inputs_that_are_almost_parallel_count_where_there_is_no_noise():
    X = jnp.array([[1.0, 0.0], [1.0, 1e-8], [0.0, 1.0]])[None]
    found = answers(Bayes(LinearPopulation.isotropic(2)), X, X.sum(axis=-1))
    np.testing.assert_allclose(found[0, 2], 1, rtol=1e-6)


def test_a_known_zero_penalty_is_least_squares_and_a_small_one_is_close():
    X, y, Q = data()
    path, one = least_squares(X, y, Q)
    found = both_of(Ridge(0), X, y, Q)
    for got, expected in zip(found, (path, one), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    near = POSTERIOR(X, y, Q, np.zeros(D), np.eye(D), 1e-10)
    np.testing.assert_allclose(near, path, rtol=1e-4, atol=1e-4)


def test_a_small_penalty_is_accurate_in_float32():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 41, 20)).astype(np.float32)
    y = np.einsum("bnd,bd->bn", X, rng.normal(size=(64, 20))).astype(np.float32)
    path = jax.jit(functools.partial(answers, Ridge(1e-4)))
    got = np.asarray(path(X, y))
    exact = np.asarray(path(X.astype(np.float64), y.astype(np.float64)))
    # sqrt(1e-4) bounds the condition number by about 1e3
    assert np.max(np.abs(got - exact)) < 20 * 1e3 * np.finfo(np.float32).eps
    naive = np.zeros_like(exact[:, 20])
    for b in range(64):
        gram = X[b, :20].T @ X[b, :20] + np.float32(1e-4) * np.eye(20, dtype=np.float32)
        naive[b] = X[b, 20] @ np.linalg.solve(gram, X[b, :20].T @ y[b, :20])
    ours, theirs = (np.max(np.abs(a - exact[:, 20])) for a in (got[:, 20], naive))
    assert ours < 0.2 * theirs  # normal equations square the condition number


def test_derivatives_of_ridge_are_right_also_without_any_label():
    X, y, Q = data()
    X, x = X[0], Q[0, 0]

    def direct(X, y, penalty):
        gram = X.T @ X + penalty * jnp.eye(D)
        return x @ jnp.linalg.solve(gram, X.T @ y)

    def ours(X, y, penalty):
        return ridge(X, y, x, penalty)

    slopes = [jax.jit(jax.grad(f, (0, 1, 2))) for f in (ours, direct)]
    for labels in (y[0], np.zeros(N)):
        got, expected = (slope(X, labels, 0.3) for slope in slopes)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    second = jax.jit(jax.grad(jax.grad(ours, 2), 2))(X, y[0], 0.3)
    expected = jax.jit(jax.grad(jax.grad(direct, 2), 2))(X, y[0], 0.3)
    np.testing.assert_allclose(second, expected, rtol=1e-9)


PRIOR = LinearPopulation(np.eye(D), np.zeros(D), np.eye(D), 0.3)
SOLVES = {
    "ols": lambda X, y, x: answer(LeastSquares(), X, y, x),
    "ridge": lambda X, y, x: ridge(X, y, x, 0.3),
    "bayes": lambda X, y, x: answer(Bayes(PRIOR), X, y, x),
    "weights": lambda X, y, x: jax.vmap(Bayes(PRIOR).weights)(X, y),
}


@pytest.mark.parametrize("name", SOLVES)
def test_no_orthogonal_factor_is_formed(name):
    """A GPU forms those of a batch one after the other; QR and triangles, at once."""
    X, y, Q = data()
    text = jax.jit(SOLVES[name]).lower(X, y, Q[:, 0]).compile().as_text()
    assert "geqrf" in text
    assert "orgqr" not in text
