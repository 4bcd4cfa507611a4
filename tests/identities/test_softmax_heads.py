"""Softmax heads on regression: order 1/N, one head at any N, and opposite heads.

The oracle is NumPy: it draws inputs and averages over tasks and label noise exactly.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import regression as reg
from tests.oracles import z_score
from tests.raising import raises

SLOW = pytest.mark.slow
exact = jax.jit(reg.risk)


def weights(B, values, X, x):
    """Weights of the examples, summed over the heads."""
    total = 0.0
    for head, value in zip(B, values, strict=True):
        scores = np.einsum("snd,de,se->sn", X, head, x)
        p = np.exp(scores - scores.max(1, keepdims=True))
        total = total + value * p / p.sum(1, keepdims=True)
    return total


def spd(rng, d):
    A = rng.normal(size=(d, 2 * d))
    return A @ A.T / (2 * d)


def problem(seed, d):
    """A population whose covariances do not commute, and its NumPy parts."""
    rng = np.random.default_rng(seed)
    H, Psi, mean, s2 = spd(rng, d), spd(rng, d), rng.normal(size=d) / 2, 0.4
    population = reg.LinearPopulation(H, mean, Psi, s2)
    return rng, population, H, Psi + np.outer(mean, mean), s2


def heads(rng, H, count, largest):
    """Heads the largest of which has 2 B'HB at ``largest`` times the limit."""
    B = rng.normal(size=(count, len(H), len(H)))
    root = np.linalg.cholesky(H)
    sizes = [np.linalg.norm(root.T @ head @ root, 2) for head in B]
    return B / max(sizes) * np.sqrt(largest / 2), rng.normal(size=count)


def drawn(rng, H, draws, N):
    """Inputs of the examples and of the query."""
    root, d = np.linalg.cholesky(H), len(H)
    return rng.normal(size=(draws, N, d)) @ root.T, rng.normal(size=(draws, d)) @ root.T


def risks_given(B, values, X, x, M, s2):
    """Risk of each prompt's inputs, averaged over task and noise."""
    a = weights(B, values, X, x)
    missed = np.einsum("sn,snd->sd", a, X) - x
    return np.einsum("sd,de,se->s", missed, M, missed) + s2 * (a**2).sum(1) + s2


@pytest.mark.statement("Softmax: answers to order 1/N")
@pytest.mark.parametrize(
    ("d", "count"),
    [(2, 3), pytest.param(2, 1, marks=SLOW), pytest.param(3, 2, marks=SLOW)],
)
def test_mean_and_variance_of_an_answer_to_order_1_over_n(d, count, measured):
    rng, population, H, _, s2 = problem(10 + d + count, d)
    B, values = heads(rng, H, count, 0.5)
    w, x, N, draws = rng.normal(size=d), rng.normal(size=d), 900, 5_000
    head = reg.SoftmaxHeads(B, values)
    found = reg.answer_expansion(head, population, N, w=w, x_query=x)
    X = rng.normal(size=(draws, N, d)) @ np.linalg.cholesky(H).T
    a = weights(B, values, X, np.broadcast_to(x, (draws, d)))
    answers = np.einsum("sn,snd,d->s", a, X, w)
    limit = sum(v * w @ H @ b @ x for v, b in zip(values, B, strict=True))
    np.testing.assert_allclose(found.limit, limit, rtol=1e-12)
    measured("z of the mean", z_score(answers, found.mean), below=3)
    spread = (answers - limit) ** 2 + s2 * (a**2).sum(1)
    z = z_score(spread, found.variance + (found.mean - limit) ** 2)
    measured("z of the variance", z, below=3)
    b = B @ x
    S = np.einsum("hi,ij,hj->h", b, H, b)
    np.testing.assert_allclose(found.effective_examples, N * np.exp(-S), rtol=1e-12)


@pytest.mark.statement("Softmax: risk to order 1/N")
@pytest.mark.parametrize(
    ("d", "count"),
    [(2, 3), pytest.param(2, 1, marks=SLOW), pytest.param(3, 2, marks=SLOW)],
)
def test_the_risk_to_order_1_over_n(d, count, measured):
    rng, population, H, M, s2 = problem(20 + d + count, d)
    B, values = heads(rng, H, count, 0.3)
    N = 1000
    found = reg.risk_expansion(reg.SoftmaxHeads(B, values), population, N)
    X, x = drawn(rng, H, 4_000, N)
    D = np.einsum("h,ij,hjk->ik", values, H, B) - np.eye(d)
    limit = s2 + np.trace(D.T @ M @ D @ H)
    np.testing.assert_allclose(found.limit, limit, rtol=1e-11)
    # The part of the error that is linear in the examples has a control variate, whose
    # mean is 0 by Stein's identity: E X'p = (1 - E |p|^2) H B x.
    at_limit = x @ D.T
    excess = risks_given(B, values, X, x, M, s2) - s2
    excess -= np.einsum("si,ij,sj->s", at_limit, M, at_limit)
    for head, value in zip(B, values, strict=True):
        p, ends = weights([head], [1.0], X, x), x @ (H @ head).T
        off = np.einsum("sn,snd->sd", p, X) - ends * (1 - (p**2).sum(1))[:, None]
        excess -= 2 * value * np.einsum("si,ij,sj->s", at_limit, M, off)
    z = z_score(N * excess, found.first_order)
    measured("z of the coefficient of 1/N", z, below=3)
    measured("coefficient over its standard error", excess.mean() / excess.std() * 63)
    np.testing.assert_allclose(found.risk, limit + found.first_order / N, rtol=1e-12)


@pytest.mark.statement("Softmax: one head at any N")
@pytest.mark.parametrize(
    ("d", "N", "scale"),
    [(2, 3, 0.5), *(pytest.param(*p, marks=SLOW) for p in ((1, 6, 0.8), (3, 25, 0.3)))],
)
def test_one_head_at_any_number_of_examples(d, N, scale, measured):
    rng, population, H, M, s2 = problem(30 + d, d)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    low = np.linalg.inv(np.linalg.cholesky(H))
    B, value = scale**0.5 * low.T @ turn @ low, 1.3
    np.testing.assert_allclose(B.T @ H @ B, scale * np.linalg.inv(H), atol=1e-12)
    draws = risks_given([B], [value], *drawn(rng, H, 30_000, N), M, s2)
    risk = exact(reg.SoftmaxHead(B, value), population, N)
    measured("z", z_score(draws, risk), below=3)


@pytest.mark.statement("Softmax: one head at any N")
@pytest.mark.parametrize(("S", "N"), [(0.6, 7), (2.5, 30), (6.0, 4)])
def test_effective_examples(S, N, measured):
    rng = np.random.default_rng(N)
    p = np.exp(S**0.5 * rng.normal(size=(40_000, N)))
    p /= p.sum(1, keepdims=True)
    found = float(reg.effective_examples(S, N))
    measured("z", z_score((p**2).sum(1), 1 / found), below=3)
    many = 10**8
    assert reg.effective_examples(S, 1) == pytest.approx(1, rel=1e-9)
    assert reg.effective_examples(0.0, N) == pytest.approx(N, rel=1e-9)
    rest = float(reg.effective_examples(S, many)) / many * np.exp(S) - 1
    assert abs(rest) < 20 * np.exp(3 * S) / many + 1e-9


@pytest.mark.statement("Softmax: opposite heads")
@pytest.mark.parametrize(
    ("d", "N", "s2"),
    [(2, 4, 0.1), *(pytest.param(*p, marks=SLOW) for p in ((3, 9, 1.0), (4, 2, 0.0)))],
)
def test_opposite_heads_are_a_step_with_one_example_less(d, N, s2, measured):
    rng, population, H, M, _ = problem(40 + d, d)
    population = population.with_(noise_var=s2)
    Gamma = rng.normal(size=(d, d)) / 2
    X, x = drawn(rng, H, 30_000, N)
    a = np.einsum("snd,de,se->sn", X - X.mean(1, keepdims=True), Gamma.T, x) / N
    missed = np.einsum("sn,snd->sd", a, X) - x
    errors = np.einsum("sd,de,se->s", missed, M, missed) + s2 * ((a**2).sum(1) + 1)
    risk = exact(reg.DebiasedStep(Gamma), population, N)
    measured("z", z_score(errors, risk), below=3)
    y = rng.normal(size=N)
    step = reg.DebiasedStep(Gamma).predict(X[0], y, x[0])
    gaps = [
        abs(float(reg.SoftmaxHeads.pair(Gamma, c).predict(X[0], y, x[0]) - step))
        for c in (2e-2, 1e-2)
    ]
    measured("ratio of the differences at c and c / 2", gaps[0] / gaps[1])
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.02)
    best = reg.optimum(reg.DebiasedStep, population, N)
    np.testing.assert_allclose(exact(best.model, population, N), best.risk, rtol=1e-10)
    isotropic = reg.LinearPopulation.isotropic(d, s2)
    found = float(reg.optimum(reg.DebiasedStep, isotropic, N).risk) - s2
    assert found / d == pytest.approx((d + 1 + s2) / (N + d + s2), rel=1e-12)


@pytest.mark.statement("Softmax: where the average is infinite")
def test_above_a_scale_the_excess_falls_more_slowly_than_1_over_n(measured):
    population = reg.LinearPopulation.isotropic(2, 0.3)
    eye = jnp.eye(2)
    for g, finite in ((0.7, True), (0.708, False)):  # 2 g^2 = 1 at .7071
        found = reg.risk_expansion(reg.SoftmaxHead(g * eye), population, 10)
        assert bool(jnp.isfinite(found.first_order)) == finite
    unused = reg.SoftmaxHeads(jnp.stack([eye / 2, 9 * eye]), [1.0, 0.0])
    one = reg.risk_expansion(reg.SoftmaxHeads(unused.B[:1], [1.0]), population, 10)
    assert float(reg.risk_expansion(unused, population, 10).risk) == pytest.approx(
        float(one.risk), rel=1e-12
    )
    lengths = np.array([1e3, 1e5, 1e7, 1e9])
    noisy = population.with_(noise_var=1e6)  # the excess is that of the noise
    for g, close in ((1.0, 0.01), (1.5, 0.02)):
        head = reg.SoftmaxHead(g * eye)
        excess = np.array([float(exact(head, noisy, N)) - 1e6 for N in lengths])
        slopes = np.diff(np.log(excess)) / np.diff(np.log(lengths))
        predicted = 0.5 - (1 / g**2 + 0.25) ** 0.5
        measured("slope of the excess less the predicted", slopes[-1] - predicted)
        assert abs(slopes[-1] - predicted) < close
        assert abs(slopes[-1] - predicted) < abs(slopes[1] - predicted)
    small = reg.SoftmaxHead(0.4 * eye)
    limit = float(reg.risk_expansion(small, population, 1).limit)
    first = float(reg.risk_expansion(small, population, 1).first_order)
    left = [(float(exact(small, population, N)) - limit) * N for N in lengths[:3]]
    np.testing.assert_allclose(left, first, rtol=2e-2)
    np.testing.assert_allclose(left[2], first, rtol=1e-4)


@pytest.mark.statement("Softmax: best temperature")
@pytest.mark.parametrize(
    ("d", "N", "free"),
    [(2, 15, False), pytest.param(3, 40, True, marks=SLOW)],
)
def test_the_best_temperature_is_the_least_of_a_grid(d, N, free, measured):
    population = reg.LinearPopulation.isotropic(d, 0.5)
    family = reg.SoftmaxHead(jnp.eye(d), None if free else 1.0)
    best = reg.optimum(family, population, N)
    least = float(best.risk)
    assert float(exact(best.model, population, N)) == pytest.approx(least, rel=1e-9)
    scale, value = float(best.model.B[0, 0]), float(best.model.values)
    around = [(scale * a, value) for a in (0.9, 0.99, 1.01, 1.1)]
    around += [(scale, value * a) for a in (0.95, 1.05)] if free else []
    for g, v in around:
        assert float(exact(reg.SoftmaxHead(g * jnp.eye(d), v), population, N)) > least
    measured("best scale", scale)
    # To order 1/N both scale and risk are elsewhere: it is not valid at its optimum.
    heads = reg.SoftmaxHeads(family.B[None], None if free else [1.0])
    order = reg.optimum(heads, population, N)
    measured("its risk to order 1/N over the exact least", order.risk / least)
    if not free:
        found = float(exact(reg.SoftmaxHead(order.model.B[0]), population, N))
        assert found > 1.1 * least


@pytest.mark.statement("Softmax: risk to order 1/N")
@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_coordinates_of_the_inputs_change_nothing(seed):
    rng, population, H, _, s2 = problem(seed, 3)
    B, values = heads(rng, H, 2, 0.8)
    A = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    back = np.linalg.inv(A)
    moved = reg.LinearPopulation(
        A @ H @ A.T,
        back.T @ np.asarray(population.task_mean),
        back.T @ np.asarray(population.task_cov) @ back,
        s2,
    )
    turned = reg.SoftmaxHeads(back.T @ B @ back, values)
    old = reg.risk_expansion(reg.SoftmaxHeads(B, values), population, 50)
    new = reg.risk_expansion(turned, moved, 50)
    np.testing.assert_allclose(new.limit, old.limit, rtol=1e-7)
    np.testing.assert_allclose(new.first_order, old.first_order, rtol=1e-7)


@pytest.mark.statement("Softmax: risk to order 1/N")
def test_the_numbers_of_a_known_example():
    population = reg.LinearPopulation.isotropic(4, 0.25)
    head, x = reg.SoftmaxHead(jnp.eye(4) / 2), jnp.array([2.0, 0, 0, 0])
    for N, expected in ((400, 0.04927), (100, 0.1971)):
        found = []  # the average over w ~ N(0, I), by points of the same covariance
        for w in 2 * np.concatenate([np.eye(4), -np.eye(4)]):
            a = reg.answer_expansion(head, population, N, w=w, x_query=x)
            bias = 2 * (a.limit - w @ x) * (a.mean - a.limit)
            found.append(float(a.variance + bias))
        assert np.mean(found) == pytest.approx(expected, abs=5e-5)
    population = reg.LinearPopulation.isotropic(5, 0.25)
    for family, least in ((reg.DebiasedStep, 0.247525), (reg.LinearStep, 0.238095)):
        risk = float(reg.optimum(family, population, 20).risk)
        assert (risk - 0.25) / 5 == pytest.approx(least, abs=1e-6)


@pytest.mark.statement("Softmax: risk to order 1/N")
def test_wrong_heads_are_refused():
    eye, population = jnp.eye(2), reg.LinearPopulation.isotropic(2)
    skew = reg.SoftmaxHead(jnp.diag(jnp.array([1.0, 2.0])))
    for run, message in (
        (lambda: reg.SoftmaxHead(eye[None]), "B: expected shape (d, d)"),
        (
            lambda: reg.SoftmaxHeads(jnp.stack([eye, eye]), [1.0]),
            "values: expected shape (2,), got (1,)",
        ),
        (
            lambda: reg.risk_expansion(reg.SoftmaxHead(eye, None), population, 5),
            "values: expected numbers, got None",
        ),
        (
            lambda: reg.risk_expansion(reg.LinearStep(eye), population, 5),
            "head: expected softmax heads, got Li",
        ),
    ):
        with raises(message):
            run()
    with pytest.raises(reg.NoClosedForm, match="proportional to the inverse"):
        reg.risk(skew, population, 5)
    assert reg.SoftmaxHead(eye).predict(jnp.zeros((0, 2)), jnp.zeros(0), eye[0]) == 0
