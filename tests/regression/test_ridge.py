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


PATH = jax.jit(
    lambda X, y, Q, mean, cov, noise: answers(bayes(mean, cov, noise), X, y, Q)
)


@pytest.mark.parametrize("rank", [0, 2, 4])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), noise=st.sampled_from([0.01, 1.0, 30.0]))
def test_bayes_is_gaussian_conditioning_also_for_a_singular_prior(rank, seed, noise):
    X, y, Q = data(seed)
    mean, cov = random_prior(seed, rank)
    got = PATH(X, y, Q, mean, cov, noise)
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
    traced = np.asarray(PATH(X, labels, Q, mean, cov, 0.0))
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
    near = PATH(X, y, Q, np.zeros(D), np.eye(D), 1e-10)
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
