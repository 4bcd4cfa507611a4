"""Populations of features, and what descent on them refuses."""

import math

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
    FeaturePath,
    FeaturePopulation,
    feature_attention,
    feature_descent,
    feature_losses,
    feature_phases,
)

P = np.array([0.5, 0.3, 0.2])
LOGITS = np.array([[0.4, -0.2, 0.1], [0.0, 1.0, -1.0], [0.3, 0.2, -0.5]])
finite = jax.jit(FeaturePopulation.finite, static_argnums=1)
losses_of, attention_of = jax.jit(feature_losses), jax.jit(feature_attention)
phases_of = jax.jit(feature_phases, static_argnums=1)
descend = jax.jit(feature_descent, static_argnums=2, static_argnames="record_every")


def test_all_contexts_have_their_multinomial_probabilities():
    population = jax.tree.map(np.asarray, finite(P, 4))
    assert len(population.weights) == math.comb(6, 2)
    np.testing.assert_array_equal(population.counts.sum(axis=1), 4)
    assert len(np.unique(population.counts, axis=0)) == len(population.weights)
    np.testing.assert_allclose(population.weights.sum(), 1, rtol=1e-14)
    mean = population.weights @ population.counts
    np.testing.assert_allclose(mean, 4 * P, rtol=1e-14)
    second = np.einsum("c,ci,cj->ij", population.weights, *[population.counts] * 2)
    expected = 4 * np.diag(P) + 12 * np.outer(P, P)
    np.testing.assert_allclose(second, expected, rtol=1e-13)


@pytest.mark.parametrize(("N", "dtype"), [(150, jnp.float32), (2000, jnp.float64)])
def test_long_contexts_leave_the_range_of_no_float(N, dtype):
    # 150 choose 75 is no float32 and 2000 choose 1000 no float64
    # known probabilities, which are no argument of what is traced, lose no digits
    population = FeaturePopulation.finite(jnp.array([0.4, 0.6], dtype), N)
    population = jax.tree.map(np.asarray, population)
    assert population.weights.dtype == dtype
    p = [math.comb(N, k) * 2**k * 3 ** (N - k) / 5**N for k in range(N + 1)]
    order = np.argsort(population.counts[:, 0])
    np.testing.assert_allclose(population.weights[order], p, rtol=1e-5, atol=1e-37)


def test_probabilities_may_be_traced():
    known = FeaturePopulation.finite(P, 4).weights
    np.testing.assert_allclose(finite(P, 4).weights, known, 1e-13)


def test_a_feature_that_never_occurs_is_in_no_context():
    weights = finite(np.array([1.0, 0.0]), 3).weights
    np.testing.assert_allclose(weights, [1, 0, 0, 0], rtol=1e-14)


def test_drawn_contexts_agree_with_all_of_them(key):
    exact = np.asarray(losses_of(LOGITS, finite(P, 5)))
    sampled = jax.jit(FeaturePopulation.sampled, static_argnums=(2, 3))
    drawn = sampled(key, P, 5, 20_000)
    np.testing.assert_array_equal(np.sum(drawn.counts, axis=1), 5)
    attention = np.asarray(attention_of(LOGITS, drawn))
    each = ((np.eye(3)[None] - attention) ** 2).sum(axis=-1)
    error = each.std(axis=0) / np.sqrt(len(each))
    z = (np.asarray(losses_of(LOGITS, drawn)) - exact) / error
    assert np.abs(z).max() < 4


def test_an_absent_feature_has_no_attention_and_no_nan_gradient():
    parts = P, np.array([[0.0, 2.0, 1.0]]), np.ones(1)
    population = FeaturePopulation(*map(jnp.asarray, parts))
    assert np.all(np.asarray(attention_of(LOGITS, population))[..., 0] == 0)
    slope = jax.jit(jax.grad(lambda B: feature_losses(B, population) @ P))(LOGITS)
    assert np.all(np.isfinite(slope))


def test_descent_goes_on_where_it_stopped():
    population = FeaturePopulation.infinite(P)
    whole = jax.tree.map(np.asarray, descend(population, 0.5, 20, record_every=5))
    assert whole.steps.tolist() == [0, 5, 10, 15, 20]
    rest = descend(population, 0.5, 10, start=whole.logits[2])
    rest = jax.tree.map(np.asarray, rest)
    np.testing.assert_allclose(rest.logits[-1], whole.logits[-1], rtol=1e-13)
    np.testing.assert_allclose(rest.losses[5], whole.losses[3], rtol=1e-13)


def test_what_was_not_reached_is_infinite():
    path = descend(FeaturePopulation.infinite(P), 0.01, 5)
    phases = phases_of(path, 1e-3)
    assert np.all(np.isinf(phases.learned))
    assert phases.overtaken[0] == 0
    assert np.isinf(phases.overtaken[2])


def test_overtaken_is_for_good_and_half_and_learned_the_first_time():
    own = np.array([0.4, 0.6, 0.4, 0.8])
    attention = np.stack([own, 1 - own], axis=1)[:, None]
    attention = np.concatenate([attention, np.full((4, 1, 2), 0.5)], axis=1)
    losses = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    parts = np.arange(4), np.zeros((4, 2, 2)), attention, losses
    found = phases_of(FeaturePath(*map(jnp.asarray, parts)), 0.5)
    np.testing.assert_allclose(found.overtaken, [2.25, np.inf], rtol=1e-14)
    np.testing.assert_allclose(found.half, [0.5, np.inf], rtol=1e-14)
    np.testing.assert_allclose(found.learned, [0.5, np.inf], rtol=1e-14)


def test_impossible_settings_are_refused():
    infinite, finite = FeaturePopulation.infinite, FeaturePopulation.finite
    for run, message in (
        (lambda: infinite(jnp.array([1.0])), "K >= 2"),
        (lambda: infinite(jnp.array([0.5, 0.6])), "a sum of 1"),
        (lambda: infinite(jnp.array([1.5, -0.5])), "a value >= 0"),
        (lambda: finite(jnp.full(20, 0.05), 20), "expected at most 100,000 contexts"),
        (lambda: feature_descent(infinite(P), 0.0, 5), "step_size: expected a finite"),
        (
            lambda: feature_descent(infinite(P), 0.1, 5, record_every=2),
            "num_steps: expected a multiple of record_every = 2",
        ),
        (lambda: balanced_time(jnp.array(0.1), 5, 0.5), "attention: expected values"),
        (lambda: balanced_time(jnp.array(1.5), 5, 0.5), "attention: expected values"),
        (lambda: balanced_time(jnp.array(0.9), 1, 0.5), "num_features: expected an"),
        (lambda: balanced_attention(jnp.array(9.0), 5, -1.0), "step_size: expected a"),
        (lambda: balanced_loss(jnp.array(1.5), 5), "attention: expected a value in"),
        (lambda: loss_asymptote(5, 0.0), "step_size: expected a finite value > 0"),
    ):
        with pytest.raises(ValueError, match=message):
            run()
