"""Li et al. (2024), Propositions 1 and 2: what training does, on six trained models.

Three seeds at beta = 2 and three at beta = 3, 18 of the 30 tasks, 320 steps.
"""

import jax
import numpy as np
import pytest

from icltheory.patterns import neuron_parts, pattern_logits, projections
from tests.patterns.trained import BETA, ensemble, evaluate

pytestmark = pytest.mark.slow


@pytest.mark.statement("Li ICL: Proposition 1")
def test_proposition_1_attention_concentrates(measured):
    """From alpha/2 e^s / (alpha/2 e^s + ..), s = (delta beta)^2, to above .95."""
    members = ensemble()
    unseen = members.task.held_out()
    start = jax.tree.map(lambda leaf: leaf[:, 0], members.path.params)
    before = evaluate(unseen, start, jax.random.key(5), 0.8).attention_mass[:, 0]
    after = evaluate(unseen, members.params, jax.random.key(5), 0.8)
    pull = np.exp((0.2 * BETA) ** 2)
    np.testing.assert_allclose(before, 0.4 * pull / (0.4 * pull + 0.6), atol=0.015)
    assert np.all(after.attention_mass > 0.95)
    measured("attention mass at the start", before.max())
    measured("1 - attention mass at the end", 1 - after.attention_mass.min())


@pytest.mark.statement("Li ICL: Proposition 1")
def test_proposition_1_projections_grow_along_the_patterns(measured, key):
    """|W p| starts at delta beta and ends over three times as long, on the pattern."""
    members = ensemble()

    @jax.jit
    @jax.vmap
    def probe(task, params):
        prompt = task.sample(key, 20, 512)
        shifted = task.out_of_domain(1.2, key=key)
        outside = shifted.sample(key, 20, 512)
        return projections(params, task, prompt), projections(params, shifted, outside)

    start = jax.tree.map(lambda leaf: leaf[:, 0], members.path.params)
    for first, last in zip(
        probe(members.task, start), probe(members.task, members.params), strict=True
    ):
        for along in (first.query_component, first.keys_component):
            np.testing.assert_allclose(along, 0.2 * BETA, rtol=1e-4)
        for whole, along in (
            (last.query, last.query_component),
            (last.keys, last.keys_component),
        ):
            assert np.all(whole > 3 * 0.2 * BETA)
            assert np.all(along > 0.85 * whole)
            measured("1 - component / length", np.max(1 - along / whole))


@pytest.mark.statement("Li ICL: Proposition 1")
def test_proposition_1_patterns_attend_to_themselves(measured):
    members = ensemble()
    logits = np.asarray(jax.vmap(pattern_logits)(members.params, members.task))
    own = logits[:, np.eye(6, dtype=bool)]
    others = logits[:, ~np.eye(6, dtype=bool)]
    assert np.all(own.min(1) - others.max(1) > 3)
    measured("gap of logits", (own.min(1) - others.max(1)).min())


@pytest.mark.statement("Li ICL: Proposition 2")
def test_proposition_2_neurons_align(measured):
    """Feature parts to the mean pattern, label parts to q or -q by the sign of a."""
    members = ensemble()
    parts = jax.vmap(neuron_parts)(members.params, members.task)
    plus, minus = parts.large & parts.positive, parts.large & ~parts.positive
    feature = parts.mean(parts.feature_angle, parts.large) / np.pi
    positive = parts.mean(parts.label_angle, plus) / np.pi
    negative = parts.mean(parts.label_angle, minus) / np.pi
    assert np.all(feature < 0.05)
    assert np.all(positive < 0.02)
    assert np.all(negative > 0.98)
    assert np.all(parts.lucky() | ~parts.large)  # every large neuron is lucky
    measured("feature angle / pi", feature.max())
    measured("label angle / pi, a > 0", positive.max())
    measured("1 - label angle / pi, a < 0", (1 - negative).max())


@pytest.mark.statement("Li ICL: Proposition 2")
def test_proposition_2_starts_at_right_angles(measured):
    members = ensemble()
    start = jax.tree.map(lambda leaf: leaf[:, 0], members.path.params)
    parts = jax.vmap(neuron_parts)(start, members.task)
    for angle in (parts.feature_angle, parts.label_angle):
        spread = np.pi / 2 - np.asarray(angle)
        assert np.abs(spread.mean(1)).max() < 4.5 * spread.std() / 8
    size = 0.2 * 0.02 * 30**0.5  # delta xi sqrt(d_X)
    np.testing.assert_allclose(parts.feature_norm.mean(1), size, rtol=0.05)
    np.testing.assert_allclose(parts.label_norm.mean(1), size, rtol=0.05)
