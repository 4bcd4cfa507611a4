"""Cheng et al. (2024): attention with a kernel is functional gradient descent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import constructions
from icltheory.attention import kernel_matrix
from icltheory.regression.kernels import (
    KernelSystem,
    descent_weights,
    functional_descent,
    gaussian_process_risk,
    kernel_descent,
    kernel_descent_stack,
    kriging_risk,
)
from tests.oracles import KERNELS, z_score

N, D, LAYERS = 16, 4, 30
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N + 1, D)) / np.sqrt(D), RNG.normal(size=N)


of = jax.jit(KernelSystem.of, static_argnums=0)


def square(x, z):
    return (1 + x @ z) ** 2


FORMULAS = KERNELS | {
    "softmax": lambda x, z: np.exp(x @ z) / np.exp(X @ x).sum(),
}


def by_loops(kernel, r):
    """Values of f at the query after every step, from the sum over examples."""
    value = FORMULAS.get(kernel, square)
    f, found = np.zeros(N + 1), [0.0]
    for _ in range(LAYERS):
        new = f.copy()
        for j in range(N + 1):
            for i in range(N):
                new[j] += r * (Y[i] - f[i]) * value(X[j], X[i])
        f = new
        found.append(f[-1])
    return np.array(found)


@pytest.mark.statement("Cheng: functional gradient descent", "Cheng: closed form")
@pytest.mark.statement("Cheng: softmax", case="softmax")
@pytest.mark.parametrize(
    "kernel",
    ["rbf", "softmax", square]
    + [pytest.param(k, marks=pytest.mark.slow) for k in ("linear", "relu", "exp")],
)
def test_three_forms_are_one(kernel, measured):

    @jax.jit
    def forms():
        system = KernelSystem.of(kernel, X[:-1], X[-1])
        r = system.largest_step / 2
        stack = kernel_descent_stack(jnp.broadcast_to(r, LAYERS), D, kernel)
        tokens = constructions.join_tokens(X[:-1], Y[:, None], X[-1])
        out = constructions.read_prediction(stack.apply(*tokens).h_query, D)[:, 0]
        closed = kernel_descent(system, Y, r, jnp.arange(LAYERS + 1)).prediction
        return r, out, functional_descent(system, Y, r, LAYERS), closed

    r, layers, steps, closed = map(np.asarray, forms())
    expected = by_loops(kernel, float(r))
    for name, got in (("layers", layers), ("recursion", steps), ("closed", closed)):
        measured(f"{name} against the double sum", got - expected, below=1e-12)


@pytest.mark.statement("Cheng: closed form")
def test_closed_form_is_that_with_the_inverse(measured):
    system = of("rbf", X[:-1], X[-1])
    K, r = np.asarray(system.matrix), float(system.largest_step) / 2
    for L in (1, 10, 100):
        power = np.linalg.matrix_power(np.eye(N) - r * K, L)
        expected = np.asarray(system.query_row) @ np.linalg.solve(K, np.eye(N) - power)
        got = np.asarray(descent_weights(system, r, np.array([L])))[0]
        measured("weights against K^-1 (I - (I - rK)^L)", got - expected, below=1e-12)


@pytest.mark.statement("Cheng: Bayes predictor in depth")
def test_depth_tends_to_kriging_below_twice_the_inverse_eigenvalue(measured):
    system = of("rbf", X[:-1] * 2, X[-1] * 2)
    K, largest = np.asarray(system.matrix), float(system.largest_step)
    kriging = np.asarray(system.query_row) @ np.linalg.solve(K, Y)
    for factor in (0.5, 0.99):
        found = kernel_descent(system, Y, factor * largest, np.array([100_000]))
        assert found.converges
        error = float(np.abs(found.prediction[0] - kriging))
        measured("depth 100,000 against kriging", error, below=1e-8)
        assert float(np.abs(found.limit - kriging)) < 1e-9
    found = kernel_descent(system, Y, 1.05 * largest, np.array([1000]))
    assert not found.converges
    assert np.abs(found.prediction[0]) > 1e20


@pytest.mark.statement("Cheng: softmax")
def test_softmax_depth_tends_to_something_else_than_kriging(measured):
    """Its limit krigs D y and divides by the query's D: no interpolation in a space."""
    system = of("softmax", X[:-1], X[-1])
    values = np.exp(X @ X.T)
    D = values.sum(axis=1)
    expected = values[-1, :-1] @ np.linalg.solve(values[:-1, :-1], D[:-1] * Y) / D[-1]
    kriging = values[-1, :-1] @ np.linalg.solve(values[:-1, :-1], Y)
    limit = float(kernel_descent(system, Y, 1.0, np.array([1])).limit)
    measured("limit against the formula", limit / expected - 1)
    assert limit == pytest.approx(expected, rel=1e-8)
    measured("limit minus kriging", limit - kriging)
    assert abs(limit - kriging) > 0.05


@pytest.fixture(scope="module")
def depths():
    """Mean errors over 60 draws by depth on data of the rbf process."""
    numbers = jnp.array([0, 1, 3, 10, 100, 1000])
    draws = np.stack([np.random.RandomState(s).randn(N + 1, D) for s in range(60)])

    def run(kernel):
        @jax.jit
        @jax.vmap
        def one(x):
            C = kernel_matrix("rbf", x, x) + 1e-6 * jnp.eye(N + 1)
            system = KernelSystem.of(kernel, x[:-1], x[-1])
            weights = descent_weights(system, system.largest_step / 2, numbers)
            risks = gaussian_process_risk(weights, C)
            return risks, kriging_risk(C), system.positive_semidefinite

        risks, best, psd = one(draws)
        return np.asarray(risks.mean(axis=0)), float(best.mean()), np.asarray(psd)

    return {kernel: run(kernel) for kernel in ("rbf", "linear", "relu")}


@pytest.mark.statement("Cheng: Bayes predictor in depth")
@pytest.mark.slow
def test_matched_attention_falls_to_kriging_with_depth(depths, measured):
    risks, best, psd = depths["rbf"]
    assert psd.all()
    np.testing.assert_allclose(
        risks, [1.0, 0.755, 0.682, 0.647, 0.6357, 0.6355], atol=6e-4
    )
    measured("kriging", best)
    measured("depth 1000", risks[-1])
    assert risks[-1] == pytest.approx(best, abs=1e-5)
    assert np.all(np.diff(risks) < 0)


@pytest.mark.statement("Cheng: other kernels")
def test_other_kernels_end_worse_than_answering_zero_or_diverge(depths, measured):
    risks, _, psd = depths["linear"]
    assert psd.all()
    expected = [1.0, 0.966, 1.044, 1.198, 1.267, 1.267]
    np.testing.assert_allclose(risks, expected, atol=6e-4)
    measured("depth 1000, linear", risks[-1])
    risks, _, psd = depths["relu"]  # relu of inner products is no kernel
    assert not psd.any()
    measured("depth 100, relu", risks[4])
    assert risks[1] < 1
    assert risks[4] == pytest.approx(208, abs=1)
    assert risks[5] > 1e40


@pytest.mark.statement("Cheng: Bayes predictor in depth")
def test_risk_is_that_of_drawn_labels(measured):
    C = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2) + 0.1 * np.eye(N + 1)
    system = of("rbf", X[:-1], X[-1])
    weights = descent_weights(system, float(system.largest_step) / 2, np.array([5]))
    labels = RNG.multivariate_normal(np.zeros(N + 1), C, size=20_000)
    squares = (labels[:, :-1] @ np.asarray(weights[0]) - labels[:, -1]) ** 2
    exact = gaussian_process_risk(weights, C)[0]
    measured("z-score", z_score(squares, exact), below=4)
