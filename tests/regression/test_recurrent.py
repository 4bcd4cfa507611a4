"""Recurrent learners: vectors, both forms, limits, drift, and wrong values."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, NoClosedForm
from tests.vectors import make_recurrent_learners as vectors

KINDS = {
    "delta_rule": reg.DeltaRule,
    "gated_linear_attention": reg.GatedLinearAttention,
    "mesa": reg.Mesa,
}
VECTORS = json.loads(vectors.PATH.read_text())
POINTS = tuple(np.array(VECTORS[name]) for name in ("X", "y", "X_query"))
ISO = LinearPopulation.isotropic(3, 0.3)
DRIFT = reg.DriftingTasks(3, 0.3, 0.8)
KEY = jax.random.key(0)


@jax.jit
def both_forms(rule, X, y, Q):
    chunks = [reg.chunked_predictions(rule, X, y, Q, chunk_size=C) for C in (1, 4, 64)]
    return rule.predict_prefixes(X, y, Q), *chunks


def test_the_stored_vectors_are_those_of_the_loops():
    found, stored = map(jax.tree.flatten, (vectors.vectors(), VECTORS))
    assert found[1] == stored[1]
    for one, other in zip(found[0], stored[0], strict=True):
        # Processors differ in the last bit of a sum.
        assert one == (other if isinstance(other, str) else pytest.approx(other, 1e-13))


@pytest.mark.parametrize("name", VECTORS["learners"])
def test_every_learner_has_the_answers_of_its_vector(name):
    case = VECTORS["learners"][name]
    rule = KINDS[case["rule"]](**case["settings"])
    for found in both_forms(rule, *POINTS):
        np.testing.assert_allclose(found, case["answers"], rtol=1e-12, atol=1e-12)
    X, y, Q = POINTS
    last = rule.predict(X[:-1], y[:-1], Q[-1])
    np.testing.assert_allclose(last, case["answers"][-1], rtol=1e-12, atol=1e-12)


def test_limits_are_the_learners_without_a_gate():
    X, y, Q = POINTS
    path = reg.Mesa(0.4, 1.0).predict_prefixes(X, y, Q)
    ridge = reg.Ridge(0.4).predict_prefixes(X, y, Q)
    np.testing.assert_allclose(path, ridge, rtol=1e-12, atol=1e-13)
    mean = reg.GatedLinearAttention(1 / 8).predict(X[:8], y[:8], Q[8])
    np.testing.assert_allclose(mean, reg.Averaging().predict(X[:8], y[:8], Q[8]))
    sizes = jnp.full(8, 0.2)
    constant, schedule = reg.DeltaRule(0.2), reg.DeltaRule(sizes)
    found = [both_forms(rule, *POINTS) for rule in (constant, schedule)]
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-14)
    ones = reg.risk(constant, ISO, 8), reg.risk(schedule, ISO, 8)
    np.testing.assert_allclose(*ones, rtol=1e-13)
    # One task is a drift of persistence 1, and no example leaves the prior alone.
    for source in (ISO, reg.DriftingTasks(3, 0.3, 1.0)):
        np.testing.assert_allclose(reg.risk(constant, source, 8), ones[0], rtol=1e-13)
        np.testing.assert_allclose(reg.risk(constant, source, 0), 3.3, rtol=1e-13)
    bayes = reg.Bayes(reg.DriftingTasks(3, 0.3, 1.0)), reg.Bayes(ISO)
    pair = [one.predict_prefixes(X, y, Q) for one in bayes]
    np.testing.assert_allclose(*pair, rtol=1e-11, atol=1e-13)


def test_long_prompts_and_empty_ones():
    rule = reg.DeltaRule(0.05, 0.99)
    assert float(rule.predict(np.zeros((0, 3)), np.zeros(0), np.ones(3))) == 0
    empty = np.zeros((0, 3)), np.zeros(0)
    for one in (rule, reg.GatedLinearAttention(0.1, 0.5), reg.Mesa(1.0, 0.5)):
        assert one.predict_prefixes(*empty).shape == (0,)
        assert reg.chunked_predictions(one, *empty).shape == (0,)
    limit = reg.risk(rule, DRIFT, 10**6)
    np.testing.assert_allclose(limit, reg.risk(rule, DRIFT, 3000), rtol=1e-12)
    assert not np.isfinite(reg.risk(reg.DeltaRule(2.0), ISO, 10**6))


@pytest.mark.slow
def test_drifting_tasks_have_their_covariances():
    population = LinearPopulation(
        jnp.diag(jnp.array([1.0, 0.5])),
        jnp.array([1.0, -1.0]),
        jnp.array([[1.0, 0.3], [0.3, 0.5]]),
        0.2,
    )
    drift = reg.DriftingTasks.of(population, 0.6)
    prompt = jax.jit(lambda key: drift.sample(key, 3, 40_000))(KEY)
    X, y, w = (np.asarray(a) for a in (prompt.X, prompt.y, prompt.w))
    assert w.shape == (40_000, 4, 2)
    away = w - np.array([1.0, -1.0])
    for i in range(4):
        for j in range(i + 1):
            products = away[:, i, :, None] * away[:, j, None, :]
            expected = 0.6 ** (i - j) * np.asarray(population.task_cov)
            spread = products.std(axis=0) / 200
            assert np.abs((products.mean(axis=0) - expected) / spread).max() < 4.5
    noise = y - (X * w[:, :-1]).sum(-1)
    assert abs(noise.var() - 0.2) < 4 * 0.2 * np.sqrt(2 / noise.size)
    same = drift.correlated(3)
    assert isinstance(same, reg.CorrelatedTasks)
    np.testing.assert_allclose(same.correlation[0], 0.6 ** np.arange(4))


@pytest.mark.slow
def test_the_dtype_is_that_of_the_prompt_and_the_population():
    population = LinearPopulation.isotropic(3, 0.3, dtype=jnp.float32)
    drift = reg.DriftingTasks.of(population, 0.8)
    X, y, Q = (jnp.asarray(a, jnp.float32) for a in POINTS)
    for rule in (reg.DeltaRule(0.1, 0.9), reg.GatedLinearAttention([0.1] * 9, 0.9)):
        assert reg.risk(rule, drift, 8).dtype == jnp.float32
        np.testing.assert_allclose(
            reg.risk(rule, drift, 8), reg.risk(rule, DRIFT, 8), rtol=1e-6
        )
    for rule in (reg.DeltaRule(0.1, 0.9), reg.Mesa(0.1, 0.9), reg.Bayes(drift)):
        assert rule.predict(X, y, Q[0]).dtype == jnp.float32
        assert rule.predict_prefixes(X, y).dtype == jnp.float32
    assert drift.sample(KEY, 4, 2).y.dtype == jnp.float32


@pytest.mark.slow
def test_a_risk_is_differentiable_and_can_be_batched():
    best = reg.optimum(reg.DeltaRule, DRIFT, 9).model
    slope = jax.grad(reg.risk)(best, DRIFT, 9)
    np.testing.assert_allclose((slope.step_size, slope.gate), 0, atol=1e-6)
    each = [float(reg.risk(best, DRIFT, k)) for k in range(3)]
    curve = reg.estimate_risk(best, DRIFT, range(3))
    np.testing.assert_allclose(curve.mean, each, rtol=1e-13)
    assert curve.how == "exact"
    slopes = jax.grad(lambda a: reg.risk(best, reg.DriftingTasks(3, 0.3, a), 9))(0.8)
    steps = [
        reg.risk(best, reg.DriftingTasks(3, 0.3, 0.8 + h), 9) for h in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(slopes, (steps[0] - steps[1]) / 2e-6, rtol=1e-6)


def test_what_is_wrong_or_unknown_is_said():
    for call, message in (
        (lambda: reg.DeltaRule("best"), "step_size: expected one of 'schedule', got"),
        (lambda: reg.DeltaRule(np.nan), "step_size: expected finite entries, got nan"),
        (lambda: reg.DeltaRule([[0.1]]), r"step_size: expected shape \(T,\), got"),
        (lambda: reg.DeltaRule(0.1, 1.5), r"gate: expected a value in \[0, 1\], got"),
        (lambda: reg.Mesa(0.0, 0.5), "penalty: expected a finite value > 0, got 0"),
        (lambda: reg.Mesa(1.0, -1), r"forgetting: expected a value in \[0, 1\], got"),
        (lambda: reg.DriftingTasks(3, 0.1, 2.0), r"persistence: expected a value in"),
        (lambda: reg.DriftingTasks(0, 0.1), "dim: expected a positive integer, got 0"),
        (lambda: reg.DeltaRule(None).predict(*POINTS[:2], POINTS[2][0]), "step_size"),
        (lambda: reg.risk(reg.DeltaRule(None), ISO, 3), "step_size, gate: expected"),
        (lambda: reg.risk(reg.DeltaRule([0.1, 0.1]), ISO, 3), "step_size: expected at"),
        (lambda: reg.chunked_predictions(reg.Ridge(1.0), *POINTS), "predictor: expect"),
        (
            lambda: reg.chunked_predictions(reg.DeltaRule(0.1), *POINTS, chunk_size=0),
            "chunk_size: expected a positive integer, got 0",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            call()
    tilted = ISO.with_(task_cov=jnp.diag(jnp.array([1.0, 2.0, 3.0])))
    for call in (
        lambda: reg.risk(reg.Averaging(), DRIFT, 3),
        lambda: reg.risk(reg.Steps([0.1]), DRIFT, 3),
        lambda: reg.risk(reg.Mesa(1.0, 0.5), DRIFT, 3),
        lambda: reg.risk(reg.DeltaRule(0.1), DRIFT.correlated(3), 3),
        lambda: reg.optimum(reg.DeltaRule("schedule"), DRIFT, 3),
        lambda: reg.optimum(reg.DeltaRule("schedule"), tilted, 3),
        lambda: reg.optimum(reg.DeltaRule, ISO.with_(fourth_moment=1.0), 3),
    ):
        with pytest.raises(NoClosedForm):
            call()
    traced = jax.jit(lambda g: reg.risk(reg.DeltaRule(0.1, g), ISO, 3))
    assert np.isnan(traced(1.5))
    assert np.isfinite(traced(0.5))
