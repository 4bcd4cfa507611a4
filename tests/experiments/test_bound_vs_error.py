"""Errors against bounds: the replicates and their estimates."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from experiments.bound_vs_error import compare, estimate, plan, reference
from experiments.bound_vs_error.config import ProblemSize
from experiments.bound_vs_error.learners import (
    GenericWeights,
    GradientDescent,
    clipped_loss,
    clipped_losses,
    draw_tokens,
    population_loss,
    population_moments,
)
from experiments.bound_vs_error.simulate import (
    Replicates,
    held_out_sizes,
    printed_bound,
    replicate,
)
from icltheory import bounds
from icltheory.noise import noisy_trajectory

# --- the population's side


def test_the_expected_clipped_loss_is_the_integral():
    task = np.array([0.6, -0.8])
    for w in (task, np.zeros(2), np.array([3.0, 1.0])):
        scale = math.sqrt(((w - task) ** 2).sum() + 0.25)
        edge = math.sqrt(2) / scale

        def density(z, s=scale):
            return min((s * z) ** 2, 2) * stats.norm.pdf(z)

        expected = integrate.quad(density, -40, 40, points=[-edge, edge], limit=200)[0]
        found = population_loss(jnp.asarray(w), jnp.asarray(task))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_clipped_loss_is_its_sum():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(7, 2)), rng.normal(size=7), rng.normal(size=2)
    losses = [min((y[i] - sum(X[i] * w)) ** 2, 2.0) for i in range(7)]
    H = np.concatenate([X, y[:, None]], axis=1)
    np.testing.assert_allclose(clipped_losses(w, H), losses, rtol=1e-12)
    np.testing.assert_allclose(clipped_loss(w, H), np.mean(losses), rtol=1e-12)


@pytest.mark.slow
def test_moments_of_the_gradients_are_those_of_gaussian_tokens():
    """Isserlis' theorem term by term, and the closed form of gradient descent."""
    learner = GenericWeights(0)
    moments = jax.jit(population_moments, static_argnums=1)
    W = np.random.default_rng(0).normal(size=(3, 3))
    stack, task = learner.stack(), np.asarray(learner.task)
    mean, cov = moments(stack, 0, jnp.asarray(W), learner.task)
    P = np.eye(3) + W
    V, K, Q = (np.asarray(w[0]) for w in (stack.W_V, stack.W_K, stack.W_Q))
    left, right = V @ P, P.T @ K.T @ Q @ P
    M = np.block([[np.eye(2), task[:, None]], [task[None], np.array([[1.25]])]])
    maps = np.einsum("ia,bj->ijab", left, right).reshape(9, 3, 3)
    expected = np.einsum("kab,ab->k", maps, M)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    fourth = (
        np.einsum("ab,cd->abcd", M, M)
        + np.einsum("ac,bd->abcd", M, M)
        + np.einsum("ad,bc->abcd", M, M)
    )
    second = np.einsum("kab,lcd,abcd->kl", maps, maps, fourth)
    np.testing.assert_allclose(cov, second - np.outer(expected, expected), atol=1e-10)

    gd = GradientDescent(2, 1)
    W = np.zeros((3, 3))
    W[2, :2] = [0.3, -0.2]
    dense = moments(gd.stack(), 0, jnp.asarray(W), gd.task)
    row = slice(6, 8)  # the label row, input columns, in row-major order
    mean, cov = jax.jit(gd.population)(jnp.asarray(W))
    np.testing.assert_allclose(mean, dense[0][row], atol=1e-12)
    np.testing.assert_allclose(cov, dense[1][row, row], atol=1e-12)
    np.testing.assert_allclose(np.delete(dense[0], [6, 7]), 0, atol=1e-12)


# --- replicates


def dense_functions(learner, stack, shots):
    """The population's centre and prior as anisotropic_bound takes them."""

    def center(layer, W):
        return population_moments(stack, layer, W, learner.task)[0].reshape(W.shape)

    def prior(layer, W):
        return population_moments(stack, layer, W, learner.task)[1] / shots

    return center, prior


@pytest.mark.slow
def test_theorem2_gives_the_bounds_of_the_replicates_on_the_same_draws(key):
    learner, L = GradientDescent(2, 2), 2
    N, b, B = 16, 6, 3
    keys = jax.random.split(key, 3)
    split = [jax.random.split(k, B) for k in keys]
    sample = jax.jit(jax.vmap(lambda *k: replicate(k, jnp.asarray(b), learner, N)))(
        *split
    )
    sample = Replicates(*map(np.asarray, sample))
    row = ProblemSize(2, N, b, L, isinstance(learner, GenericWeights))
    found = estimate.bounds(row, sample, learner.support_dim)

    stack = learner.stack()
    H = jax.vmap(lambda k: draw_tokens(k, learner, N))(split[0])
    center, prior = dense_functions(learner, stack, b)

    @jax.jit
    def all_values(H):
        steps = bounds.noisy_steps(stack, H, b, scale=1 / N, key=keys[1])
        printed = steps.norm_product("frobenius")
        given = {"center": center, "prior": prior}
        return {
            "inside": bounds.log_inside_bound(printed, 1.0),
            "frobenius": bounds.isotropic_bound(printed, 1.0),
            "exact": bounds.isotropic_bound(steps, 1.0),
            "centred": bounds.isotropic_bound(steps.centred(center), 1.0),
            "anisotropic": bounds.anisotropic_bound(steps, 1.0, **given),
            "held_out_half": bounds.held_out_bound(steps, 1.0, 8),
            "held_out_most": bounds.held_out_bound(steps, 1.0, 15),
            "held_out_all_but_one": bounds.held_out_bound(steps, 1.0, 15),
        }

    assert held_out_sizes(N) == (8, 15, 15)
    for name, bound in all_values(H).items():
        np.testing.assert_allclose(found[name].value, bound.value, rtol=1e-9)
        # n - 1 here, the influence of single prompts there
        np.testing.assert_allclose(
            found[name].standard_error, bound.standard_error, rtol=1e-6
        )


@pytest.mark.slow
def test_the_printed_bound_is_infinite_by_both_routes(key):
    learner, row = GradientDescent(1, 1), ProblemSize(1, 8, 4, 1)

    @jax.jit
    def as_printed(key):
        H = draw_tokens(key, learner, 8)
        steps = bounds.noisy_steps(learner.stack(), H, 4, scale=1 / 8)
        return bounds.printed_bound(steps, 1.0)

    bound = as_printed(key)
    assert printed_bound(learner, row) == float(bound.value) == math.inf


@pytest.mark.slow
def test_errors_are_expected_less_training_loss_of_both_learners(key):
    learner, N, b = GradientDescent(2, 2), 16, 6
    keys = jax.random.split(key, 3)
    one = jax.jit(lambda k: replicate(k, jnp.asarray(b), learner, N))(keys)
    H = np.asarray(draw_tokens(keys[0], learner, N))
    X, y, task = H[:, :2], H[:, 2], np.asarray(learner.task)
    path = noisy_trajectory(keys[1], learner.stack(), H, b, scale=1 / N)
    w = -np.asarray(path.W[-1])[2, :2]
    det_w = np.zeros(2)
    for _ in range(2):
        steps = [x * (t - x @ det_w) for x, t in zip(X, y, strict=True)]
        det_w = det_w + 0.5 * sum(steps) / N

    def gap(w):
        losses = [min((t - x @ w) ** 2, 2) for x, t in zip(X, y, strict=True)]
        expected = population_loss(jnp.asarray(w), jnp.asarray(task))
        return float(expected) - np.mean(losses)

    anchor = 0.75 * task  # two steps of 1/2 on the population
    np.testing.assert_allclose(one.det_w, det_w, atol=1e-12)
    np.testing.assert_allclose(one.gap, gap(w) - gap(anchor), atol=1e-12)
    np.testing.assert_allclose(one.det_gap, gap(det_w) - gap(anchor), atol=1e-12)
    fresh = draw_tokens(jax.random.fold_in(keys[0], 1), learner, N)
    assert not np.any(fresh == H)
    for found, at in ((one.pair_losses, w), (one.det_pair_losses, det_w)):
        for place, tokens in enumerate((H, fresh)):
            errors = [min((h[2] - h[:2] @ at) ** 2, 2) for h in np.asarray(tokens)]
            np.testing.assert_allclose(2 * found[:, place], errors, atol=1e-12)
    noise = np.asarray(jax.random.normal(keys[2], (2,)))
    moved = det_w - math.sqrt(0.1 / N) * noise
    change = gap(det_w) - gap(moved)
    found = one.train_change[1, 1] - one.population_change[1, 1]
    np.testing.assert_allclose(found, change, atol=1e-12)


@pytest.mark.slow
def test_the_gap_of_the_anchor_has_mean_zero(key):
    learner, N = GenericWeights(0), 6

    def gap(key):
        H = draw_tokens(key, learner, N)
        loss = clipped_loss(learner.anchor, H)
        return population_loss(learner.anchor, learner.task) - loss

    gaps = np.asarray(jax.jit(jax.vmap(gap))(jax.random.split(key, 20000)))
    assert abs(gaps.mean() / gaps.std() * math.sqrt(len(gaps))) < 5


# --- estimates


def synthetic(B, L, seed=0):
    rng = np.random.default_rng(seed)
    positive = [rng.gamma(5.0, size=(B, L)) for _ in range(4)]
    logs, aniso = rng.normal(size=(B, L)) - 4, rng.gamma(3.0, size=(B, L))
    held = rng.gamma(3.0, size=(B, 3, L))
    gaps = [rng.normal(size=B) for _ in range(4)]
    det_w = rng.normal(size=(B, 2)) / 5
    changes = [rng.normal(0.2, 0.1, size=(B, 4, 2)) for _ in range(2)]
    losses = [rng.uniform(size=(B, 8, 2)) for _ in range(2)]
    return Replicates(*positive, logs, aniso, held, *gaps, det_w, *changes, *losses)


def without(sample, i):
    return Replicates(*(np.delete(field, i, axis=0) for field in sample))


@pytest.mark.slow
def test_standard_errors_are_those_of_the_jackknife(monkeypatch):
    monkeypatch.setattr(estimate, "SMOOTHING", estimate.SMOOTHING[:2])
    B, row = 200, ProblemSize(2, 40, 20, 2)
    sample = synthetic(B, 2)
    whole = estimate.bounds(row, sample, 2)
    left_out = [estimate.bounds(row, without(sample, i), 2) for i in range(B)]
    for name in ("inside", *estimate.VALID):
        values = np.array([each[name].value for each in left_out])
        jackknife = math.sqrt((B - 1) * values.var())
        assert math.isclose(whole[name].standard_error, jackknife, rel_tol=0.03), name
    smooth, c, single = estimate.smoothing(row, sample)
    values = [estimate.smoothing(row, without(sample, i)) for i in range(B)]
    assert {each[1] for each in values} == {c}
    jackknife = math.sqrt((B - 1) * np.var([each[0].value for each in values]))
    assert math.isclose(smooth.standard_error, jackknife, rel_tol=0.05)
    # opposite pairs of independent changes halve their variance
    assert single > smooth.spread


def test_the_supersample_bound_is_in_units_of_the_loss():
    # Of 400 prompts of 8 pairs a quarter has the largest loss on all other examples.
    losses = np.zeros((400, 8, 2))
    losses[:100, :, 1] = 1
    found = estimate.supersample(losses)
    # For a loss of two values the smallest bound is the error.
    np.testing.assert_allclose([found["value"], found["error"]], 0.5, rtol=1e-3)
    assert 0.5 < found["upper"] < 1
    spread = 2 * math.sqrt(0.25 * 0.75 / 399)
    np.testing.assert_allclose(found["error_se"], spread, rtol=1e-6)


def test_an_order_that_does_not_hold_is_seen():
    sample = synthetic(100, 2)
    below = sample._replace(paper_square=sample.squared_G / 2)
    above = sample._replace(paper_square=sample.squared_G * 2)
    row = ProblemSize(2, 40, 20, 2)
    name = "frobenius >= exact"
    assert estimate.ordering(estimate.bounds(row, below, 2))[name] > 5
    assert estimate.ordering(estimate.bounds(row, above, 2))[name] < -5


def test_too_few_demonstrations_make_every_bound_infinite(key):
    learner = GenericWeights(0)
    keys = jax.random.split(key, 3)
    sample = jax.jit(lambda k: replicate(k, jnp.asarray(3), learner, 6))(keys)
    batch = Replicates(*(np.asarray(field)[None].repeat(2, 0) for field in sample))
    found = estimate.bounds(ProblemSize(2, 6, 3, 1, True), batch, 6)
    assert {each.value for each in found.values()} == {math.inf}
    assert np.isfinite(sample.gap)


# --- the reference


def test_the_reference_keeps_the_order_of_the_bounds():
    assert len(reference.ROWS) == 15
    for values in reference.ROWS.values():
        assert values["frobenius"] >= values["exact"] >= values["centred"]
        assert values["centred"] >= values["anisotropic"] > values["error"]


def record_of(row, **entries):
    base = {"value": 1.0, "se": 0.01, "spread": 1.0}
    names = [n for n in reference.ROWS[row] if not n.endswith("_se")]
    sizes = dict(zip(("dim", "num_demos", "shots", "num_layers"), row, strict=True))
    record = {name: base | {"value": reference.ROWS[row][name]} for name in names}
    return {**sizes, "generic": False, **record, **entries}


def test_z_scores_take_both_errors_and_the_rounding():
    row = (5, 10, 5, 2)
    record = record_of(row)
    assert set(compare.z_scores(record).values()) == {0.0}
    moved = {"value": 0.19163 + 0.05, "se": 0.003, "spread": 1.0}
    (z,) = [compare.z_scores(record_of(row, error=moved))["error"]]
    assert math.isclose(z, (0.05 - 5e-6) / math.hypot(0.003, 0.0044))
    moved = {"value": 1.559 - 0.1, "se": 0.003, "spread": 2.0}
    z = compare.z_scores(record_of(row, exact=moved))["exact"]
    assert math.isclose(z, -(0.1 - 5e-4) / math.hypot(0.003, 2 / math.sqrt(4000)))
    finite = {"value": 3.0, "se": 0.1, "spread": 1.0}
    assert (
        compare.z_scores(record_of(row, held_out_half=finite))["held_out_half"]
        == math.inf
    )


# --- the plan


def test_a_crossing_is_where_the_power_law_says():
    N = [10, 100, 1000]
    values = [5 * n**-0.5 for n in N]
    assert math.isclose(plan.crossing(N, values, 0.3), (5 / 0.3) ** 2)
    assert math.isnan(plan.crossing(N, values, 0.01))
    assert math.isnan(plan.crossing(N, [math.inf, *values[1:]], 1.0))


@pytest.mark.slow
def test_what_a_language_model_would_need():
    found = plan.language_model(0.5)
    assert found["full"]["support"] == 8_390_656
    assert found["full"]["bound with 10 demonstrations"] == math.inf
    assert found["full"]["demonstrations, one layer"] > 4 * 8_390_656 * math.log(2)
    assert found["rank 20"]["support"] == 81_730
