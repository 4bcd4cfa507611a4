import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression.predictors import LeastSquares
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
