"""Roots of covariances, and answers in float32 where units are very different."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack
from icltheory.noise import support_dims
from icltheory.regression import LinearPopulation, estimate_risk, gaps, risk
from icltheory.regression._linalg import symmetric_root
from icltheory.regression.predictors import Bayes, LeastSquares, Ridge


def covariance(name):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(3, 3))
    return {
        "general": A @ A.T,
        "identity": np.eye(3),
        "repeated": np.diag([2.0, 2.0, 0.5]),
    }[name]


@pytest.mark.parametrize("name", ["general", "identity", "repeated"])
def test_the_root_has_the_derivative_of_finite_differences(name):
    cov = covariance(name)
    change = np.array([[0.3, -0.2, 0.1], [-0.2, 0.5, 0.4], [0.1, 0.4, -0.6]])
    root = jax.jit(lambda C, dC: jax.jvp(symmetric_root, (C,), (dC,)))
    tangent = root(cov, change)[1]
    ends = [np.asarray(root(cov + s * 1e-6 * change, change)[0]) for s in (1, -1)]
    np.testing.assert_allclose(tangent, (ends[0] - ends[1]) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-24, 1e-10, 1.0, 1e10, 1e24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_of_a_singular_covariance_lie_in_its_range_at_every_scale(scale, dtype):
    basis = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
    shape = basis[:, :2] @ np.diag([1.0, 0.01]) @ basis[:, :2].T
    H = jnp.asarray((scale * shape).astype(dtype))
    task = LinearPopulation(H, jnp.zeros(3, dtype), jnp.eye(3, dtype=dtype), dtype(0.5))
    X = np.asarray(task.sample(jax.random.key(0), 99, 40).X, float).reshape(-1, 3)
    X = X / scale**0.5 @ basis
    # Variances of 3,960 draws; an eigenvalue 0 that is rounded leaves a root of eps.
    np.testing.assert_allclose(np.var(X[:, :2], axis=0), [1, 0.01], rtol=0.1)
    assert np.abs(X[:, 2]).max() < 100 * np.finfo(dtype).eps


@functools.partial(jax.jit, static_argnums=2)
def risk_and_slopes(H, Psi, num_examples):
    def risk(H, Psi):
        task = LinearPopulation(H, jnp.zeros(3), Psi, 0.5)
        drawn = {"key": jax.random.key(0), "num_prompts": 8}
        return estimate_risk(Bayes(task), task, num_examples, **drawn).mean

    return jax.value_and_grad(risk, (0, 1))(H, Psi)


@pytest.mark.parametrize(
    "num_examples", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5))]
)
@pytest.mark.parametrize("name", ["general", "identity"])
def test_the_average_bayes_risk_is_differentiable_in_both_covariances(
    name, num_examples
):
    cov, change = covariance(name), np.eye(3) + 0.2
    slopes = risk_and_slopes(cov, cov, num_examples)[1]
    for argument in (0, 1):
        slope = np.sum(np.asarray(slopes[argument]) * change)
        moved = [[cov, cov], [cov, cov]]
        moved[0][argument], moved[1][argument] = (
            cov + 1e-5 * change,
            cov - 1e-5 * change,
        )
        ends = [float(risk_and_slopes(*pair, num_examples)[0]) for pair in moved]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("num_examples", [0, 2, 6])
def test_bayes_without_noise_misses_what_the_inputs_do_not_span(num_examples):
    rng = np.random.default_rng(5)
    H, (X, change) = covariance("general"), rng.normal(size=(2, num_examples, 3))
    X[1::2] = X[::2]  # dependent rows
    task = LinearPopulation(H, noise_var=0.0)

    def expected(X):
        return np.trace(H @ (np.eye(3) - np.linalg.pinv(X, 1e-12) @ X))

    given = jax.jit(lambda X: Bayes(task).risk_given(task, X))
    np.testing.assert_allclose(given(X), expected(X), atol=1e-12)
    change[1::2] = change[::2]  # the rank stays
    slope = jax.jvp(given, (X,), (change,))[1]
    ends = [expected(X + s * 1e-6 * change) for s in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, atol=1e-7)


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


def in_units(dtype):
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
    task, X = in_units(dtype)
    exact, y = Bayes(task.with_(noise_var=0.0)), X @ task.task_mean
    best = reg.optimum(reg.GDBeta, task, 10).model
    step = reg.GDBeta(best.beta, 0.9 * best.Gamma)
    found = gaps.rates(task, 10)
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
