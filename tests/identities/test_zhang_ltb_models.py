"""LSA and LTB: their exact risk from all weight matrices, and what they predict."""

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

SLOW = [pytest.mark.slow]


def random_weights(rng, d, rows, scale=0.6):
    """Four or six matrices with so many rows."""
    return [scale * rng.normal(size=(k, d + 1)) for k in rows]


def widths(d):
    """Rows of the six matrices: d_k, d_v, d_f."""
    return (d + 1, d + 1, d, d, 2 * d + 2, 2 * d + 2)


@jax.jit
@jax.vmap
def block_values(weights, H, mean, Psi, noise_var, M, factor):
    """Risks over weights, problems and lengths at once, in two gauges."""
    problem, block = LinearPopulation(H, mean, Psi, noise_var), reg.LTB(*weights)
    attention, parts = reg.LSA(*weights[:4]), block.effective()
    direct = [reg.risk(m, problem, M) for m in (block, attention)]
    made = [parts.to_ltb(), parts.rescaled(factor), attention.effective().to_lsa()]
    return jnp.stack(direct), jnp.stack([reg.risk(m, problem, M) for m in made]), parts


def exact_risk(weights, population, M):
    def predict(X, y, x):
        return oracles.block_predictions(weights, X, y, x)

    return oracles.exact_risk(predict, *population, M)


# --- the prediction


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.parametrize("mask", ["demos", "none"])
def test_effective_parameters_predict_by_their_sums(mask, measured):
    rng = np.random.default_rng(40)
    d, M = 3, 5
    c, p, u, x = rng.normal(size=(4, d))
    v, U, X, y = rng.normal(), *(rng.normal(size=s) for s in ((d, d), (M, d), M))
    w = c.copy()
    for i in range(M):
        w += (p @ X[i] + v * y[i]) * (U.T @ X[i] + y[i] * u) / M
    expected = w @ x + ((p @ x) * (x @ U @ x) / M if mask == "none" else 0)
    E = np.vstack([np.column_stack([X, y]), np.append(x, 0)])
    found = reg.EffectiveParameters(c, p, v, U, u).predict_tokens(E, mask)
    measured("relative error", found / expected - 1)
    assert float(found) == pytest.approx(expected, rel=1e-12)


# --- the risk

EXACT_CASES = [  # d, rank H, rank Psi, noise variance, lengths
    (1, 1, 1, None, (1, 3)),
    (2, 2, 2, None, (1, 2, 3)),
    (2, 2, 2, 0.0, (2, 3)),
    (2, 1, 2, None, (2,)),
    (2, 2, 1, 0.0, (3,)),
    (2, 2, 0, 0.7, (2,)),
    (3, 3, 3, None, (1,)),
    (3, 2, 1, None, (2,)),
]


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.parametrize(
    ("d", "rank_H", "rank_Psi", "noise", "lengths"),
    [pytest.param(*case, marks=SLOW * (case[0] > 1)) for case in EXACT_CASES],
)
def test_the_risk_of_all_matrices_is_the_exact_expectation(
    d, rank_H, rank_Psi, noise, lengths, measured
):
    rng = np.random.default_rng([31, d, rank_H, rank_Psi])
    cases, exact = [], []
    for M in lengths:
        weights = random_weights(rng, d, widths(d))
        population = ltb.random_population(rng, d, rank_H, rank_Psi, noise)
        cases.append((weights, *population, M, 0.3))
        exact.append([exact_risk(w, population, M) for w in (weights, weights[:4])])
    risks, _, _ = ltb.in_chunks(block_values, cases, 4)
    error = np.abs(risks / exact - 1).max(axis=0)
    measured("relative error, LTB", error[0])
    measured("relative error, LSA", error[1])
    assert np.all(error < 5e-15)


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), d=st.sampled_from([1, 2, 3]))
def test_the_risk_does_not_depend_on_the_gauge_or_on_the_matrices_chosen(
    seed, d, measured
):
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(4):
        factor = rng.choice([-1, 1]) * 10 ** rng.uniform(-2, 2)
        weights = random_weights(rng, d, widths(d))
        M = rng.integers(1, 30)
        cases.append((weights, *ltb.singular_population(rng, d), M, factor))
    risks, others, parts = ltb.in_chunks(block_values, cases, 4)
    error = others / risks[:, [0, 0, 1]] - 1
    measured("relative difference", error, below=1e-12)
    found = jax.tree.leaves(parts)
    for k, (weights, *_) in enumerate(cases):
        for part, expected in zip(found, _effective(weights), strict=True):
            np.testing.assert_allclose(part[k], expected, rtol=1e-12, atol=1e-13)


def _effective(weights):
    """c, p, v, U, u by the matrix products of the definition."""
    W_K, W_Q, W_P, W_V, W_1, W_2 = weights
    last = (W_2.T @ W_1)[-1]
    values, scores = last @ (W_P.T @ W_V), W_K.T @ W_Q
    return last[:-1], values[:-1], values[-1], scores[:-1, :-1], scores[-1, :-1]


@pytest.mark.statement("Zhang: Appendices B and D, risk")
def test_any_widths_are_allowed(measured):
    rng = np.random.default_rng(41)
    population = ltb.random_population(rng, 2)
    weights = random_weights(rng, 2, (1, 1, 3, 3, 2, 2))
    error = reg.risk(reg.LTB(*weights), LinearPopulation(*population), 2)
    error = error / exact_risk(weights, population, 2) - 1
    measured("relative error", error, below=5e-15)


# --- its derivatives, and lower precision


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.parametrize("kind", [reg.LSA, reg.LTB])
def test_gradients_in_the_weights_are_those_of_the_exact_expectation(kind, measured):
    # isotropic H and Psi: derivatives are finite where all eigenvalues coincide
    rng = np.random.default_rng(33)
    rows = widths(2)[: 4 if kind is reg.LSA else 6]
    weights, towards = random_weights(rng, 2, rows), random_weights(rng, 2, rows)
    population = np.eye(2), np.array([1.0, -2.0]), np.eye(2), 0.25
    problem = LinearPopulation(*population)
    gradient = jax.jit(jax.grad(reg.risk))(kind(*weights), problem, 2)
    assert isinstance(gradient, kind)
    slope = sum(
        np.sum(g * t) for g, t in zip(jax.tree.leaves(gradient), towards, strict=True)
    )
    # central differences of sixth order of a polynomial
    h, total = 1e-2, 0.0
    for k, c in ((1, 45), (2, -9), (3, 1), (-1, -45), (-2, 9), (-3, -1)):
        moved = [W + k * h * T for W, T in zip(weights, towards, strict=True)]
        total += c * exact_risk(moved, population, 2) / (60 * h)
    measured("slope against differences of the oracle", slope / total - 1, below=1e-6)


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.slow
def test_the_risk_is_differentiable_in_the_problem(measured):
    rng = np.random.default_rng(34)
    parts = reg.LTB(*random_weights(rng, 3, widths(3))).effective()

    def risk(H, mean, Psi, noise_var, excess):
        problem = LinearPopulation(H, mean, Psi, noise_var)
        if excess:
            terms = reg.excess(parts, problem, 4)
            return terms.total + reg.optimum(reg.LTB, problem, 4).risk
        return reg.risk(parts, problem, 4)

    at = (jnp.eye(3), jnp.ones(3), jnp.eye(3), jnp.asarray(0.5))
    gradient = jax.jit(jax.grad(risk, argnums=(0, 1, 2, 3)), static_argnames="excess")
    direct, by_terms = gradient(*at, excess=False), gradient(*at, excess=True)
    for a, b in zip(direct, by_terms, strict=True):
        assert np.all(np.isfinite(a))
        error = np.abs((a + a.T) - (b + b.T)).max() / np.abs(a).max()
        measured("two routes to the gradient", error, below=1e-12)


@pytest.mark.statement("Zhang: Section 5", case="GDBeta")
@pytest.mark.statement("Zhang: Appendices B and D, risk", case="LTB")
@pytest.mark.parametrize("kind", ["GDBeta", "LTB"])
def test_a_risk_in_float32_is_accurate_to_float32(kind, measured):
    rng, d = np.random.default_rng(35), 20
    block = reg.LTB(*random_weights(rng, d, widths(d), scale=1 / d))
    step = reg.GDBeta(2 * rng.normal(size=d), rng.normal(size=(d, d)) / d)
    model = {"GDBeta": step, "LTB": block}[kind]
    given = model, LinearPopulation(*ltb.random_population(rng, d))
    small = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), given)
    risk, exact = reg.risk(*small, 3 * d), reg.risk(*given, 3 * d)
    assert risk.dtype == jnp.float32
    measured("relative error in float32", risk / exact - 1, below=2e-6)


# --- the sum of squares


@jax.jit
@jax.vmap
def terms(parts, H, mean, Psi, noise_var, M):
    problem = LinearPopulation(H, mean, Psi, noise_var)
    model = reg.EffectiveParameters(*parts)
    excess, least = reg.excess(model, problem, M), reg.optimum(reg.LTB, problem, M).risk
    return excess, excess.total, reg.risk(model, problem, M), least


def random_parts(rng, d):
    c, p, u = rng.normal(size=(3, d))
    return c, p, rng.normal(), rng.normal(size=(d, d)), u


def four_squares(parts, population, M):
    """I, III, II, IV through roots of H, II as the tensor that it is."""
    c, p, v, U, u = parts
    white, mean = ltb.Whitened.of(population, M), population.mean
    R, Phi, tau, Omega = white.root, white.Phi, white.tau, white.Omega
    q, g, m = R @ (p + v * mean), R @ u, R @ (mean - c)
    A = R @ (U + np.outer(mean, u)) @ R
    B = v * A + np.outer(q, g)
    cubic = np.einsum("ij,k->ijk", A, q) + 2 * v * np.einsum("ik,j->ijk", Phi, g)
    labels = v**2 * g @ g * (2 * tau**2 / M + 2 * np.trace(Phi @ Phi))
    return np.array(
        [
            np.sum((ltb.root(Omega) @ (B - np.linalg.inv(Omega) @ Phi)) ** 2),
            np.sum((A.T @ q + v * tau * g - m) ** 2) + labels,
            np.sum(cubic**2) / M,
            np.sum((A.T @ q) ** 2) / M,
        ]
    )


@pytest.mark.statement("Zhang: Appendices B and D, terms")
@pytest.mark.slow
def test_the_sum_of_four_squares_to_rounding(measured):
    errors = np.array([four_errors(seed, 3) for seed in range(8)])
    measured("relative error of the sum", errors[:, 0].max())
    measured("relative error of a square", errors[:, 1].max())
    assert np.all(errors < 1e-14)


@pytest.mark.statement("Zhang: Appendices B and D, terms")
def test_the_excess_is_the_sum_of_its_parts():
    assert reg.Excess(*jnp.array([1.0, 2.0, 4.0, 8.0])).total == 15


def four_errors(seed, d):
    """Errors of the sum and of its parts, relative to the risk, over 8 problems."""
    rng = np.random.default_rng(seed)
    cases = [
        (random_parts(rng, d), *ltb.singular_population(rng, d), rng.integers(1, 20))
        for _ in range(8)
    ]
    found, total, risk, least = ltb.in_chunks(terms, cases, 8)
    pieces = (found.preconditioner, found.start, found.fluctuation, found.drift)
    expected = [four_squares(c, ltb.Population(*p), M) for c, *p, M in cases]
    parts = np.abs(np.stack(pieces, axis=1) - expected) / risk[:, None]
    return np.max(np.abs(risk - least - total) / risk), np.max(parts)


@pytest.mark.statement("Zhang: Appendices B and D, terms")
def test_no_square_is_negative(measured):
    rng = np.random.default_rng(36)
    cases = [
        (random_parts(rng, 3), *ltb.random_population(rng, 3), rng.integers(1, 20))
        for _ in range(2000)
    ]
    found, *_ = ltb.in_chunks(terms, cases, 8)
    for name in ("preconditioner", "start", "fluctuation", "drift"):
        smallest = np.min(getattr(found, name))
        measured(f"smallest {name}", smallest)
        assert smallest >= 0


@pytest.mark.statement("Zhang: Appendices B and D, terms")
def test_the_tensor_square_vanishes_where_it_should_up_to_rounding(measured):
    # d = 1, A q + 2 v phi g = 0: a difference of equal numbers
    rng = np.random.default_rng(40)
    cases, sizes = [], []
    for _ in range(200):
        phi, v, q, A = rng.uniform(0.1, 2), *rng.normal(size=3)
        g, one = -A * q / (2 * v * phi), np.ones((1, 1))
        parts = np.zeros(1), np.full(1, q), v, A * one, np.full(1, g)
        cases.append((parts, one, np.zeros(1), phi * one, 0.3, 3))
        sizes.append((A * q) ** 2)
    found, *_ = ltb.in_chunks(terms, cases, 8)
    measured("rest of the square", found.fluctuation / np.array(sizes), below=1e-14)


# --- what they predict, with and without the mask


@pytest.mark.statement("Zhang: Section 3")
@pytest.mark.slow
def test_predictions_of_batches_are_those_of_the_token_model(measured):
    rng = np.random.default_rng(37)
    weights = random_weights(rng, 3, (2, 2, 4, 4, 5, 5), 1.0)
    X, y, x = (rng.normal(size=(6, *rest)) for rest in ((7, 3), (7,), (3,)))
    models = reg.LTB(*weights), reg.LSA(*weights[:4])
    for mask, found in _predictions(models, X, y, x).items():
        for model, values in zip(models, found, strict=True):
            used = [np.asarray(W) for W in jax.tree.leaves(model)]
            expected = oracles.block_predictions(used, X, y, x, mask)
            error = np.abs(np.array(values) - expected) / (1 + np.abs(expected).max())
            measured(f"relative error, mask {mask}", error.max())
            assert np.all(error < 1e-14)


@jax.jit
def _predictions(models, X, y, x):
    """By the matrices and by the effective parameters, from prompts and from tokens."""
    found: dict = {"demos": [], "none": []}
    for model in models:
        both = model, model.effective()
        for mask in found:
            answers = [on_tokens(m, X, y, x, mask) for m in both]
            if mask == "demos":
                answers += [jax.vmap(m.predict)(X, y, x) for m in both]
            found[mask].append(answers)
    return found


def on_tokens(model, X, y, x, mask="demos"):
    """Answers to prompts of one length, written as token matrices."""

    def one(X, y, x):
        E = jnp.vstack([jnp.column_stack([X, y]), jnp.append(x, 0)])
        return model.predict_tokens(E, mask)

    return jax.vmap(one)(X, y, x)


@jax.jit
def masked_and_not(weights, X, y, x):
    block = reg.LTB(*weights)
    parts = block.effective()
    added = (x @ parts.p) * jnp.sum((x @ parts.U) * x, axis=-1) / X.shape[-2]
    return on_tokens(block, X, y, x), on_tokens(block, X, y, x, "none"), added


@pytest.mark.statement("Zhang: Section 3")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([(1, 2), (3, 8), (4, 1)]))
def test_dropping_the_mask_adds_what_the_query_attends_of_itself(seed, size, measured):
    d, M = size
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, d, (d + 1, d + 1, d, d, 4, 4), 1.0)
    prompts = ltb.random_prompts(rng, ltb.random_population(rng, d), M, 30)
    masked, unmasked, added = map(np.asarray, masked_and_not(weights, *prompts))
    exact = oracles.block_predictions(weights, *prompts, "none")
    scale = 1 + np.abs(exact)
    measured("relative error", np.max(np.abs(unmasked - masked - added) / scale))
    assert np.all(np.abs(unmasked - masked - added) < 1e-12 * scale)
    assert np.all(np.abs(unmasked - exact) < 1e-12 * scale)


@pytest.mark.statement("Zhang: Section 3")
def test_the_mask_matters_for_gd_beta_unless_it_starts_from_zero(measured):
    rng = np.random.default_rng(38)
    X, y, x = rng.normal(size=(4, 2)), rng.normal(size=4), rng.normal(size=2)
    for beta in (np.zeros(2), np.ones(2)):
        model = reg.GDBeta(beta, rng.normal(size=(2, 2)))
        E, parts = np.vstack([np.column_stack([X, y]), [*x, 0]]), model.effective()
        change = float(parts.predict_tokens(E, "none") - parts.predict_tokens(E))
        expected = -(beta @ x) * (x @ np.asarray(model.Gamma).T @ x) / 4
        measured("error of the change", change - expected, below=1e-14)
        assert (change == 0) == (not beta.any())


@pytest.mark.statement("Zhang: Section 3")
def test_the_weight_of_a_prompt_is_the_sum_of_its_five_parts(measured):
    rng = np.random.default_rng(39)
    c, p, u = rng.normal(size=(3, 3))
    v, U = rng.normal(), rng.normal(size=(3, 3))
    X, y = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6))
    weight = np.asarray(jax.vmap(reg.EffectiveParameters(c, p, v, U, u).weights)(X, y))
    for k in range(2):
        S, moment = X[k].T @ X[k] / 6, X[k].T @ y[k] / 6
        expected = (
            c
            + U.T @ S @ p
            + (p @ moment) * u
            + v * U.T @ moment
            + v * (y[k] @ y[k]) / 6 * u
        )
        measured("error", np.abs(weight[k] - expected).max())
        np.testing.assert_allclose(weight[k], expected, rtol=1e-13)
