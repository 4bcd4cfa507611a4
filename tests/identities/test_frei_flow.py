"""The gradient flow of Zhang, Frei and Bartlett, beside that of the whole layer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from icltheory import regression as reg
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
    """Lambda, and the risk of the unmasked layer in all 3 + 6 weights.

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
        return weights @ (guess - y_query) ** 2

    return Lam, jax.jit(loss), jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))


def embedded(u, U):
    """All weights of the layer at (u, U)."""
    scores = np.vstack([U, np.zeros((1, DIM))])
    return np.concatenate([np.zeros(DIM), [u], scores.ravel()])


@jax.jit
def at_once(population, weights):
    """The record of the flow at given weights, and its squared gradient there."""
    path = reg.flow(weights, population, N, jnp.zeros(1))
    return path, squared(jax.grad(reg.risk)(weights, population, N))


def squared(gradient):
    return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.statement("Frei: Theorem 4.1, flow")
def test_reduced_flow_is_the_gradient_of_the_whole_layer(measured):
    Lam, loss, gradient, _ = whole_layer()
    rng, population = np.random.default_rng(0), reg.LinearPopulation(Lam)
    least = reg.optimum(reg.LTB, population, N).risk
    for _ in range(10):
        U = rng.normal(size=(DIM, DIM))
        u = rng.choice([-1, 1]) * (np.linalg.norm(U) + rng.uniform())
        found = np.asarray(gradient(embedded(u, U)))
        scores = found[DIM + 1 :].reshape(DIM + 1, DIM)
        dU, du = oracles.flow_speed(U, u, Lam, N)
        error = np.abs(scores[:DIM] + dU).max() / np.abs(dU).max()
        error = max(error, abs(found[DIM] + du) / (1 + abs(du)))
        measured("relative error of the oracle's slope", error, below=2.5e-14)
        kept = found[DIM] * u - np.sum(scores[:DIM] * U)
        measured("slope of u^2 - |U|^2", kept / (1 + np.abs(found).max()))
        assert abs(kept) < 1e-13 * (1 + np.abs(found).max())
        others = np.abs(np.append(found[:DIM], scores[DIM])).max()
        measured("slope of the entries that stay 0", others)
        assert others < 1e-13 * (1 + np.abs(found).max())
        weights = reg.AttentionWeights(u, U)
        path, size = jax.tree.map(np.asarray, at_once(population, weights))
        size = size / np.sum(found**2) - 1
        measured("relative error of the squared gradient", size, below=1e-13)
        value = float(loss(embedded(u, U)))
        np.testing.assert_allclose(path.excess[0] + least, value, rtol=1e-13)
        np.testing.assert_allclose(path.risk[0], value, rtol=1e-13)


@pytest.mark.statement("Frei: Theorem 4.1, flow")
@pytest.mark.slow
def test_flow_of_the_whole_layer_is_the_reduced_one_and_ends_at_their_limit(measured):
    Lam, _, gradient, hessian = whole_layer()
    Theta, s = balanced_start(Lam, N, 0.5)
    population = reg.LinearPopulation(Lam)
    start = reg.AttentionWeights.balanced(population, N, Theta, s)
    times = np.append(0, np.geomspace(0.005, 1000, 30))
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
    path = reg.flow(start, population, N, times, rtol=1e-10, atol=1e-13)
    assert path.succeeded
    whole = solved.sol(times).T
    found = np.array([embedded(*pair) for pair in zip(*both(path), strict=True)])
    measured("distance of the two flows", found - whole, below=2e-7)
    end = reg.flow_limit(start, population, N)
    limit = embedded(float(end.u), np.asarray(end.U))
    for name, last in (("reduced", found[-1]), ("whole", whole[-1])):
        measured(f"distance from the limit, {name}", np.abs(last - limit).max())
    steps = solved.y.T  # between them the solver interpolates, less exactly
    balance = steps[:, DIM] ** 2 - np.sum(steps[:, DIM + 1 :] ** 2, axis=1)
    measured("u^2 - |U|^2 along the whole flow", balance, below=2.9e-12)
    assert np.abs(found[-1] - limit).max() < 1.1e-12
    assert np.abs(whole[-1] - limit).max() < 1e-8
    assert 0 <= path.excess[-1] < 1e-20


def both(path):
    return np.asarray(path.model.u), np.asarray(path.model.U)


@functools.cache
def path_of(name):
    Lam = np.diag(SPECTRA[name])
    Theta, s = balanced_start(Lam, 4, 0.6, seed=8)
    times, population = (
        np.append(0, np.geomspace(5e-3, 1500, 80)),
        reg.LinearPopulation(Lam),
    )
    start = reg.AttentionWeights.balanced(population, 4, Theta, s)
    path = reg.flow(start, population, 4, times, rtol=1e-10, atol=1e-14)
    assert path.succeeded
    slopes = jax.vmap(lambda m: squared(jax.grad(reg.risk)(m, population, 4)))(
        path.model
    )
    ratios = np.asarray(slopes) / np.asarray(path.excess)
    bounds = reg.flow_bounds(start, population, 4, times)
    assert bounds.holds
    return bounds, s, path, ratios[np.asarray(path.excess) > 2e-9]


@pytest.mark.statement(
    "Frei: Appendix A, along the flow", "Frei: Theorem 4.1, convergence"
)
@pytest.mark.slow
@pytest.mark.parametrize("name", SPECTRA)
def test_corrected_constant_and_lower_bound_hold_along_the_flow(name, measured):
    bounds, s, path, slopes = path_of(name)
    measured("least slope over mu", slopes.min() / bounds.rate)
    assert slopes.min() >= bounds.rate
    floor = np.min(path.model.u) / bounds.scale_floor
    measured("least u over its bound", floor)
    assert floor >= 1
    bound = path.excess[0] * np.exp(-bounds.rate * path.times)
    np.testing.assert_allclose(bounds.excess, bound, rtol=1e-12)
    assert np.all(np.asarray(path.excess) <= bound * (1 + 1e-9) + 1e-20)
    # The constants, from the formula.
    Lam = np.diag(SPECTRA[name])
    Theta, _ = balanced_start(Lam, 4, 0.6, seed=8)
    G, inverse, largest = oracles.gain(Lam, 4), np.linalg.inv(Lam), Lam.max()
    K_1 = np.linalg.norm(Lam @ Theta) ** 2
    K_1 *= 2 - np.sqrt(2) * s**2 * np.linalg.norm(G, 2)
    K_2 = np.sqrt(2) * largest**2 * np.trace(inverse)
    K_2 *= np.trace(np.linalg.inv(G) @ inverse)
    np.testing.assert_allclose(bounds.rate, 2 * s**2 * K_1 / K_2, rtol=1e-12)
    floor = s**2 * K_1 / (2 * np.sqrt(2) * largest**2)
    np.testing.assert_allclose(bounds.scale_floor, np.sqrt(floor), rtol=1e-12)


@pytest.mark.statement(
    "Frei: Appendix A, along the flow", "Frei: Theorem 4.1, convergence"
)
def test_inverted_constant_is_false(measured):
    worst = np.inf
    for name in SPECTRA:
        bounds, s, _, slopes = path_of(name)
        worst = min(worst, slopes.min() / float(4 * s**4 / bounds.rate))
    measured("least slope over the inverted constant", worst, below=1e-6)
