"""GD-beta: its exact risk, gradients, decomposition and curvature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests import oracles
from tests import oracles_ltb as ltb
from tests.derivatives import slope_error
from tests.oracles import z_score
from tests.oracles_ltb import Population, Whitened, in_chunks, random_population, root

SLOW = [pytest.mark.slow]


def relative(value, expected):
    return float(np.max(np.abs(np.asarray(value) / np.asarray(expected) - 1)))


def random_model(rng, dim, scale=1.0):
    return 2 * rng.normal(size=dim), scale * rng.normal(size=(dim, dim))


@jax.jit
@jax.vmap
def evaluate(beta, Gamma, H, mean, Psi, noise_var, M):
    """All numbers of a model, over parameters, problems and lengths at once."""
    problem, model = LinearPopulation(H, mean, Psi, noise_var), reg.GDBeta(beta, Gamma)
    risk, derivative = jax.value_and_grad(lambda m: reg.risk(m, problem, M))(model)
    excess = reg.excess(model, problem, M)
    return {
        "risk": risk,
        "derivative": derivative,
        "least": reg.optimum(reg.LTB, problem, M).risk,
        "parts": jnp.stack(
            [excess.start + excess.fluctuation + excess.drift, excess.preconditioner]
        ),
        "excess": excess.total,
        "curvature": reg.landscape.curvature(Gamma, problem, M),
    }


def random_cases(rng, d, count):
    return [
        (*random_model(rng, d), *ltb.singular_population(rng, d), rng.integers(1, 30))
        for _ in range(count)
    ]


def exact_risk(beta, Gamma, population, M):
    def predict(X, y, x):
        return oracles.gradient_step_predictions(beta, Gamma, X, y, x)

    return oracles.exact_risk(predict, *population, M)


# --- the risk

EXACT_CASES = [  # d, rank H, rank Psi, noise variance, lengths
    (1, 1, 1, None, (1, 3)),
    (2, 2, 2, None, (1, 2, 3)),
    (2, 1, 2, None, (2, 3)),
    (2, 2, 1, None, (2,)),
    (2, 2, 2, 0.0, (2, 3)),
    (2, 2, 0, 0.7, (2,)),
    (3, 3, 3, None, (1,)),
    (3, 2, 2, None, (2,)),
    (3, 2, 3, 0.0, (2,)),
]


@pytest.mark.statement("Zhang: Section 5")
@pytest.mark.parametrize(
    ("d", "rank_H", "rank_Psi", "noise", "lengths"),
    [pytest.param(*case, marks=SLOW * (case[0] == 3)) for case in EXACT_CASES],
)
def test_the_risk_is_the_exact_expectation(
    d, rank_H, rank_Psi, noise, lengths, measured
):
    rng = np.random.default_rng([1, d, rank_H, rank_Psi])
    cases, exact = [], []
    for M in lengths:
        model = random_model(rng, d)
        population = random_population(rng, d, rank_H, rank_Psi, noise)
        cases.append((*model, *population, M))
        exact.append(exact_risk(*model, population, M))
    error = relative(in_chunks(evaluate, cases, 16)["risk"], exact)
    measured("relative error", error, below=5e-15)


@pytest.mark.statement("Zhang: Section 5")
@pytest.mark.slow
def test_simulation_agrees_at_d_5_and_12_examples(measured):
    rng = np.random.default_rng(11)
    model = reg.GDBeta(*random_model(rng, 5, 0.3))
    problem = LinearPopulation(*random_population(rng, 5))

    @jax.jit
    def squared_errors(key):
        prompt = problem.sample(key, num_examples=12, num_prompts=50_000)
        predicted = jax.vmap(model.predict)(prompt.X, prompt.y, prompt.x_query)
        return (predicted - prompt.y_query) ** 2, reg.risk(model, problem, 12)

    z = z_score(*squared_errors(jax.random.key(0)))
    measured("z of 50000 prompts", z, below=4)


# --- gradients


@pytest.mark.statement("Zhang: Appendix G, gradients")
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_gradient_formulas_are_the_derivative(d, measured):
    cases = random_cases(np.random.default_rng([14, d]), d, 16)
    found = in_chunks(evaluate, cases, 16)["derivative"]
    assert isinstance(found, reg.GDBeta)
    for k, (beta, Gamma, *population, M) in enumerate(cases):
        formula = ltb.risk_slopes(beta, Gamma, Population(*population), M)
        derivative = np.append(found.beta[k], found.Gamma[k])
        scale = 1 + np.abs(derivative).max()
        error = np.abs(np.append(*formula) - derivative).max() / scale
        measured("relative error", error, below=5e-15)


@pytest.mark.statement("Zhang: Section 5")
@pytest.mark.slow
def test_the_risk_is_differentiable_in_the_problem_where_eigenvalues_coincide(measured):
    # H = I and Psi = I, in every argument
    def total(H, mean, Psi, noise_var):
        problem = LinearPopulation(H, mean, Psi, noise_var)
        model = reg.GDBeta(jnp.ones(3), 0.3 * jnp.eye(3))
        found = reg.optimum(reg.GDBeta, problem, 4)
        best, least = found.model, found.risk
        return reg.risk(model, problem, 4) + 3 * least + jnp.sum(best.Gamma**2)

    at = (np.eye(3), np.zeros(3), np.eye(3), 0.5)
    rng = np.random.default_rng(15)
    A, C = rng.normal(size=(2, 3, 3))
    towards = (A + A.T, rng.normal(size=3), C + C.T, 0.3)
    error = slope_error(total, *at, step=1e-5, towards=towards)
    measured("against differences", error, below=1e-8)


# --- decomposition and curvature


@pytest.mark.statement("Zhang: Appendix C, excess")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), d=st.sampled_from([1, 2, 3]))
def test_the_excess_is_the_sum_of_its_two_squares(seed, d, measured):
    cases = random_cases(np.random.default_rng(seed), d, 16)
    values = in_chunks(evaluate, cases, 16)
    risk = values["risk"]
    # The risk is a sum of terms of both signs, some much larger: they set the rounding.
    terms = [_terms(b, Gamma, Population(*p), M) for b, Gamma, *p, M in cases]
    error = np.abs(risk - values["least"] - values["excess"]) / np.array(terms)
    measured("error of the sum, in terms of their sizes", error.max())
    assert np.all(error < 2e-15)
    for k, (beta, Gamma, *population, M) in enumerate(cases):
        expected = _two_squares(beta, Gamma, Population(*population), M)
        error = np.abs(values["parts"][k] - expected).max() / risk[k]
        measured("error of a part", error, below=1e-13)


def _terms(beta, Gamma, population, M):
    """The sum of the sizes of all products in the risk and in the second square."""
    H, b = np.abs(population.H), np.abs(beta - population.mean)
    G, best = np.abs(Gamma), np.abs(ltb.best_preconditioner(population, M))
    Delta = np.abs(population.Psi) + np.outer(b, b)
    linear = np.trace(H @ Delta) + population.noise_var
    fourth = ((M + 1) * H @ Delta @ H + linear * H) / M
    quadratic = G.T @ H @ G + (G + best).T @ H @ (G + best)
    return linear + 2 * np.trace(H @ G @ H @ Delta) + np.trace(quadratic @ fourth)


def _two_squares(beta, Gamma, population, M):
    """B'Q b by its definition through moments, and the Frobenius norm by roots."""
    white, H = Whitened.of(population, M), population.H
    step = white.root @ (Gamma - ltb.best_preconditioner(population, M)) @ white.root
    b = root(H) @ (beta - population.mean)
    G = white.root @ Gamma @ white.root
    # E (I - G Z)'(I - G Z) for Z = sum z z' / M of standard normal z
    fourth = ((M + 1) * G.T @ G + np.trace(G.T @ G) * np.eye(len(b))) / M
    Q = np.eye(len(b)) - G - G.T + fourth
    return np.array([b @ Q @ b, np.sum((step @ root(white.Omega)) ** 2)])


@pytest.mark.statement("Zhang: Appendix C, excess")
def test_the_decomposition_keeps_its_digits_next_to_the_optimum(measured):
    # the difference of two risks is 1e-16 of the risk and lost; the parts are not
    rng = np.random.default_rng(16)
    population = random_population(rng, 3)
    problem = LinearPopulation(*population)
    best = reg.optimum(reg.GDBeta, problem, 5).model
    beta, Gamma = random_model(rng, 3)
    near = reg.GDBeta(
        np.asarray(best.beta) + 1e-8 * beta, np.asarray(best.Gamma) + 1e-8 * Gamma
    )
    values = in_chunks(evaluate, [(near.beta, near.Gamma, *population, 5)], 16)
    excess = values["excess"][0]
    b = np.asarray(near.beta) - population.mean
    D = np.asarray(near.Gamma) - ltb.best_preconditioner(population, 5)
    white = Whitened.of(population, 5)
    expected = b @ values["curvature"][0] @ b + np.sum(
        (white.root @ D @ white.root @ root(white.Omega)) ** 2
    )
    measured("excess", excess)
    measured("relative error", excess / expected - 1)
    assert 0 < excess < 1e-13
    np.testing.assert_allclose(excess, expected, rtol=1e-6)


def _lowest(Q, H):
    """Smallest eigenvalue of H^{-1/2} Q H^{-1/2}."""
    inverse = ltb.inverse_root(H)
    return np.linalg.eigvalsh(inverse @ Q @ inverse)[0]


def _lowest_ratios(cases):
    """Smallest curvature against H, in units of 2 / (M + 2)."""
    found = in_chunks(evaluate, cases, 16)["curvature"]
    return [
        _lowest(Q, H) * (M + 2) / 2
        for Q, (_, _, H, *_, M) in zip(found, cases, strict=True)
    ]


@pytest.mark.statement("Zhang: Appendix G, curvature")
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_curvature_is_never_below_2_over_m_plus_2(d, measured):
    rng = np.random.default_rng([17, d])
    cases = []
    for _ in range(96):
        beta, Gamma = random_model(rng, d, 10 ** rng.uniform(-2, 1))
        cases.append((beta, Gamma, *random_population(rng, d), rng.integers(1, 30)))
    smallest = np.min(_lowest_ratios(cases))
    measured("smallest, in units of 2 / (M + 2)", smallest)
    assert smallest >= 1 - 1e-13


@pytest.mark.statement("Zhang: Appendix G, curvature")
def test_the_curvature_bound_is_attained_along_one_direction(measured):
    rng = np.random.default_rng(18)
    cases = []
    for M in (1, 2, 7, 40):
        population, u = random_population(rng, 3), rng.normal(size=3)
        inverse = ltb.inverse_root(population.H)
        Gamma = M / (M + 2) * inverse @ np.outer(u, u) @ inverse / (u @ u)
        cases.append((u, Gamma, *population, M))
    ratios = np.array(_lowest_ratios(cases))
    measured("error of the ratio", ratios - 1, below=1e-14)


# --- predictions


@pytest.mark.statement("Zhang: Section 5")
def test_predictions_of_batches_are_the_steps_written_out(measured):
    rng = np.random.default_rng(19)
    beta, Gamma = random_model(rng, 3)
    X, y, x = (rng.normal(size=(6, *rest)) for rest in ((7, 3), (7,), (3,)))
    model = reg.GDBeta(beta, Gamma)
    expected = oracles.gradient_step_predictions(beta, Gamma, X, y, x)
    predicted = jax.jit(jax.vmap(model.predict))(X, y, x)
    measured("error", np.abs(predicted - expected).max() / np.abs(expected).max())
    np.testing.assert_allclose(predicted, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.statement("Zhang: Theorem 5.2")
@pytest.mark.slow
def test_the_smallest_risk_is_the_oracles_smallest(measured):
    rng = np.random.default_rng(20)
    population = random_population(rng, 2)
    least = reg.optimum(reg.LTB, LinearPopulation(*population), 3).risk
    best = ltb.best_preconditioner(population, 3)
    exact = exact_risk(population.mean, best, population, 3)
    measured("relative error", relative(least, exact), below=5e-15)
    assert relative(ltb.minimal_risks(population, 3), exact) < 5e-15
