import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import patterns
from tests.patterns import drawn


@pytest.fixture(scope="module")
def mu(task):
    return np.asarray(task.relevant)


@pytest.fixture(scope="module")
def params(task):
    made = drawn.pattern_params(patterns.PatternTransformer(6), task)
    small = np.where(np.arange(6) == 0, 0.1, 1.0)  # one neuron
    return made | {"W_O": jnp.asarray(small[:, None] * np.asarray(made["W_O"]))}


def angle(v, w):
    return np.arccos(v @ w / np.sqrt((v @ v) * (w @ w)))


def test_projections_token_by_token(task, mu, params):
    prompt = drawn.pattern_prompt(task, 6, 5)
    found = patterns.projections(params, task, prompt)
    P, P_query, pattern, query_pattern = map(
        np.asarray, (prompt.P, prompt.P_query, prompt.pattern, prompt.query_pattern)
    )
    query, keys = [], []
    for b in range(6):
        tokens = [(P_query[b], query_pattern[b], "W_Q", query)]
        tokens += [(p, j, "W_K", keys) for p, j in zip(P[b], pattern[b], strict=True)]
        for token, j, name, where in tokens:
            out = np.asarray(params[name]) @ token
            unit = mu[j] / 2
            where.append((np.sqrt(out @ out), abs(out[:9] @ unit)))
    wanted = [*np.mean(query, axis=0), *np.mean(keys, axis=0)]
    np.testing.assert_allclose(jax.tree.leaves(found), wanted, rtol=1e-12)


def test_logits_are_those_of_tokens_without_label(task, mu, params):
    found = np.asarray(patterns.pattern_logits(params, task))
    W_K, W_Q = np.asarray(params["W_K"]), np.asarray(params["W_Q"])
    for i, j in np.ndindex(4, 4):
        key, query = (np.concatenate([mu[k], np.zeros(3)]) for k in (i, j))
        np.testing.assert_allclose(found[i, j], (W_K @ key) @ (W_Q @ query))


def test_parts_neuron_by_neuron(task, mu, params):
    found = patterns.neuron_parts(params, task, threshold=0.3)
    W_O, W_V, a = (np.asarray(params[name]) for name in ("W_O", "W_V", "a"))
    sizes = [np.linalg.norm(row) for row in W_O]
    for i, row in enumerate(W_O @ W_V):
        feature, label = row[:9], row[9:]
        wanted = {
            "size": sizes[i],
            "positive": a[i] > 0,
            "large": sizes[i] >= 0.3 * max(sizes),
            "feature_norm": np.linalg.norm(feature),
            "feature_angle": angle(feature, mu.mean(0)),
            "label_norm": np.linalg.norm(label),
            "label_angle": angle(label, np.asarray(task.label_embedding)),
        }
        for name, value in wanted.items():
            got = np.asarray(getattr(found, name))[i]
            np.testing.assert_allclose(got, value, rtol=1e-10)
    assert int(found.num_small) == 1
    large = np.asarray(found.large)
    mean = found.mean(found.label_norm, found.large)
    np.testing.assert_allclose(mean, np.asarray(found.label_norm)[large].mean())
    limit = 1.6
    label_angle = np.asarray(found.label_angle)
    off = np.where(found.positive, label_angle, np.pi - label_angle)
    wanted = (np.asarray(found.feature_angle) <= limit) & (off <= limit)
    np.testing.assert_array_equal(found.lucky(limit), wanted)


def ideal(task, feature, label, a):
    """Rows along the mean pattern and along +-q, and one row that is along neither."""
    mean, q = np.mean(task.relevant, axis=0), np.asarray(task.label_embedding)
    rows = [np.concatenate([feature * mean, np.sign(s) * label * q]) for s in a]
    rows.append(np.concatenate([-mean, q]))
    return {
        "W_O": jnp.asarray(rows),
        "W_V": jnp.asarray(np.eye(12)),
        "a": jnp.asarray(np.array([*a, 1.0])),
    }


def test_gain_and_ratio_of_an_ideal_network(task):
    found = patterns.gain_ratio(ideal(task, 0.3, 0.7, [0.5, 0.25, -0.75]), task)
    np.testing.assert_allclose(found.gain, 1.5 * 0.7 / 2, rtol=1e-12)
    np.testing.assert_allclose(found.ratio, 0.3 * (4 / 4) / 0.7, rtol=1e-12)


def test_a_network_without_lucky_neurons_has_no_gain(task):
    found = patterns.gain_ratio(ideal(task, -1.0, 0.7, [0.5, 0.25, 0.1]), task)
    assert (float(found.gain), float(found.ratio)) == (0, 0)


def test_a_dead_neuron_has_a_right_angle(task, params):
    alive = (np.arange(6) != 2)[:, None]
    dead = params | {"W_O": jnp.asarray(alive * np.asarray(params["W_O"]))}
    found = patterns.neuron_parts(dead, task, threshold=0.3)
    np.testing.assert_allclose(np.asarray(found.feature_angle)[2], np.pi / 2)
    assert not np.asarray(found.large)[2]
    with pytest.raises(ValueError, match="threshold: expected a value >= 0, got -1"):
        patterns.neuron_parts(params, task, threshold=-1)


def test_one_prompt_activates_a_neuron_of_its_sign_or_does_not(task, params):
    prompt = drawn.pattern_prompt(task, 1, 5)
    shares = np.asarray(patterns.activation_shares(params, prompt))
    own = np.sign(params["a"]) == np.asarray(prompt.z)
    assert set(shares[own].tolist()) == {0.0, 1.0}
    assert np.all(np.isnan(shares[~own]))


def test_axes_in_front_of_prompts_and_neurons_are_kept(task, params):
    flat = drawn.pattern_prompt(task, 6, 5)
    nested = jax.tree.map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), flat)
    np.testing.assert_array_equal(nested.missed, flat.missed.reshape(2, 3))
    assert nested.num_examples == 5
    got, want = (
        jax.tree.leaves(
            (
                patterns.activation_shares(params, p),
                patterns.projections(params, task, p),
            )
        )
        for p in (nested, flat)
    )
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), got, want)
    values = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 6)))
    which = values > 0
    parts = patterns.NeuronParts(values, which, which, *[values] * 4)
    np.testing.assert_array_equal(parts.num_small, (~which).sum(axis=-1))
    expected = np.mean(values, axis=-1, where=np.asarray(which))
    np.testing.assert_allclose(parts.mean(parts.size, which), expected, rtol=1e-12)
