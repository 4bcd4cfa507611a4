"""Li et al. (2024), Theorem 1: unseen tasks, prompt length, steps, cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import patterns
from tests.identities.test_li_theorem2 import ideal_network
from tests.oracles import share_z
from tests.patterns.compiled import pattern_task, sample
from tests.patterns.trained import EIGHTEEN, ensemble, evaluate, member

KEY = jax.random.key(11)
SETTING = patterns.Setting(num_steps=320)


@pytest.mark.statement("Li ICL: Theorem 1")
@pytest.mark.slow
def test_unseen_tasks_are_learned(measured):
    members = ensemble()
    task = jax.tree.map(lambda leaf: leaf[0], members.task)
    assert patterns.in_domain_conditions(task, SETTING, 0.1).holds
    found = evaluate(members.task.held_out(), members.params, KEY, 0.8)
    assert np.all(found.hinge < 1e-3)
    measured("hinge error on unseen tasks", found.hinge.max())


@pytest.mark.statement("Li ICL: Theorem 1, l_ts")
def test_error_of_an_ideal_network_is_that_of_a_miss(measured):
    """At alpha' = 1, as for the trained network below."""
    task = pattern_task(6, 4, 2.0)
    params = ideal_network(task, 0.7, 0.9)
    prompt = sample(task, KEY, 4, 8192, 1.0)
    found = jax.jit(
        lambda p: patterns.scores(patterns.PatternTransformer(8), params, p)
    )(prompt)
    np.testing.assert_array_equal(found.margins <= 1e-9, found.missed)
    p = float(patterns.miss_probability(1.0, 4))
    assert p == 2**-4
    measured("z-score of 2^-l", share_z(found.margins <= 1e-9, p), below=4.5)


@pytest.mark.statement("Li ICL: Theorem 1, l_ts")
@pytest.mark.slow
@pytest.mark.parametrize("length", [4, 8])
@pytest.mark.parametrize("shifted", [None, 1.1])
def test_error_is_that_of_a_miss_where_all_examples_are_relevant(
    measured, length, shifted
):
    """At alpha' = 1: wrong on every prompt that misses, right on all others; 2^-l."""
    task, params = ensemble().at(3.0)
    task = task if shifted else task.held_out()
    found = evaluate(task, params, KEY, 1.0, 8192, length, shifted)
    np.testing.assert_array_equal(found.margins <= 0, found.missed)
    p = float(patterns.miss_probability(1.0, length))
    z = [share_z(one <= 0, p) for one in found.margins]
    measured("z-score of 2^-l", z, below=4.5)


@pytest.mark.statement("Li ICL: Theorem 1, l_ts")
@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "length"), [(0.8, 4), (0.6, 6), (0.6, 10)])
def test_error_follows_the_miss_probability(measured, alpha, length):
    """At alpha' < 1: misses are right now and then, hits are wrong now and then."""
    task, params = ensemble().at(3.0)
    found = evaluate(task.held_out(), params, KEY, alpha, 16384, length)
    p = float(patterns.miss_probability(alpha, length))
    assert max(abs(share_z(one, p)) for one in found.missed) < 4.5
    ratio = float(found.error.mean()) / p
    spread = (p / (3 * 16384)) ** 0.5 / p
    assert 0.7 - 2 * spread < ratio < 1.2 + 2 * spread
    measured(f"error / miss at {alpha}, {length}", ratio)


@pytest.mark.statement("Li ICL: Theorem 1, T")
@pytest.mark.slow
def test_steps_grow_as_alpha_to_the_minus_two_thirds(measured):
    """Slope of log T(hinge < .1) against log alpha in [-.9, -.5], for each seed."""
    alphas = np.array([1.0, 0.6, 0.3])
    seeds = np.arange(3)

    @jax.jit
    def losses(seeds, alphas):
        def one(seed, alpha):
            return member(seed, 3.0, EIGHTEEN, 360, 360, alpha)[1].losses

        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(seeds, alphas)

    found = np.asarray(losses(jnp.asarray(seeds), jnp.asarray(alphas, jnp.float32)))
    smooth = np.stack([found[..., i : i + 350] for i in range(11)]).mean(0)
    assert np.all(smooth.min(-1) < 0.1)
    steps = np.argmax(smooth < 0.1, axis=-1) + 5
    slopes = np.polyfit(np.log(alphas), np.log(steps).T, 1)[0]
    assert np.all((slopes > -0.9) & (slopes < -0.5))
    measured("slope, least", slopes.min())
    measured("steps at alpha = 1", steps[:, 0].max())


@pytest.mark.statement("Li ICL: Theorem 1")
def test_a_ring_is_a_smaller_share_than_the_theorem_asks():
    """A ring has M1 of M1 (M1 - 1) tasks, and (M1 - 1)^-1 < (M1 - 1)^-1/2."""
    for M in (4, 11):
        ring = patterns.circulant_tasks(M, [1])
        assert patterns.covers(ring, M)
        assert len(ring) >= M
        np.testing.assert_allclose(patterns.task_ratio(ring, M), 1 / (M - 1))
        task = patterns.PatternTask(
            M, 2, 2.0, tasks=ring, relevant=np.zeros((M, M + 2))
        )
        assert patterns.in_domain_conditions(task, SETTING, 0.1).failing == ("tasks",)


@pytest.mark.statement("Li ICL: Theorem 1")
@pytest.mark.slow
def test_a_ring_is_enough_in_domain_and_not_for_shifted_patterns(measured):
    """The counter-example: six tasks of 30, three seeds, beta = 3, S_1 = 1.1."""
    ring = patterns.circulant_tasks(6, [1])
    run = jax.jit(jax.vmap(lambda seed: member(seed, 3.0, ring, 320, 320)))
    task, path = run(jnp.arange(3))
    inside = evaluate(task.held_out(), path.last, KEY, 0.8)
    assert np.all(inside.hinge < 5e-3)
    full, params = ensemble().at(3.0)
    draws = jax.random.split(KEY, 6)
    outside, wide = (
        np.stack([evaluate(t, p, k, 0.8, coefficient_sum=1.1).hinge for k in draws])
        for t, p in ((task, path.last), (full, params))
    )
    assert np.all(outside.max(0) > 0.02)
    assert np.all(outside.mean(0) > 20 * wide.mean(0))
    assert np.all(wide.max(0) < 2e-3)
    measured("ring, unseen tasks", inside.hinge.max())
    measured("ring, shifted, worst draw", outside.max())
    measured("18 tasks, shifted, worst draw", wide.max())
