"""What all predictors share: oracles, twins, batches, symmetries, edge cases."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import LinearPopulation
from icltheory.regression import predictors as P
from tests.raising import raises
from tests.regression import oracles
from tests.regression.calls import answer, answers

B, N, D = 3, 9, 4
MEAN = np.array([1.0, -2.0, 0.5, 0.0])
PSI = np.array(
    [[2.0, 0.5, 0.0, 0.0], [0.5, 1.0, 0.2, 0.0], [0.0, 0.2, 0.5, 0.0], [0.0] * 4]
)
POOL = np.random.default_rng(3).normal(size=(21, D))
A = np.diag([1.0, 0.5, 2.0, 1.5]) + 0.1
STEPS = np.array([0.3, 0.1, 0.2])

CASES = {
    "zero": (P.Zero(), lambda X, y, x: 0.0),
    "ols": (P.LeastSquares(), oracles.ols),
    "ridge": (P.Ridge(0.4), functools.partial(oracles.ridge, penalty=0.4)),
    "bayes": (
        P.Bayes(LinearPopulation(np.eye(D), MEAN, PSI, 0.3)),
        functools.partial(oracles.bayes, mean=MEAN, cov=PSI, noise_var=0.3),
    ),
    "averaging": (P.Averaging(), oracles.averaging),
    "3-NN": (P.NearestNeighbors(3), functools.partial(oracles.nearest_neighbors, k=3)),
    "gradient descent": (
        P.Steps(STEPS, A),
        functools.partial(oracles.gradient_descent, step_sizes=STEPS, preconditioner=A),
    ),
    "newton": (P.Newton(6), functools.partial(oracles.newton, steps=6, scale=1.0)),
    "dMMSE": (
        P.DiscreteMMSE(POOL, 0.3, 8),
        functools.partial(oracles.discrete_mmse, pool=POOL, noise_var=0.3),
    ),
    "lasso": (P.Lasso(0.1), None),
}
SLOW = pytest.mark.slow


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(B, N, D))
    y = X @ rng.normal(size=D) + 0.5 * rng.normal(size=(B, N))
    return X, y, rng.normal(size=(B, N, D))


@functools.cache
def prefixes(name):
    return jax.jit(functools.partial(answers, CASES[name][0]))


@functools.cache
def direct(name):
    return jax.jit(functools.partial(answer, CASES[name][0]))


@pytest.mark.parametrize("name", [n for n in CASES if n != "lasso"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_prefix_agrees_with_the_definition(name, seed):
    oracle = CASES[name][1]
    X, y, Q = data(seed)
    got = prefixes(name)(X, y, Q)
    assert got.shape == (B, N)
    expected = oracles.each_prefix(oracle, X, y, Q)
    # At k = d the condition number is unbounded; above 1e5 the tolerance would fail.
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [n for n in CASES if n != "lasso"])
@pytest.mark.parametrize("length", [1, N])
def test_a_batch_of_prompts_agrees_with_the_definition(name, length):
    X, y, Q = data()
    prompts = X[:, :length], y[:, :length], Q[:, 0]
    expected = [CASES[name][1](*prompt) for prompt in zip(*prompts, strict=True)]
    got = direct(name)(*prompts)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_prefixes_of_the_lasso_equal_a_direct_call():
    X, y, Q = data()
    expected = direct("lasso")(X[:, :D], y[:, :D], Q[:, D])
    got = prefixes("lasso")(X, y, Q)[:, D]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("ridge", "newton") else pytest.param(name, marks=SLOW)
        for name in CASES
    ],
)
def test_float32_in_float32_out_and_close_to_float64(name):
    X, y, Q = (a.astype(np.float32) for a in data())
    got = prefixes(name)(X, y, Q)
    assert got.dtype == jnp.float32
    exact = prefixes(name)(*(a.astype(np.float64) for a in (X, y, Q)))
    np.testing.assert_allclose(got, exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("bayes", "lasso") else pytest.param(name, marks=SLOW)
        for name in CASES
    ],
)
def test_derivatives_agree_with_finite_differences(name):
    path = CASES[name][0].predict_prefixes

    def total(X, y, Q):
        return jnp.sum(jnp.sin(path(X, y, Q)))

    both = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
    for seed in range(4):
        point = tuple(a[0, :6] for a in data(seed))
        rng = np.random.default_rng(seed + 10)
        direction = [rng.normal(size=a.shape) for a in point]
        _, gradients = both(*point)
        got = sum(np.vdot(g, d) for g, d in zip(gradients, direction, strict=True))
        up, down = (
            both(*(a + s * 1e-6 * d for a, d in zip(point, direction, strict=True)))[0]
            for s in (1, -1)
        )
        np.testing.assert_allclose(got, (up - down) / 2e-6, rtol=1e-4, atol=1e-6)


def test_no_examples_predict_the_prior_mean():
    X, y, Q = data()
    empty = X[:, :0], y[:, :0], Q[:, 0]
    for name in CASES:
        got = direct(name)(*empty)
        expected = {"bayes": Q[:, 0] @ MEAN, "dMMSE": Q[:, 0] @ POOL.mean(axis=0)}.get(
            name, np.zeros(B)
        )
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_bad_prompts_say_what_was_expected():
    X, y, Q = (array[0] for array in data())
    for rule, _ in CASES.values():
        for call in (rule.predict, rule.predict_prefixes):
            with raises("y: expected shape (9,), got (8,)"):
                call(X, y[1:], Q[0] if call == rule.predict else Q)
        with raises("x_query: expected shape (4,), got (3,)"):
            rule.predict(X, y, Q[0, 1:])
        with raises("X_query: expected shape (9, 4), got (8, 4)"):
            rule.predict_prefixes(X, y, Q[1:])
        with raises("X: expected shape ("):
            rule.predict(X[None], y[None], Q[None, 0])


def test_bad_options_say_what_was_expected():
    X, y, Q = (array[0] for array in data())
    with raises("k: expected a positive integer, got 0"):
        P.NearestNeighbors(0)
    for rule in (P.Ridge, P.Lasso):
        with raises("penalty: expected a value >= 0, got -1.0"):
            rule(-1.0)
        with raises("penalty: expected finite entries, got "):
            rule(np.nan)
        for penalty in (np.zeros(3), np.ones(3)):
            with raises("penalty: expected shape ()"):
                rule(penalty)
    with raises("step_sizes: expected an integer >= 0, got -1"):
        P.Steps(-1)
    with raises("steps: expected an integer >= 0, got -2"):
        P.Newton(-2)
    for noise_var in (0.0, -1.0):
        with raises("noise_var: expected a value > 0 (the noiseless posterior"):
            P.DiscreteMMSE(POOL, noise_var)
    with raises("pool size: expected a positive integer, got 0"):
        P.DiscreteMMSE(POOL[:0], 1.0)
    for rule in (
        P.Steps([0.1, 0.1], np.eye(3)),
        P.DiscreteMMSE(POOL[:, 1:], 1.0),
        P.Bayes(LinearPopulation.isotropic(3)),
    ):
        with pytest.raises(ValueError, match="shape|Size"):
            rule.predict(X, y, Q[0])
    X, y, Q = data()
    with raises("steps: expected a positive integer, got 0"):
        P.tune_step_size(X, y, Q[:, 0], y[:, 0], steps=0)
