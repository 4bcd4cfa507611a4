import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import SparseLinearRegression
from icltheory.regression.predictors import Lasso, LeastSquares
from icltheory.regression.predictors.others import duality_gap
from tests.regression import oracles
from tests.regression.calls import answer, answers


@jax.jit
def FIT(X, y, penalty):
    fit = Lasso(penalty).fit
    return (jax.vmap(fit) if np.ndim(X) == 3 else fit)(jnp.asarray(X), jnp.asarray(y))


PATH = jax.jit(lambda X, y, Q, a: answers(Lasso(a), X, y, Q))


def data(seed, shape):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=shape)
    return X, X @ rng.normal(size=shape[-1]) + 0.3 * rng.normal(size=shape[:-1])


@pytest.mark.parametrize("num", [5, pytest.param(12, marks=pytest.mark.slow)])
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    penalty=st.sampled_from([2.0, 0.3, 0.03, 1e-3, 1e-4]),
)
def test_weights_satisfy_the_optimality_conditions(num, seed, penalty):
    X, y = data(seed, (2, num, 6))
    fit = FIT(X, y, penalty)
    assert np.all(fit.converged)
    for Xb, yb, w in zip(X, y, np.asarray(fit.w), strict=True):
        scale = np.abs(Xb.T @ yb).max() / num
        # the conditions hold to rounding, amplified by at most cond^2 of a 6 x 6 block
        assert oracles.lasso_violation(Xb, yb, w, penalty) < 1e-9 * scale
        assert np.count_nonzero(w) <= min(num, 6)


@pytest.mark.slow
def test_the_objective_is_that_of_scikit_learn():
    # one coordinate: w = sign(c) max(|c| - penalty, 0) / g with c = x'y/N, g = x'x/N
    X, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 2.0])
    c, g = 9 / 3, 14 / 3
    predict = jax.jit(lambda X, y, x, a: answer(Lasso(a), X, y, x))
    one = np.ones(1)
    np.testing.assert_allclose(predict(X, y, one, 0.5), (c - 0.5) / g, rtol=1e-12)
    assert predict(X, y, one, 3.1) == 0.0


@pytest.mark.slow
def test_no_other_weight_has_a_lower_objective():
    X, y = data(0, (12, 6))
    w = np.asarray(FIT(np.stack([X, X]), np.stack([y, y]), 0.1).w)[0]

    def objective(w):
        return ((X @ w - y) ** 2).sum() / 24 + 0.1 * np.abs(w).sum()

    rng = np.random.default_rng(1)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            assert objective(w + size * rng.normal(size=6)) > objective(w)


@functools.cache
def garg_prompts():
    task = SparseLinearRegression(20)
    X, y = jax.jit(lambda k: task.sample(k, 40, 120).points())(jax.random.key(1))
    return np.asarray(X), np.asarray(y)


@pytest.mark.slow
def test_prefixes_satisfy_the_conditions_on_garg_prompts():
    # the same prompt 20 times, with the unit vectors as queries, shows the weights
    X, y = (np.repeat(a[:6], 20, axis=0) for a in garg_prompts())
    Q = np.broadcast_to(np.tile(np.eye(20), (6, 1))[:, None], X.shape)
    for penalty in (0.1, 1e-3):
        weights = np.asarray(PATH(X, y, Q, penalty)).reshape(6, 20, 41)
        for b in range(6):
            for k in (1, 3, 10, 19, 20, 21, 40):
                Xb, yb = X[20 * b, :k], y[20 * b, :k]
                scale = np.abs(Xb.T @ yb).max() / k
                gap = oracles.lasso_violation(Xb, yb, weights[b, :, k], penalty)
                assert gap < 1e-8 * scale


@pytest.mark.slow
def test_sparse_weights_are_recovered_before_least_squares_does():
    X, y = garg_prompts()
    error = (np.asarray(PATH(X, y, X, 0.01)) - y) ** 2
    plain = (np.asarray(answers(LeastSquares(), X, y)) - y) ** 2
    # published, over s = 3: Lasso .62 and .08 at k = 5 and 10 for its best penalty
    assert 0.4 < error[:, 5].mean() / 3 < 1.0
    assert error[:, 12].mean() / 3 < 0.2
    assert plain[:, 12].mean() / 3 > 0.3
    assert error[:, 25].mean() / 3 < 0.01


def test_a_large_penalty_gives_zero_and_a_known_zero_least_squares():
    X, y = data(0, (2, 12, 6))
    np.testing.assert_array_equal(FIT(X, y, 1e3).w, np.zeros((2, 6)))
    np.testing.assert_array_equal(FIT(X, y, 1e3).steps, [0, 0])
    x = X[:, 0]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
    close(answer(Lasso(0.0), X, y, x), answer(LeastSquares(), X, y, x))
    close(answers(Lasso(0), X, y), answers(LeastSquares(), X, y))


def test_duplicated_columns_and_rows_do_not_break_the_path():
    X, y = data(0, (2, 12, 6))
    X[..., 3] = X[..., 0]
    X[..., 5] = 0
    X[:, 7:] = X[:, :5]
    fit = FIT(X, y, 0.03)
    assert np.all(fit.converged)
    for Xb, yb, w in zip(X, y, np.asarray(fit.w), strict=True):
        assert oracles.lasso_violation(Xb, yb, w, 0.03) < 1e-9
        assert w[5] == 0
    zero = FIT(np.zeros_like(X), y, 0.03)
    np.testing.assert_array_equal(zero.w, np.zeros((2, 6)))


def test_the_gap_bounds_the_excess_of_the_objective():
    X, y = data(0, (4, 12, 6))
    best, other = FIT(X, y, 0.01).w, FIT(X, y, 0.1).w
    gap = jax.vmap(duality_gap, (0, 0, None, 0))(X, y, jnp.asarray(12 * 0.01), other)

    def objective(w):
        residual = y - np.einsum("bnd,bd->bn", X, w)
        return (residual**2).sum(1) / 24 + 0.01 * np.abs(w).sum(1)

    excess = (objective(other) - objective(best)) / ((y**2).sum(1) / 24)
    assert np.all(excess > 1e-4)
    assert np.all((gap >= excess) & (gap < 100 * excess))


def test_columns_that_float32_cannot_tell_apart_are_not_called_converged():
    # float32 misses a step of the path: its weights are off by 0.9
    rng = np.random.RandomState(0)
    X = rng.randn(60, 10)
    X[:, 5:] = X[:, :5] + 0.01 * rng.randn(60, 5)
    y = X[:, [0, 4, 7]] @ np.array([3, -2, 1]) + 0.1 * rng.randn(60)
    single = FIT(X.astype("f4"), y.astype("f4"), 0.1)
    double = FIT(X.astype("f4").astype("f8"), y.astype("f4").astype("f8"), 0.1)
    assert np.abs(single.w - double.w).max() > 0.1
    assert bool(double.converged)
    assert not bool(single.converged)
    assert double.gap < 1e-14 < 1e-5 < single.gap


def test_a_penalty_that_is_no_number_is_refused_also_if_it_is_zero():
    for penalty in (np.zeros(3), np.ones(3)):
        with pytest.raises(ValueError, match=r"^penalty: expected shape \(\)"):
            Lasso(penalty)
