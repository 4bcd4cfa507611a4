"""Recurrent learners: exact risks, best step sizes, gates and weights, the filter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests.bridge.tiers import quick
from tests.oracles import z_score
from tests.regression import oracles_recurrent as oracles

RNG = np.random.default_rng(5)
SCHEDULE = RNG.uniform(0.02, 0.2, 9)


def covariance(rng, d):
    A = rng.normal(size=(d, d))
    return A @ A.T / d + 0.2 * np.eye(d)


def problem(d, noise_var):
    return covariance(RNG, d), RNG.normal(size=d), covariance(RNG, d), noise_var


# Population, persistence, step size, gate, N; three sizes and ways to forget.
SETTINGS = [
    (problem(3, 0.4), 1.0, 0.11, 0.93, 7),
    (problem(4, 0.1), 0.8, 0.07, 0.85, 12),
    (problem(2, 1.3), 0.6, SCHEDULE, 1.0, 9),
]


@functools.partial(jax.jit, static_argnums=(0, 6))
def exact(kind, given, a, step_size, gate, N, drifts):
    source = LinearPopulation(*given)
    source = reg.DriftingTasks.of(source, a) if drifts else source
    return reg.risk(kind(step_size, gate), source, N)


def asked(kind, given, a, step_size, gate, N):
    return float(exact(kind, given, a, jnp.asarray(step_size), gate, N, a < 1))


@pytest.mark.statement("Recurrent: Risk of the delta rule")
@pytest.mark.parametrize("setting", SETTINGS, ids=["one task", "drift", "schedule"])
def test_the_risk_is_that_of_whole_second_moments(setting, measured):
    given, a, step_size, gate, N = setting
    expected = oracles.risk(*given, a, step_size, gate, N)
    error = asked(reg.DeltaRule, *setting) / expected - 1
    measured("relative error", error, below=1e-12)


@pytest.mark.statement("Recurrent: Risk of gated linear attention")
@pytest.mark.parametrize("setting", SETTINGS, ids=["one task", "drift", "schedule"])
def test_the_risk_is_that_of_weighted_demonstrations(setting, measured):
    given, a, step_size, gate, N = setting
    expected = oracles.risk(*given, a, step_size, gate, N, delta=False)
    found = asked(reg.GatedLinearAttention, *setting)
    measured("relative error", found / expected - 1, below=1e-12)
    # A twin: quadrature over all Gaussian variables.
    weights = np.broadcast_to(step_size, N) * gate ** np.arange(N)[::-1]
    if len(given[1]) > 2:
        return
    layer = reg.OneLayer(
        lambda x, y, x_query: y * jnp.sum(x * x_query),
        jnp.ones(()),
        degree=2,
        weights=jnp.asarray(weights),
    )
    drift = reg.DriftingTasks.of(LinearPopulation(*given), a).correlated(N)
    twin = float(reg.risk(layer, drift, N))
    np.testing.assert_allclose(found, twin, rtol=1e-10)


@pytest.mark.statement("Recurrent: Risk of the delta rule")
@pytest.mark.statement("Recurrent: Risk of gated linear attention")
@pytest.mark.parametrize("setting", SETTINGS, ids=["one task", "drift", "schedule"])
def test_simulated_errors_have_these_risks(setting, measured):
    (H, mean, Psi, noise_var), a, step_size, gate, N = setting
    B, d = 40_000, len(mean)
    rng = np.random.default_rng(N)
    roots = [np.linalg.cholesky(A).T for A in (H, Psi)]
    v, W, V = rng.standard_normal((B, d)) @ roots[1], np.zeros((B, d)), np.zeros((B, d))
    for t in range(N + 1):
        if t:
            fresh = rng.standard_normal((B, d)) @ roots[1]
            v = a * v + np.sqrt(1 - a**2) * fresh
        x = rng.standard_normal((B, d)) @ roots[0]
        y = ((v + mean) * x).sum(1) + np.sqrt(noise_var) * rng.standard_normal(B)
        if t < N:
            beta = step_size if np.ndim(step_size) == 0 else step_size[t]
            missed = (y - gate * (x * W).sum(1))[:, None]
            W, V = gate * W + beta * x * missed, gate * V + beta * x * y[:, None]
    for kind, state in ((reg.DeltaRule, W), (reg.GatedLinearAttention, V)):
        errors = (y - (x * state).sum(1)) ** 2
        z = z_score(errors, asked(kind, *setting))
        measured(f"z of {kind.__name__}", z, below=3)


def scalar_risk(d, a, noise_var, gates, sizes, read_out=1.0):
    """Excess / d of isotropic tasks, from the second moments of one coordinate."""
    c = S = 0.0
    for g, beta in zip(gates, sizes, strict=True):
        e = 1 - 2 * g * a * c + g**2 * S
        S = g**2 * S + 2 * beta * (g * a * c - g**2 * S)
        S += beta**2 * ((d + 2) * e + noise_var)
        c = g * a * c + beta * (1 - g * a * c)
    return 1 - 2 * read_out * a * c + read_out**2 * S


@pytest.mark.slow
@pytest.mark.statement("Recurrent: Risk of the delta rule")
def test_isotropic_risks_follow_the_scalar_recursion(measured):
    for d, a, g, beta, noise_var, N in (
        (7, 0.9, 0.95, 0.06, 0.5, 30),
        (2, 1.0, 1.0, 0.2, 0.1, 11),
        (12, 0.5, 0.7, 0.05, 1.0, 5),
    ):
        expected = d * scalar_risk(d, a, noise_var, [g] * N, [beta] * N) + noise_var
        drift = reg.DriftingTasks(d, noise_var, a)
        found = float(reg.risk(reg.DeltaRule(beta, g), drift, N))
        measured("relative error", found / expected - 1, below=1e-12)


@pytest.mark.statement("Recurrent: Best schedule")
@pytest.mark.parametrize(("d", "noise_var", "N"), [(3, 0.5, 8), (4, 0.0, 5), (2, 2, 9)])
def test_no_schedule_is_better(d, noise_var, N, measured):
    population = LinearPopulation(2 * jnp.eye(d), None, 0.5 * jnp.eye(d), noise_var)
    best = reg.optimum(reg.DeltaRule("schedule"), population, N)
    e, sizes = 0.5, []
    for _ in range(N):
        sizes.append(e / (2 * (d + 2) * e + noise_var))
        e = e - 2 * sizes[-1] * e
    np.testing.assert_allclose(best.model.step_size, sizes, rtol=1e-13)
    np.testing.assert_allclose(best.risk, 2 * d * e + noise_var, rtol=1e-13)
    zero, zeros = np.zeros(d), np.array(sizes)
    given = 2 * np.eye(d), zero, 0.5 * np.eye(d), noise_var
    own = oracles.risk(*given, 1.0, zeros, 1.0, N)
    np.testing.assert_allclose(best.risk, own, rtol=1e-12)
    rng = np.random.default_rng(d)
    least = np.inf
    for size in (1e-4, 1e-2, 0.3) * 4:
        other = zeros * (1 + size * rng.standard_normal(N))
        gate = 1 - abs(size * rng.standard_normal()) / 10
        changed = oracles.risk(*given, 1.0, other, gate, N)
        least = min(least, changed / own - 1)
    measured("least excess of another schedule", least)
    assert least > 0


@pytest.mark.statement("Recurrent: Best schedule")
@pytest.mark.parametrize(
    ("d", "a", "noise_var", "N"), [(3, 0.8, 0.5, 6), (6, 0.95, 0.1, 9), (2, 0.5, 1, 5)]
)
def test_greedy_steps_are_best_for_a_decayed_answer_of_tasks_that_drift(
    d, a, noise_var, N, measured
):
    risk = functools.partial(scalar_risk, d, a, noise_var)
    e, sizes = 1.0, []
    for _ in range(N):
        sizes.append(e / ((d + 2) * e + noise_var))
        e = a**2 * (1 - sizes[-1]) * e + 1 - a**2
    np.testing.assert_allclose(risk([a] * N, sizes, a), e, rtol=1e-13)
    rng, least = np.random.default_rng(1), np.inf
    for size in (1e-4, 1e-2, 0.3) * 100:
        gates = a + size * rng.standard_normal(N)
        other = np.array(sizes) * (1 + size * rng.standard_normal(N))
        read_out = a + size * rng.standard_normal()
        least = min(least, risk(gates, other, read_out) / e - 1)
    measured("least excess of another schedule, gates and answer", least)
    assert least > 0
    # The learners read the state itself, for which these steps are not the best.
    scaled = np.array(sizes) * 0.9
    assert risk([a] * N, scaled, 1.0) < risk([a] * N, sizes, 1.0)


@pytest.mark.statement("Recurrent: Best weights")
@pytest.mark.parametrize("a", [1.0, 0.85, 0.4])
def test_the_best_weights_solve_the_normal_equations(a, measured):
    given, N = problem(3, 0.3), 6
    drift = reg.DriftingTasks.of(LinearPopulation(*given), a)
    best = reg.optimum(reg.GatedLinearAttention("schedule"), drift, N)
    omega = np.asarray(best.model.step_size)

    def risk(omega):
        return oracles.risk(*given, a, omega, 1.0, N, delta=False)

    np.testing.assert_allclose(best.risk, risk(omega), rtol=1e-11)
    slopes = [
        (risk(omega + step) - risk(omega - step)) / 0.02
        for step in 0.01 * np.eye(N)  # a quadratic has no error of its own
    ]
    size = abs(risk(omega + 0.01) - risk(omega)) / 0.01
    measured("largest slope / that of a step away", np.abs(slopes).max() / size)
    assert np.abs(slopes).max() < 1e-9 * size


@pytest.mark.slow
@pytest.mark.statement("Recurrent: Best weights")
def test_isotropic_weights_have_the_published_form():
    d, N, noise_var, a = 3, 7, 0.6, 0.75
    R = a ** np.abs(np.subtract.outer(np.arange(N + 1), np.arange(N + 1)))
    r = R[N, :N]
    omega = np.linalg.solve(R[:N, :N] + (d + 1 + noise_var) * np.eye(N), r)
    drift = reg.DriftingTasks(d, noise_var, a)
    best = reg.optimum(reg.GatedLinearAttention("schedule"), drift, N)
    np.testing.assert_allclose(best.model.step_size, omega, rtol=1e-12)
    np.testing.assert_allclose(best.risk, d * (1 - omega @ r) + noise_var, rtol=1e-13)
    equal = reg.optimum(reg.GatedLinearAttention(None), drift, N)
    size = r.sum() / (R[:N, :N].sum() + (d + 1 + noise_var) * N)
    np.testing.assert_allclose(equal.model.step_size, size, rtol=1e-6)
    np.testing.assert_allclose(equal.risk, d * (1 - size * r.sum()) + noise_var)


@pytest.mark.statement("Recurrent: Best step and gate")
@pytest.mark.parametrize(
    "kind",
    [reg.DeltaRule, pytest.param(reg.GatedLinearAttention, marks=pytest.mark.slow)],
)
def test_no_step_and_gate_of_a_grid_are_better(kind, measured):
    drift, N = reg.DriftingTasks(3, 0.4, 0.9), 25
    best = reg.optimum(kind, drift, N)
    sizes, gates = np.linspace(0.01, 0.4, 60), np.linspace(0, 1, 61)
    grid = jax.jit(
        jax.vmap(
            jax.vmap(lambda s, g: reg.risk(kind(s, g), drift, N), (None, 0)), (0, None)
        )
    )
    least = float(np.nanmin(grid(sizes, gates)))
    excess = least - float(best.risk)
    measured("excess of the best of a grid", excess)
    assert 0 <= excess < 1e-3
    fixed = reg.optimum(kind(None, best.model.gate), drift, N)
    np.testing.assert_allclose(fixed.risk, best.risk, rtol=1e-12)


@pytest.mark.statement("Recurrent: Chunked forms")
@pytest.mark.parametrize("chunk_size", [1, 7, 32])
def test_chunked_and_recurrent_forms_are_equal(chunk_size, measured):
    rng = np.random.default_rng(chunk_size)
    X, Q = rng.standard_normal((2, 50, 6))
    y, sizes = rng.standard_normal(50), rng.uniform(0, 0.15, 50)

    @jax.jit
    def both(rule):
        chunked = reg.chunked_predictions(rule, X, y, Q, chunk_size=chunk_size)
        return rule.predict_prefixes(X, y, Q), chunked

    for rule, loop in (
        (reg.DeltaRule(sizes, 0.97), oracles.delta_rule),
        (reg.GatedLinearAttention(sizes, 0.9), oracles.gated_linear_attention),
        (reg.Mesa(0.3, 0.95), oracles.mesa),
    ):
        recurrent, chunked = both(rule)
        given = (0.3, 0.95) if loop is oracles.mesa else (sizes, rule.gate)
        expected = loop(X, y, Q, *map(np.asarray, given))
        error = max(np.abs(one - expected).max() for one in (recurrent, chunked))
        measured("largest error of an answer", error, below=1e-12)
        measured("largest difference", np.abs(recurrent - chunked).max())


@pytest.mark.statement("Recurrent: Filter of tasks that drift")
@pytest.mark.parametrize("a", quick([0.7], [0.0, 0.7, 0.98]))
def test_the_filter_is_the_mean_of_the_joint_gaussian(a, measured):
    H, mean, Psi, noise_var = problem(3, 0.2)
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((8, 3)), rng.standard_normal(8)
    drift = reg.DriftingTasks.of(LinearPopulation(H, mean, Psi, noise_var), a)
    means, covs = oracles.kalman(X, y, mean, Psi, noise_var, a)
    rule = reg.Bayes(drift)
    found = rule.predict_prefixes(X, y)
    error = np.abs(found - (means * X).sum(1)).max()
    error = max(error, abs(rule.predict(X[:7], y[:7], X[7]) - found[7]))
    expected = np.einsum("ij,kij->k", H, covs)
    error = max(
        error, np.abs(rule.risks_given(drift, jnp.asarray(X)) / expected - 1).max()
    )
    # Its risk is also that of any weight that is linear in the labels.
    of_weights = reg.predictors.LinearInLabels.risk_given
    other = of_weights(rule, drift, jnp.asarray(X[:7]))
    error = max(error, abs(other / expected[7] - 1))
    measured("largest error", error, below=1e-11)


@pytest.mark.slow
@pytest.mark.statement("Recurrent: Filter of tasks that drift")
def test_risks_given_the_inputs_are_those_of_errors_and_the_filter_is_best(measured):
    drift, N, key = reg.DriftingTasks(3, 0.5, 0.9), 8, jax.random.key(2)
    found = {}
    for rule in (reg.Bayes(drift), reg.Mesa(0.5, 0.9), reg.Ridge(0.5)):
        given = reg.estimate_risk(rule, drift, N, key=key, num_prompts=2000)
        assert given.how == "exact given the inputs"
        plain = reg.estimate_risk(
            rule.predict, drift, N, key=jax.random.key(3), num_prompts=20_000
        )
        spread = np.hypot(given.standard_error, plain.standard_error)
        measured("z", float((given.mean - plain.mean) / spread), below=3)
        found[type(rule).__name__] = float(given.mean)
    rule = reg.optimum(reg.DeltaRule, drift, N)
    assert found["Bayes"] < found["Mesa"] < found["Ridge"]
    assert found["Bayes"] < rule.risk
    curve = reg.estimate_risk(reg.Bayes(drift), drift, range(3), key=key)
    np.testing.assert_allclose(curve.mean[0], 3.5)
