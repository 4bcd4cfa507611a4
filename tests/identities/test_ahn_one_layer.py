"""Ahn et al. (2023), Theorem 1: the optimum of one layer, in their convention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import constructions
from icltheory import regression as reg
from icltheory.attention import linear_attention
from icltheory.regression import LinearPopulation
from tests.oracles_ltb import lowest
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

    return jax.vmap(one)(X, y, x_query)


@jax.jit
def optimum(Sigma, Psi, noise_var, n):
    """A, its risk, and the P and Q that make the step."""
    problem = LinearPopulation(Sigma, None, Psi, noise_var)
    best = reg.optimum(reg.LinearStep, problem, n)
    return best.model.Gamma, best.risk, *best.model.masked_weights()


def drawn(seed):
    rng = np.random.default_rng(seed)
    return rng, oracles.random_cov(rng, DIM), int(rng.integers(2, 12))


def test_optimum_is_the_published_one(measured):
    """And the P and Q that make it; ``test_wu.py`` has the optimum with noise."""
    for seed in range(10):
        _, Sigma, n = drawn(seed)
        found, risk, *weights = optimum(Sigma, np.eye(DIM), 0.0, n)
        A = np.linalg.inv(oracles.gain(Sigma, n))
        measured("error of A", np.abs(found - A).max())
        np.testing.assert_allclose(found, A, rtol=1e-11, atol=1e-13)
        expected = oracles.one_step_risk(A, Sigma, np.eye(DIM), 0.0, n)
        np.testing.assert_allclose(risk, expected, rtol=1e-12)
        P, Q = np.zeros((2, DIM + 1, DIM + 1))
        P[DIM, DIM], Q[:DIM, :DIM] = 1, -A
        np.testing.assert_array_equal(weights[0], P)
        np.testing.assert_allclose(weights[1], Q, rtol=1e-11, atol=1e-13)
        whitened, *_ = optimum(Sigma, np.linalg.inv(Sigma), 0.0, n)
        expected = n / (n + DIM + 1) * np.linalg.inv(Sigma)
        np.testing.assert_allclose(whitened, expected, rtol=1e-10, atol=1e-12)


def test_prediction_of_the_layer_is_one_preconditioned_step(measured):
    for seed in range(3):
        rng, Sigma, _ = drawn(seed)
        Psi = oracles.random_cov(rng, DIM)  # A is not symmetric then
        A, _, *weights = map(np.asarray, optimum(Sigma, Psi, 0.2, 7))
        X, x = rng.normal(size=(30, 7, DIM)), rng.normal(size=(30, DIM))
        y = rng.normal(size=(30, 7))
        for count in (7, 1, 0):
            step = np.einsum("ij,bnj,bn,bi->b", A, X[:, :count], y[:, :count], x)
            got = predict(*weights, X[:, :count], y[:, :count], x)
            measured("error", np.abs(got - step / max(count, 1)).max())
            np.testing.assert_allclose(got, step / max(count, 1), 1e-10, 1e-12)
        # any weights, against the token matrix spelled out
        P, Q = rng.normal(size=(2, DIM + 1, DIM + 1))
        P[DIM, :DIM] *= seed > 0
        label = oracles.attention_prediction(P, Q, X, y, x, masked=True)
        np.testing.assert_allclose(predict(P, Q, X, y, x), -label, rtol=1e-10)
        # the stack of L layers has the same weights up to signs
        stack = constructions.preconditioned_gradient_descent(A[None])
        W_V, W_K, W_Q = (np.asarray(W)[0] for W in jax.tree.leaves(stack))
        np.testing.assert_allclose(W_K.T @ W_Q * W_V[-1, -1], weights[1], atol=1e-14)


def test_optimum_has_its_risk_on_every_prompt(measured):
    # the full layer, integrated exactly over all prompts, d = n = 2
    Sigma = oracles.random_cov(np.random.default_rng(0), 2)
    _, risk, *made = optimum(Sigma, np.eye(2), 0.0, 2)
    X, y, x, y_query, weights = oracles.prompt_grid(
        2, Sigma, np.eye(2), np.zeros(2), 0.0, degrees=(3, 2, 1, 2, 1)
    )
    expected = weights @ (np.asarray(predict(*made, X, y, x)) - y_query) ** 2
    measured("relative error", risk / expected - 1, below=1e-12)


@jax.jit
@jax.value_and_grad
def attention_risk(z, Sigma, n):
    """Exact risk of all weights that the output of the layer depends on."""
    d = DIM
    model = reg.EffectiveParameters(
        jnp.zeros(d), z[:d], z[d], z[d + 1 : -d].reshape(d, d), z[-d:]
    )
    return reg.risk(model, LinearPopulation(Sigma), n)


@pytest.mark.slow
def test_optimum_is_the_global_one_among_all_weights(measured):
    shares = []
    for seed in range(3):
        rng, Sigma, n = drawn(seed)
        starts = rng.normal(size=(10, 2 * DIM + 1 + DIM**2))
        ends, least, share = lowest(
            lambda z, S=Sigma, n=n: attention_risk(z, S, n), starts, gtol=1e-10
        )
        A = np.linalg.inv(oracles.gain(Sigma, n))
        expected = oracles.one_step_risk(A, Sigma, np.eye(DIM), 0.0, n)
        measured("relative error of the risk", least.fun / expected - 1, below=1e-10)
        p, v, u = least.x[:DIM], least.x[DIM], least.x[-DIM:]
        U = least.x[DIM + 1 : -DIM].reshape(DIM, DIM)
        # prediction <v U'h, x>, so that A = v U'
        measured("error of the minimiser", v * U.T - A, below=1e-5)
        np.testing.assert_allclose([p, v * u], 0, atol=1e-5)
        assert all(end.fun > expected * (1 - 1e-12) for end in ends)
        shares.append(share)
    measured("share of random starts that reach it", np.mean(shares))
