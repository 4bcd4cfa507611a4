"""Huang et al. (2024): the gradient, the balanced flow, the staged phases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression.balanced_features import (
    balanced_attention,
    balanced_loss,
    balanced_time,
    loss_asymptote,
)
from icltheory.regression.features import (
    FeaturePopulation,
    feature_descent,
    feature_gradient,
    feature_losses,
    feature_phases,
)

RNG = np.random.default_rng(0)
SLOW = pytest.mark.slow
BALANCED = {5: 2450, 10: 5700, 20: 12_600}


def explicit_loss(Q, V, X, X_query, W):
    """Risk of the layer itself, on tokens and labels."""
    y = jnp.einsum("bnd,wd->wbn", X, W)
    weights = jax.nn.softmax(jnp.einsum("bnd,de,be->bn", X, Q, X_query), axis=-1)
    answer = jnp.einsum("bn,wbn->wb", weights, y)
    return jnp.mean((answer - jnp.einsum("bd,wd->wb", X_query, W)) ** 2)


@pytest.mark.statement("Huang: gradient")
def test_gradient_in_closed_form_is_that_of_the_layer(measured):
    K, d, N, count = 4, 5, 6, 40
    V = np.linalg.qr(RNG.normal(size=(d, d)))[0][:K]
    logits = RNG.normal(size=(K, K))
    context = RNG.integers(0, K, size=(count, N))
    query = RNG.integers(0, K, size=count)
    # Orthogonal labels average over w ~ N(0, I) exactly.
    W = np.sqrt(d) * np.eye(d)
    Q = V.T @ logits.T @ V
    grad = jax.jit(jax.value_and_grad(explicit_loss))
    value, slope = grad(Q, V, V[context], V[query], W)
    expected, loss = np.zeros((K, K)), 0.0
    for one, q in zip(context, query, strict=True):
        counts = np.bincount(one, minlength=K).astype(float)[None]
        population = FeaturePopulation(
            *map(jnp.asarray, (np.eye(K)[q], counts, np.ones(1)))
        )
        expected += np.asarray(feature_gradient(logits, population)) / count
        loss += float(np.asarray(feature_losses(logits, population))[q]) / count
    measured("loss against the layer", loss / value - 1)
    assert loss == pytest.approx(float(value), rel=1e-13)
    measured("gradient against autodiff", V.T @ expected.T @ V - slope, below=1e-15)


@pytest.mark.statement("Huang: gradient")
def test_gradient_of_the_population_is_autodiff_of_its_loss(measured):
    p = np.array([0.4, 0.3, 0.2, 0.1])
    logits = RNG.normal(size=(4, 4))
    for population in (FeaturePopulation.infinite(p), FeaturePopulation.finite(p, 5)):
        slope = jax.grad(lambda B, of=population: feature_losses(B, of) @ p)
        found = np.asarray(feature_gradient(logits, population))
        error = found - jax.jit(slope)(logits)
        measured("gradient against autodiff", error, below=1e-15)


@pytest.fixture(
    scope="module", params=[5, *(pytest.param(K, marks=SLOW) for K in (10, 20))]
)
def path(request):
    """Descent at step size 1/4, by sums over one feature and not by matrices."""
    K, eta, steps = request.param, 0.25, BALANCED[request.param]
    A = B = 0.0
    own = np.zeros(steps + 1)
    for t in range(steps + 1):
        a = np.exp(A) / (np.exp(A) + (K - 1) * np.exp(B))
        own[t], b = a, (1 - a) / (K - 1)
        S = (K - 1) * b**2
        A += 2 * eta / K * a * ((1 - a) ** 2 + S)
        B -= 2 * eta / K * b * (a * (1 - a) + b - S)
    return K, eta, own


@pytest.mark.statement("Huang: balanced features")
def test_balanced_descent_is_that_of_two_numbers(path, measured):
    K, eta, own = path
    even = FeaturePopulation.infinite(np.full(K, 1 / K))
    found = feature_descent(even, eta, 500, record_every=50)
    error = np.asarray(found.own_attention) - own[:501:50, None]
    measured("attention against two numbers", error, below=1e-12)
    logits = np.asarray(found.logits)
    off = np.where(np.eye(K, dtype=bool)[None], 0, logits)
    drift = np.diagonal(logits, axis1=1, axis2=2) + off.sum(axis=-1)
    measured("largest A + (K - 1) B", drift, below=1e-13)


@pytest.mark.statement("Huang: balanced features")
def test_balanced_closed_form_follows_descent_within_one_percent(path, measured):
    K, eta, own = path
    steps = np.arange(len(own))
    times = np.asarray(balanced_time(own, K, eta))
    time = np.abs(times[1:] / steps[1:] - 1).max()
    losses = np.asarray(balanced_loss(own, K))
    predicted = balanced_loss(balanced_attention(steps, K, eta), K)
    loss = np.abs(predicted / losses - 1).max()
    measured("relative error of the time t(u)", time, below=0.01)
    measured("relative error of the loss at a time", loss, below=0.01)
    # the steps at which it crosses, against the formula
    for reached in (own >= 0.5, np.asarray(losses) < 2e-3):
        at = int(np.argmax(reached))
        assert at > 0
        ends = times[[at - 1, at]]
        assert ends[0] <= at * 1.01
        assert ends[1] >= (at - 1) * 0.99
    np.testing.assert_allclose(balanced_attention(times, K, eta), own, rtol=1e-9)


@pytest.mark.statement("Huang: balanced features")
def test_flow_obeys_its_differential_equation(measured):
    K, eta = 7, 0.15
    s, u = K / (K - 1), np.linspace(0.02, 0.85, 30)
    both = jax.jit(
        lambda a: (
            jax.vmap(jax.grad(lambda a: balanced_time(a, K, eta)))(a),
            balanced_time(a, K, eta),
        )
    )
    slope, times = both(1 - u)
    speed = 2 * eta * s**2 / K * u**3 * (1 - u) ** 2
    measured("relative error of du/dt", slope * speed - 1, below=1e-12)
    # and so does its inverse, though found by bisection
    grads = jax.jit(
        jax.vmap(jax.grad(lambda t, e: balanced_attention(t, K, e), (0, 1)), (0, None))
    )
    back, _ = grads(times, eta)
    measured("relative error of du/dt, of the inverse", back / speed - 1, below=1e-9)
    in_time, in_eta = (np.asarray(g)[0] for g in grads(np.full(30, 40.0), eta))
    assert in_eta == pytest.approx(40 / eta * in_time, rel=1e-9)
    ends = balanced_attention(np.array([0.0, 1e300, np.inf]), K, eta)
    np.testing.assert_allclose(ends, [1 / K, 1, 1], rtol=1e-12)


@pytest.mark.statement("Huang: balanced features, phase 2")
def test_second_phase_falls_like_one_over_t(measured):
    for K in (5, 20):
        attention = 1 - np.array([1e-2, 1e-3, 1e-4])
        loss, time = balanced_loss(attention, K), balanced_time(attention, K, 0.4)
        ratio = np.asarray(loss) * time / float(loss_asymptote(K, 0.4))
        measured("L t over (K - 1) / (4 eta), last", ratio[-1])
        assert np.all(np.diff(ratio) < 0)
        assert 1 < ratio[-1] < 1.001
    # Without the slow approach it is no prediction: at L = 2e-3 it is 20 to 30 % off.
    for K, expected in ((5, 1.20), (20, 1.30)):
        u = np.sqrt(2e-3 * (K - 1) / K)
        time, limit = balanced_time(1 - u, K, 0.4), loss_asymptote(K, 0.4)
        at = float(time) * 2e-3 / float(limit)
        measured("L t over its limit at L = 2e-3", at)
        assert at == pytest.approx(expected, abs=0.02)


@pytest.mark.statement("Huang: balanced features, phase 1")
def test_first_phase_is_of_order_k_squared(measured):
    ratios = [
        float(balanced_time(0.5, K, 0.25)) / (K**2 / 0.5) for K in (10, 100, 1000)
    ]
    measured("steps to 1/2 over K^2 / (2 eta), K = 1000", ratios[-1])
    assert ratios[0] > ratios[1] > ratios[2] > 1
    # The correction is 3 ln K / K, to leading order.
    assert ratios[2] == pytest.approx(1 + 3 * np.log(1000) / 1000, abs=0.003)


@pytest.mark.statement("Huang: imbalanced features")
def test_a_rare_query_sheds_the_dominant_feature_and_is_learned_late(measured):
    p = np.r_[0.5, np.full(7, 0.5 / 7)]
    path = feature_descent(FeaturePopulation.infinite(p), 0.5, 700)
    phases = feature_phases(path, 2e-2)
    phases = jax.tree.map(np.asarray, phases)
    dominant, rare = float(phases.learned[0]), float(phases.learned[1])
    measured("steps of the dominant query", dominant)
    measured("steps of a rare query", rare)
    assert dominant == pytest.approx(67, abs=1)
    assert rare == pytest.approx(666, abs=1)
    for k in (1, 2):  # between two records the attention counts as a straight line
        own = np.asarray(path.own_attention[:, k])
        after = int(np.argmax(own > 0.5))
        ends = slice(after - 1, after + 1)
        half = np.interp(0.5, own[ends], path.steps[ends])
        assert float(phases.half[k]) == pytest.approx(half, rel=1e-12)
    assert phases.overtaken[0] == 0
    measured("steps until its own feature overtakes", phases.overtaken[1])
    assert float(phases.overtaken[1]) == pytest.approx(120, abs=1)
    # at first the competitor falls faster than the own logit grows
    logits = np.asarray(path.logits)
    early, late = logits[51, 1], logits[201, 1]
    assert -float(early[0]) == pytest.approx(0.458, abs=1e-3)
    assert float(early[1]) == pytest.approx(0.352, abs=1e-3)
    assert float(late[1]) > -float(late[0])
    # equal features have no such stages
    even = feature_descent(FeaturePopulation.infinite(np.full(8, 1 / 8)), 0.5, 700)
    assert np.all(feature_phases(even, 2e-2).overtaken <= 1)
