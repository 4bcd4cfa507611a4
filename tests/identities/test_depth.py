"""The least risk of L gradient steps: exact, attained, and never undercut."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from icltheory import constructions
from icltheory.linalg.random_matrices import exact_moments, recurrence_of_moments
from icltheory.regression import LinearPopulation, LinearStep, Steps, optimum, risk
from icltheory.regression.depth import (
    depth_floor,
    exact_steps,
    gradient_steps_limit,
    sampled_steps,
)
from tests.oracles import z_score
from tests.raising import raises

pytestmark = pytest.mark.statement("Depth: Best L steps")


def best_steps(d, N, L, noise=0.0):
    """Risk / d of the best L steps without the noise of the query, and their sizes."""
    best = optimum(Steps(L), LinearPopulation.isotropic(d, noise), N)
    return float(best.risk - noise) / d, np.asarray(best.model.step_sizes)


FIVE = LinearPopulation.isotropic(5)


def rational_risk(d, N, L, noise=0):
    """Solves for the best polynomial in fractions, by Gauss's elimination."""
    m, ridge = exact_moments(d, N, 2 * L), Fraction(noise) / N
    rows = [
        [m[i + j + 2] + ridge * m[i + j + 1] for j in range(L)] + [m[i + 1]]
        for i in range(L)
    ]
    for i in range(L):
        rows[i] = [entry / rows[i][i] for entry in rows[i]]
        for k in range(L):
            if k != i:
                factor = rows[k][i]
                rows[k] = [
                    x - factor * y for x, y in zip(rows[k], rows[i], strict=True)
                ]
    return 1 - sum(rows[i][L] * m[i + 1] for i in range(L))


@pytest.mark.parametrize("noise", [0, Fraction(1, 4), 3])
@pytest.mark.parametrize(
    ("d", "N"), [(5, 20), pytest.param(20, 40, marks=pytest.mark.slow), (4, 4), (6, 3)]
)
def test_the_risk_is_that_of_rational_arithmetic(d, N, noise, measured):
    for L in (1, 2, 3, 8, 20):
        exact = rational_risk(d, N, L, noise)
        found = best_steps(d, N, L, float(noise))[0]
        measured("relative error", float(Fraction(found) / exact - 1), below=1e-12)


def test_the_christoffel_function_at_zero(measured):
    m = exact_moments(5, 20, 4)
    assert [float(x) for x in m] == [1, 1, 1.3, 2.01, 3.49]
    M = np.array([[float(m[i + j]) for j in range(3)] for i in range(3)])
    expected = 1 / np.linalg.inv(M)[0, 0]
    found = best_steps(5, 20, 2)[0]
    measured("risk of two steps, d = 5, N = 20", found)
    assert found == pytest.approx(expected, rel=1e-13)
    assert found == pytest.approx(0.0722479, abs=5e-8)


@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_one_step_is_one_layer_of_linear_attention(noise):
    task = LinearPopulation.isotropic(5, noise)
    layer, best = optimum(LinearStep, task, 20), optimum(Steps(1), task, 20)
    assert float(best.risk) == pytest.approx(float(layer.risk), rel=1e-13)
    step = float(best.model.step_sizes[0])
    assert step == pytest.approx(float(layer.model.Gamma[0, 0]), rel=1e-13)
    # The moments of the spectrum say the same.
    least, sizes = exact_steps(task, 20, 1)
    assert least == pytest.approx(float(best.risk), rel=1e-13)
    assert sizes[0] == pytest.approx(step, rel=1e-13)


def risk_on_nodes(steps, nodes, weights, ridge):
    """Risk of given step sizes by a quadrature rule."""
    p = np.prod([1 - eta * nodes for eta in steps], axis=0)
    return np.sum(weights * (p**2 + ridge * (1 - p) ** 2 / nodes))


@pytest.mark.parametrize(("L", "noise"), [(2, 0.0), (3, 0.0), (6, 0.0), (2, 1.0)])
def test_the_step_sizes_attain_it(L, noise, measured):
    d, N = 5, 20
    least, steps = best_steps(d, N, L, noise)
    rule = *gauss(d, N, L + 2), noise / N
    attained = risk_on_nodes(steps, *rule)
    measured("relative error", attained / least - 1, below=1e-11)
    for change in np.eye(L):
        assert risk_on_nodes(steps * (1 + 0.01 * change), *rule) > attained


def stack_errors(sizes, task, N, count):
    """Squared errors of the stack with these steps on drawn prompts."""
    prompts = task.sample(jax.random.key(2), N, count)
    stack = constructions.gradient_descent(sizes, task.dim)

    @jax.jit
    @jax.vmap
    def predict(X, y, x):
        out = stack.apply(*constructions.join_tokens(X, y[:, None], x), scale=1 / N)
        return constructions.read_prediction(out.h_query[-1], task.dim)[0]

    answers = predict(prompts.X, prompts.y, prompts.x_query)
    return np.square(answers - prompts.y_query)


@pytest.mark.slow
def test_the_stack_with_these_steps_has_this_risk(measured):
    least, sizes = best_steps(5, 20, 3)
    errors = stack_errors(sizes, LinearPopulation.isotropic(5), 20, 20_000) / 5
    measured("z", z_score(errors, least), below=4.5)


def test_strong_noise_has_no_real_steps():
    # At L = 2 the optimal polynomial has complex roots: real steps stay above it.
    least, sizes = best_steps(5, 20, 2, 10.0)
    assert np.isnan(sizes).all()
    found = minimize(risk_on_nodes, [0.4, 0.6], (*gauss(5, 20, 4), 0.5))
    assert found.fun > least * 1.001


def gauss(d, N, points):
    rule = recurrence_of_moments(exact_moments(d, N, 2 * points), points)
    nodes, vectors = np.linalg.eigh(rule.jacobi(points))
    return nodes, vectors[0] ** 2


def test_the_limit_of_large_prompts(measured):
    for c, (d, N) in {0.25: (100, 400), 1.0: (200, 200), 2.0: (200, 100)}.items():
        for L in (1, 3, 6):
            limit = gradient_steps_limit(L, c)
            finite, sizes = best_steps(d, N, L)
            error = abs(finite / float(limit.risk) - 1)
            measured("relative distance at d = 100 to 200", error)
            # The corrections are of order L^2 / d.
            assert error < 2 * (L + 1) ** 2 / d
            np.testing.assert_allclose(
                sizes, limit.model.step_sizes, rtol=2 * (L + 1) ** 2 / d
            )


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_the_limit_has_the_chebyshev_steps(c):
    for L in (1, 4):
        best = gradient_steps_limit(L, c)
        assert float(best.risk) == pytest.approx(1 / sum(c**-k for k in range(L + 1)))
        p = np.prod([1 - eta * 2.5 for eta in np.asarray(best.model.step_sizes)])
        # U_L at the place of s = 2.5, over its value at s = 0
        places = np.array([(s - 1 - c) / (2 * np.sqrt(c)) for s in (2.5, 0)])
        U = [np.ones(2), 2 * places]
        for _ in range(L - 1):
            U.append(2 * places * U[-1] - U[-2])
        assert p == pytest.approx(U[L][0] / U[L][1], rel=1e-10)


@pytest.mark.statement("Depth: Floor of L layers")
def test_gd_plus_plus_stays_above_the_floor(measured):
    d, N, L = 5, 20, 2
    nodes, weights = gauss(d, N, 16)

    def risk(parameters):
        p, f = np.ones_like(nodes), np.ones_like(nodes)
        for eta, gamma in zip(*np.split(parameters, 2), strict=True):
            p, f = p * (1 - eta * nodes * f**2), f * (1 - gamma * nodes * f**2)
        return weights @ p**2

    starts = np.random.default_rng(0).uniform(0, 0.8, (12, 2 * L))
    best = min(
        (minimize(risk, start, method="Nelder-Mead", tol=1e-10) for start in starts),
        key=lambda found: found.fun,
    )
    floor = depth_floor(L, LinearPopulation.isotropic(d), N)
    assert floor.degree == 4
    least = float(floor.risk) / d
    measured("GD++ of two layers", best.fun)
    measured("floor of two layers", least, below=best.fun)
    assert best.fun == pytest.approx(0.0115, abs=5e-5)
    assert least == pytest.approx(0.0110, abs=5e-5)
    # Two further local minima, at which a training may end.
    for start, least in (
        ((0.77, 2.64, 0.27, 0.3), 0.0173),
        ((1.8, 1.3, 0.2, 0.1), 0.0205),
    ):
        assert minimize(risk, start).fun == pytest.approx(least, abs=5e-5)
    # The recursion in s is that of the tokens.
    eta, gamma = np.split(best.x, 2)
    X = np.random.default_rng(1).standard_normal((N, d))
    w, x = np.random.default_rng(2).standard_normal((2, d))
    out = constructions.gd_plus_plus(eta, gamma, d).apply(
        *constructions.join_tokens(X, (X @ w)[:, None], x), scale=1 / N
    )
    values, V = np.linalg.eigh(X.T @ X / N)
    p, f = np.ones(d), np.ones(d)
    for one, other in zip(eta, gamma, strict=True):
        p, f = p * (1 - one * values * f**2), f * (1 - other * values * f**2)
    expected = w @ x - (V * p) @ V.T @ w @ x
    found = float(constructions.read_prediction(out.h_query[-1], d)[0])
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.statement("Depth: Floor of L layers")
def test_one_layer_meets_its_floor():
    task = LinearPopulation(2 * np.eye(7), np.zeros(7), np.eye(7), 0.5)
    floor, best = depth_floor(1, task, 9), optimum(Steps(1), task, 9)
    assert float(floor.risk) == pytest.approx(float(best.risk), rel=1e-13)


def test_a_traced_ratio_has_a_gradient():
    slope = jax.grad(lambda c: gradient_steps_limit(1, c).risk)(jnp.asarray(0.5))
    assert float(slope) == pytest.approx(1 / 1.5**2)


# --- any population, by sampled inputs


def population(noise=0.0):
    H, Psi = np.diag([4.0, 1.0, 0.25]) + 0.1, np.diag([0.5, 1.0, 2.0])
    return LinearPopulation(H, np.array([0.5, 0.0, -1.0]), Psi, noise)


@pytest.mark.parametrize(("steps", "noise"), [(1, 0.0), (2, 0.25), (3, 0.0)])
def test_isotropic_populations_have_the_exact_risk(steps, noise, measured):
    task, key = LinearPopulation.isotropic(5, noise), jax.random.key(steps)
    exact = optimum(Steps(steps), task, 20)
    risk, sizes = sampled_steps(task, 20, steps, key, 20_000)
    off = (risk.mean - exact.risk) / risk.standard_error
    measured("standard errors from the exact risk", float(off), below=4)
    np.testing.assert_allclose(sizes, exact.model.step_sizes, rtol=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_one_step_is_the_best_multiple_of_the_identity(noise):
    """The risk of linear attention with the preconditioner eta I is a parabola."""
    task, N = population(noise), 7

    def exact(eta):
        return float(risk(LinearStep(eta * np.eye(3)), task, N))

    low, middle, high = (exact(eta) for eta in (0.0, 1.0, 2.0))
    bend = (high - 2 * middle + low) / 2
    slope = middle - low - bend
    least = low - slope**2 / (4 * bend)
    sampled, sizes = sampled_steps(task, N, 1, jax.random.key(0), 40_000)
    assert abs(sampled.mean - least) < 4 * sampled.standard_error
    assert sizes[0] == pytest.approx(-slope / (2 * bend), rel=0.05)
    best = optimum(Steps(1), task, N)
    assert float(best.risk) == pytest.approx(least, rel=1e-12)
    assert best.model.step_sizes[0] == pytest.approx(-slope / (2 * bend), rel=1e-12)


def test_the_stack_with_sampled_steps_has_its_risk(measured):
    task, N = population(0.1), 9
    found = optimum(Steps(3), task, N, key=jax.random.key(1), num_prompts=20_000)
    errors = stack_errors(found.model.step_sizes, task, N, 40_000)
    spread = np.hypot(float(found.standard_error), errors.std() / np.sqrt(len(errors)))
    off = (errors.mean() - float(found.risk)) / spread
    measured("standard errors between stack and formula", off, below=4)


def test_without_signal_or_inputs_there_are_no_steps():
    d = np.zeros((2, 2))
    drawn = {"key": jax.random.key(0), "num_prompts": 8}
    quiet = LinearPopulation(np.eye(2), np.zeros(2), d, 0.1)
    found = optimum(Steps(2), quiet, 4, **drawn)
    assert np.isnan(found.model.step_sizes).tolist() == [True, True]
    assert float(found.risk) == np.float64(0.1)
    assert "on 4 draws" in found.certificate  # the other half gives the risk
    flat = LinearPopulation(d, np.zeros(2), np.eye(2), 0.1)
    with pytest.raises(ValueError, match="population: expected inputs that are not"):
        optimum(Steps(2), flat, 4, **drawn)


def sampled(steps=2, num_examples=4, num_prompts=8, key=0):
    """The optimum of a population for which the inputs are sampled."""
    drawn = {"key": key if key is None else jax.random.key(key)}
    drawn["num_prompts"] = num_prompts
    return optimum(Steps(steps), population(), num_examples, **drawn)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_steps(5, 0, 2), "num_examples: expected"),
        (lambda: best_steps(5, 5, 0), "number of steps: expected"),
        (lambda: depth_floor(0, FIVE, 5), "layers: expected"),
        (lambda: depth_floor(6, FIVE, 5), "layers: expected at most 5, got 6"),
        (lambda: depth_floor(2, FIVE, 0), "num_examples: expected"),
        (
            lambda: depth_floor(2, FIVE.with_(task_cov=np.diag(np.arange(5.0))), 5),
            "population: expected Gaussian inputs with H and E w w' multiples",
        ),
        (lambda: gradient_steps_limit(2, 0.0), "ratio: expected"),
        (lambda: gradient_steps_limit(0, 0.5), "steps: expected"),
        (lambda: sampled(steps=0), "number of steps: expected"),
        (lambda: sampled(num_examples=0), "num_examples: expected"),
        (lambda: sampled(num_prompts=3), "num_prompts: expected at least 4, got 3"),
        (lambda: sampled(key=None), "key: expected one to sample the inputs"),
    ],
)
def test_bad_input(call, message):
    with raises(message):
        call()
