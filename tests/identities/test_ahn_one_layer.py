"""Ahn et al. (2023), Theorem 1: the optimum of one layer, in their convention."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from icltheory import constructions
from icltheory import regression as reg
from icltheory.attention import linear_attention
from icltheory.regression import LinearPopulation
from tests.regression import oracles_ltb_rates as oracles

pytestmark = pytest.mark.statement("Ahn: Theorem 1, P and Q")

DIM = 3


@jax.jit
def predict(P, Q, X, y, x_query):
    """-[Z + P Z M Z'Q Z / n]_{d+1, n+1} with the mask M = diag(1, ..., 1, 0)."""
    width, count = X.shape[-1] + 1, max(X.shape[-2], 1)
    eye = jnp.eye(width)

    def one(X, y, x):
        tokens = constructions.join_tokens(X, y[:, None], x)
        out = linear_attention(P, eye, Q, *tokens, mask="demos", scale=1 / count)
        return constructions.read_prediction(out.h_query, width - 1)[0]

    return jax.vmap(one)(X, y, x_query) if X.ndim == 3 else one(X, y, x_query)


stack_of = jax.jit(constructions.preconditioned_gradient_descent)


def published(Sigma, n):
    lam, V = np.linalg.eigh(Sigma)
    return V @ np.diag(1 / ((n + 1) / n * lam + lam.sum() / n)) @ V.T


class Best(NamedTuple):
    A: jax.Array
    risk: jax.Array
    P: jax.Array
    Q: jax.Array


@jax.jit
def optimum(Sigma, Psi, noise_var, n):
    """A, its risk, and the P and Q that make the step."""
    problem = LinearPopulation(Sigma, jnp.zeros(len(Sigma)), Psi, noise_var)
    best = reg.optimum(reg.LinearStep, problem, n)
    return Best(best.model.Gamma, best.risk, *best.model.masked_weights())


def drawn(seed):
    rng = np.random.default_rng(seed)
    return rng, oracles.random_cov(rng, DIM), int(rng.integers(2, 12))


def test_optimum_is_the_published_one(measured):
    for seed in range(10):
        _, Sigma, n = drawn(seed)
        best = optimum(Sigma, np.eye(DIM), 0.0, n)
        A = published(Sigma, n)
        measured("error of A", np.abs(best.A - A).max())
        np.testing.assert_allclose(best.A, A, rtol=1e-11, atol=1e-13)
        expected = oracles.one_step_risk(A, Sigma, np.eye(DIM), 0.0, n)
        np.testing.assert_allclose(best.risk, expected, rtol=1e-12)
        P, Q = np.zeros((2, DIM + 1, DIM + 1))
        P[DIM, DIM], Q[:DIM, :DIM] = 1, -A
        np.testing.assert_array_equal(best.P, P)
        np.testing.assert_allclose(best.Q, Q, rtol=1e-11, atol=1e-13)
        whitened = optimum(Sigma, np.linalg.inv(Sigma), 0.0, n)
        expected = n / (n + DIM + 1) * np.linalg.inv(Sigma)
        np.testing.assert_allclose(whitened.A, expected, rtol=1e-10, atol=1e-12)
    isotropic = optimum(np.eye(DIM), np.eye(DIM), 0.0, 5)
    np.testing.assert_allclose(isotropic.A, 5 / (5 + DIM + 1) * np.eye(DIM))


def test_prediction_of_the_layer_is_one_preconditioned_step(measured):
    for seed in range(3):
        rng, Sigma, _ = drawn(seed)
        Psi = oracles.random_cov(rng, DIM)  # A is not symmetric then
        best = optimum(Sigma, Psi, 0.2, 7)
        X, x = rng.normal(size=(30, 7, DIM)), rng.normal(size=(30, DIM))
        y = rng.normal(size=(30, 7))
        best = jax.tree.map(np.asarray, best)
        step = np.einsum("ij,bnj,bn,bi->b", best.A, X, y, x) / 7
        got = predict(best.P, best.Q, X, y, x)
        measured("error", np.abs(got - step).max())
        np.testing.assert_allclose(got, step, rtol=1e-10, atol=1e-12)
        one = predict(best.P, best.Q, X[0], y[0], x[0])
        np.testing.assert_allclose(one, np.asarray(got)[0], rtol=1e-12)
        single = predict(best.P, best.Q, X[:, :1], y[:, :1], x)
        step = np.einsum("ij,bj,b,bi->b", best.A, X[:, 0], y[:, 0], x)
        np.testing.assert_allclose(single, step, rtol=1e-10, atol=1e-12)
        # any weights, against the token matrix spelled out
        P, Q = rng.normal(size=(2, DIM + 1, DIM + 1))
        P[DIM, :DIM] *= seed > 0
        label = np.asarray(oracles.attention_prediction(P, Q, X, y, x, masked=True))
        np.testing.assert_allclose(predict(P, Q, X, y, x), -label, rtol=1e-10)
        # the stack of L layers has the same weights up to signs
        stack = stack_of(best.A[None])
        W_V, W_K, W_Q = (np.asarray(W)[0] for W in jax.tree.leaves(stack))
        np.testing.assert_allclose(W_K.T @ W_Q * W_V[-1, -1], best.Q, atol=1e-14)
    assert predict(best.P, best.Q, X[0, :0], y[0, :0], x[0]) == 0


def test_optimum_has_its_risk_on_every_prompt(measured):
    # the full layer, integrated exactly over all prompts, d = n = 2
    rng = np.random.default_rng(0)
    Sigma = oracles.random_cov(rng, 2)
    best = optimum(Sigma, np.eye(2), 0.0, 2)
    X, y, x, y_query, weights = oracles.prompt_grid(
        2, Sigma, np.eye(2), np.zeros(2), 0.0, degrees=(3, 2, 1, 2, 1)
    )
    guess = predict(best.P, best.Q, X, y, x)
    expected = weights @ (np.asarray(guess) - y_query) ** 2
    measured("relative error", best.risk / expected - 1, below=1e-12)


@jax.jit
@jax.value_and_grad
def attention_risk(z, Sigma, n):
    """Exact risk of all weights that the output of the layer depends on."""
    d = DIM
    model = reg.EffectiveParameters(
        jnp.zeros(d), z[:d], z[d], z[d + 1 : -d].reshape(d, d), z[-d:]
    )
    problem = LinearPopulation(Sigma, jnp.zeros(d), jnp.eye(d), 0.0)
    return reg.risk(model, problem, n)


@pytest.mark.slow
def test_optimum_is_the_global_one_among_all_weights(measured):
    reached = starts = 0
    for seed in range(3):
        rng, Sigma, n = drawn(seed)

        def function(z, Sigma=Sigma, n=n):
            return [np.asarray(part) for part in attention_risk(z, Sigma, n)]

        ends = [
            minimize(
                function,
                rng.normal(size=2 * DIM + 1 + DIM**2),
                jac=True,
                method="BFGS",
                options={"gtol": 1e-10, "maxiter": 4000},
            )
            for _ in range(10)
        ]
        least = min(ends, key=lambda end: end.fun)
        A = published(Sigma, n)
        expected = oracles.one_step_risk(A, Sigma, np.eye(DIM), 0.0, n)
        measured("relative error of the risk", least.fun / expected - 1, below=1e-10)
        p, v, u = least.x[:DIM], least.x[DIM], least.x[-DIM:]
        U = least.x[DIM + 1 : -DIM].reshape(DIM, DIM)
        # prediction <v U'h, x>, so that A = v U'
        measured("error of the minimiser", v * U.T - A, below=1e-5)
        np.testing.assert_allclose(p, 0, atol=1e-5)
        np.testing.assert_allclose(v * u, 0, atol=1e-5)
        assert all(end.fun > expected * (1 - 1e-12) for end in ends)
        reached += sum(end.fun < expected * (1 + 1e-6) for end in ends)
        starts += len(ends)
    measured("share of random starts that reach it", reached / starts)
