"""The gradient flow of Zhang, Frei and Bartlett, beside that of the whole layer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, flow, rates
from tests.regression import oracles_ltb_rates as oracles

DIM, N = 2, 2
SPECTRA = {"plain": (1.3, 0.6), "skewed": (2.0, 0.05), "round": (1.0, 1.0)}
SPECTRA["steep"] = (3.0, 0.01)


def balanced_start(Lam, length, size, seed=0):
    """Theta of norm 1, and s as a share of the largest that their theorem allows."""
    Theta = np.random.default_rng(seed).normal(size=Lam.shape)
    Theta /= np.sqrt(np.linalg.norm(Theta @ Theta.T))
    largest = np.linalg.norm(oracles.gain(Lam, length), 2) * np.sqrt(len(Lam))
    return Theta, size * np.sqrt(2 / largest)


@functools.cache
def whole_layer():
    """Lambda, and half the squared error of the unmasked layer in all 3 + 6 weights.

    The weights are the last row of W^{PV} and the first two columns of W^{KQ}; no other
    entry reaches the prediction. Exact: a product rule over X, w and x.
    """
    Lam = oracles.random_cov(np.random.default_rng(3), DIM)
    X, y, x, y_query, weights = (
        jnp.asarray(part)
        for part in oracles.prompt_grid(
            N, Lam, np.eye(DIM), np.zeros(DIM), 0.0, degrees=(3, 3, 1, 4, 1)
        )
    )
    E = jnp.concatenate([X, y[..., None]], axis=2)
    query = jnp.concatenate([x, jnp.zeros_like(x[:, :1])], axis=1)
    gram = jnp.einsum("tna,tnb->tab", E, E) + query[:, :, None] * query[:, None, :]

    def loss(z):
        values, scores = z[: DIM + 1], z[DIM + 1 :].reshape(DIM + 1, DIM)
        guess = jnp.einsum("a,tab,bc,tc->t", values, gram, scores, x) / N
        return weights @ (guess - y_query) ** 2 / 2

    return Lam, jax.jit(loss), jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))


def embedded(u, U):
    """All weights of the layer at (u, U)."""
    scores = np.vstack([U, np.zeros((1, DIM))])
    return np.concatenate([np.zeros(DIM), [u], scores.ravel()])


@jax.jit
def at_once(Lam, weights):
    """The record of the flow at given weights, and the risk there."""
    path = flow.attention_flow(Lam, N, weights, jnp.zeros(1))
    problem = LinearPopulation(Lam, jnp.zeros(DIM), jnp.eye(DIM), 0.0)
    return (
        path,
        reg.risk(weights.effective(), problem, N),
        reg.optimum(reg.LTB, problem, N).risk,
    )


def test_reduced_flow_is_the_gradient_of_the_whole_layer(measured):
    Lam, loss, gradient, _ = whole_layer()
    rng = np.random.default_rng(0)
    for _ in range(10):
        U = rng.normal(size=(DIM, DIM))
        u = rng.choice([-1, 1]) * (np.linalg.norm(U) + rng.uniform())
        found = np.asarray(gradient(embedded(u, U)))
        scores = found[DIM + 1 :].reshape(DIM + 1, DIM)
        dU, du = oracles.flow_speed(U, u, Lam, N)
        error = np.abs(scores[:DIM] + dU).max() / np.abs(dU).max()
        error = max(error, abs(found[DIM] + du) / (1 + abs(du)))
        measured("relative error of the oracle's slope", error)
        assert error < 2.5e-14
        kept = found[DIM] * u - np.sum(scores[:DIM] * U)
        measured("slope of u^2 - |U|^2", kept / (1 + np.abs(found).max()))
        assert abs(kept) < 1e-13 * (1 + np.abs(found).max())
        others = np.abs(np.append(found[:DIM], scores[DIM])).max()
        measured("slope of the entries that stay 0", others)
        assert others < 1e-13 * (1 + np.abs(found).max())
        weights = flow.AttentionWeights(jnp.asarray(u), jnp.asarray(U))
        path, risk, least = jax.tree.map(np.asarray, at_once(Lam, weights))
        size = path.squared_gradient[0] / np.sum(found**2) - 1
        measured("relative error of the squared gradient", size)
        np.testing.assert_allclose(size, 0, atol=1e-13)
        value = float(loss(embedded(u, U)))
        np.testing.assert_allclose(path.excess[0] + least / 2, value, rtol=1e-13)
        np.testing.assert_allclose(risk / 2, value, rtol=1e-13)


@pytest.mark.slow
def test_flow_of_the_whole_layer_is_the_reduced_one_and_ends_at_their_limit(measured):
    Lam, _, gradient, hessian = whole_layer()
    Theta, s = balanced_start(Lam, N, 0.5)
    start = flow.attention_start(Lam, N, Theta, s)
    times = np.append(0, np.geomspace(0.01, 2000, 30))
    solved = solve_ivp(
        lambda _, z: -np.asarray(gradient(z)),
        (0, times[-1]),
        embedded(s, s * Theta @ Theta.T),
        "Radau",
        dense_output=True,
        jac=lambda _, z: -np.asarray(hessian(z)),
        rtol=1e-9,
        atol=1e-11,
    )
    path = flow.attention_flow(Lam, N, start, times, rtol=1e-10, atol=1e-13)
    assert path.succeeded
    whole = solved.sol(times).T
    found = np.array([embedded(*pair) for pair in zip(*both(path), strict=True)])
    measured("distance of the two flows", np.abs(found - whole).max())
    np.testing.assert_allclose(found, whole, atol=2e-7)
    end = rates.trained_attention_limit(Lam, N)
    limit = embedded(float(end.W_PV[-1, -1]), np.asarray(end.W_KQ)[:DIM, :DIM])
    for name, last in (("reduced", found[-1]), ("whole", whole[-1])):
        measured(f"distance from the limit, {name}", np.abs(last - limit).max())
    steps = solved.y.T  # between them the solver interpolates, less exactly
    balance = steps[:, DIM] ** 2 - np.sum(steps[:, DIM + 1 :] ** 2, axis=1)
    measured("u^2 - |U|^2 along the whole flow", np.abs(balance).max())
    assert np.abs(balance).max() < 2.9e-12
    assert np.abs(found[-1] - limit).max() < 1.1e-12
    assert np.abs(whole[-1] - limit).max() < 1e-8
    assert 0 <= path.excess[-1] < 1e-20


def both(path):
    return np.asarray(path.weights.u), np.asarray(path.weights.U)


@functools.cache
def path_of(name):
    Lam = np.diag(SPECTRA[name])
    Theta, s = balanced_start(Lam, 4, 0.6, seed=8)
    times = np.append(0, np.geomspace(1e-2, 3000, 80))
    start = flow.attention_start(Lam, 4, Theta, s)
    path = flow.attention_flow(Lam, 4, start, times, rtol=1e-10, atol=1e-14)
    assert path.succeeded
    return rates.convergence_constants(Lam, 4, Theta, s), s, path


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECTRA)
def test_corrected_constant_and_lower_bound_hold_along_the_flow(name, measured):
    constants, _, path = path_of(name)
    seen = np.asarray(path.excess) > 1e-9
    slopes = (np.asarray(path.squared_gradient) / np.asarray(path.excess))[seen]
    measured("least slope over mu", slopes.min() / constants.rate)
    assert slopes.min() >= constants.rate
    floor = np.min(path.weights.u) / constants.scale_floor
    measured("least u over its bound", floor)
    assert floor >= 1
    bound = path.excess[0] * np.exp(-constants.rate * path.times)
    assert np.all(np.asarray(path.excess) <= bound * (1 + 1e-9) + 1e-20)


@pytest.mark.slow
def test_reduced_flow_ends_at_their_limit_and_keeps_its_balance(measured):
    _, _, path = path_of("plain")
    u, U = both(path)
    end = rates.trained_attention_limit(np.diag(SPECTRA["plain"]), 4)
    limit = float(end.W_PV[-1, -1]), np.asarray(end.W_KQ)[:DIM, :DIM]
    distance = max(abs(u[-1] - limit[0]), np.abs(U[-1] - limit[1]).max())
    measured("distance from the limit, d = 2, four examples", distance)
    assert distance < 1e-8
    balance = u**2 - np.sum(U**2, axis=(1, 2))
    measured("u^2 - |U|^2 along the reduced flow", np.abs(balance).max())
    assert np.abs(balance).max() < 1e-8
    assert np.abs(U[-1] - U[0]).max() > 0.1


def test_inverted_constant_is_false(measured):
    worst = np.inf
    for name in SPECTRA:
        constants, s, path = path_of(name)
        seen = np.asarray(path.excess) > 1e-9
        slopes = (np.asarray(path.squared_gradient) / np.asarray(path.excess))[seen]
        worst = min(worst, slopes.min() / float(s**4 / constants.rate))
    measured("least slope over the inverted constant", worst)
    assert worst < 1e-6
