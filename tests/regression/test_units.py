"""Answers in float32 where columns, tasks or weights have very different units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack
from icltheory.noise import support_dims
from icltheory.regression import LinearPopulation, orders, risk
from icltheory.regression.predictors import Bayes, LeastSquares, Ridge

UNITS = np.array([1e-4, 1e-1, 1.0, 1e4])


def last_prefix(X, y, query):
    X = np.concatenate([X, query[None]])
    labels = np.append(y, 0).astype(X.dtype)
    return LeastSquares().predict_prefixes(X, labels)[-1]


ols = LeastSquares().predict


@pytest.mark.parametrize("predict", [ols, last_prefix])
def test_an_intercept_beside_an_index_is_found_in_float32(predict):
    index = np.random.default_rng(0).permutation(4000)
    X = np.stack([np.ones(4000), index], axis=1).astype(np.float32)
    y = X @ np.array([2020, 2020], np.float32)
    query = np.array([1, 0], np.float32)
    assert abs(predict(X, y, query) - 2020) < 0.1
    assert abs(Ridge(0).predict(X, y, query) - 2020) < 0.1


def scaled(kind):
    """Inputs, labels, queries and weights; the columns have the sizes of UNITS."""
    rng = np.random.default_rng(1)
    num = {"wide": 3, "wide and dependent": 3}.get(kind, 30)
    X, w = rng.normal(size=(num, 4)), rng.normal(size=4)
    if kind == "collinear":
        X[:, 1] = X[:, 0] + 0.01 * rng.normal(size=num)
    X, w = (X * UNITS).astype(np.float32), w / UNITS
    if kind == "dependent":
        X[:, 3] = 8192 * X[:, 2]
    if kind == "wide and dependent":
        X[2] = 2 * X[0]
    y = X.astype(float) @ w
    y = y + (0.1 * rng.normal(size=num) if kind == "noisy" else 0)
    queries = (rng.normal(size=(5, 4)) * UNITS).astype(np.float32)
    return X, y.astype(np.float32), queries


@pytest.mark.parametrize("predict", [ols, last_prefix])
@pytest.mark.parametrize(
    "kind", ["full", "noisy", "collinear", "dependent", "wide", "wide and dependent"]
)
def test_columns_of_different_units_agree_with_numpy_in_float64(kind, predict):
    X, y, queries = scaled(kind)
    w = np.linalg.pinv(X.astype(float), 1e-13) @ y.astype(float)
    expected = queries.astype(float) @ w
    got = [float(predict(X, y, query)) for query in queries]
    size = np.abs(queries).astype(float) @ np.abs(w)
    assert np.abs(got - expected).max() < 1e-3 * size.max()


@pytest.mark.parametrize("shape", [(6, 4), (3, 4)])
def test_derivatives_of_a_deficient_fit_agree_with_differences(shape):
    rng = np.random.default_rng(2)
    factor, units = rng.normal(size=(2, *shape)), np.array([1e-2, 1.0, 1.0, 1e2])
    X, dX = factor * units
    X[:, 3], dX[:, 3] = 50 * X[:, 2], 50 * dX[:, 2]  # the rank stays the same
    y, query = rng.normal(size=shape[0]), rng.normal(size=4)
    slope = jax.jvp(lambda X: ols(X, y, query), (X,), (dX,))[1]
    ahead, behind = (
        query @ np.linalg.pinv(X + h * dX, 1e-12) @ y for h in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-5)


def population(dtype):
    H = np.diag(UNITS)
    task = LinearPopulation(
        input_cov=jnp.asarray(H, dtype),
        task_cov=jnp.asarray(np.linalg.inv(H), dtype),
        task_mean=jnp.asarray([0.5, -0.3, 0.2, 0.1], dtype),
        noise_var=jnp.asarray(0.25, dtype),
    )
    X = np.random.RandomState(3).randn(7, 4) * np.sqrt(UNITS)
    return task, jnp.asarray(X, dtype)


def numbers(dtype):
    task, X = population(dtype)
    exact, y = Bayes(task.with_(noise_var=0.0)), X @ task.task_mean
    best = reg.optimum(reg.GDBeta, task, 10).model
    step = reg.GDBeta(best.beta, 0.9 * best.Gamma)
    found = orders.rates(task, 10)
    return {
        "minimal_risk": reg.optimum(reg.LTB, task, 10).risk,
        "gd_beta_excess": reg.excess(step, task, 10).preconditioner,
        "gap": reg.gap(task, 10).lower_instance,
        "rank": reg.landscape.optimality_conditions(best, task, 10).rank,
        "least_squares_risk": risk(LeastSquares(), task, 10),
        "ridge_risk_given": Ridge(0.0).risk_given(task, X),
        "bayes_risk_given": Bayes(task).risk_given(task, X),
        "effective_dimension": found.effective_dimension,
        "best_step": found.best_step.upper,
        "length_transfer": reg.excess(best, task, 20).total,
        "sandwich": found.sandwich.upper,
        "bayes_prefixes": Bayes(task).predict_prefixes(X, y),
        "exact": exact.predict_prefixes(X, y),
    }


@pytest.mark.slow
def test_a_diagonal_population_keeps_directions_of_small_variance_in_float32():
    single, double = numbers(np.float32), numbers(np.float64)
    assert double["rank"] == 4
    for name, expected in double.items():
        np.testing.assert_allclose(single[name], expected, rtol=1e-3, err_msg=name)


def test_a_prior_of_small_scale_is_updated():
    # a variance of 1e-12 is far below (N eps)^2 of a unit prior in float32
    X, y = np.ones((40, 1), np.float32), np.full(40, 1e-6, np.float32)
    prior = LinearPopulation(jnp.eye(1), jnp.zeros(1), 1e-12 * jnp.eye(1), 1e-14)
    got = Bayes(prior).predict_prefixes(X, y)
    k = np.arange(40)
    np.testing.assert_allclose(got, 1e-6 * k / (k + 0.01), rtol=1e-4)


@pytest.mark.parametrize("units", [UNITS, UNITS[::-1] ** 1.5])
def test_dimensions_of_the_noise_do_not_depend_on_units(units):
    W = np.random.RandomState(7).randn(1, 4, 4).astype(np.float32)
    D = np.diag(units).astype(np.float32)
    stacks = [(W @ D, W, W), (D @ W, W, W), (W, W @ D, W), (W, W, D @ W)]
    assert [int(support_dims(LinearAttentionStack(*s))[0]) for s in stacks] == [10] * 4
