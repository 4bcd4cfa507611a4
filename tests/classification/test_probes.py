import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.classification import (
    PatternTask,
    PatternTransformer,
    gain_ratio,
    neuron_parts,
    pattern_logits,
    projections,
)

TASK = PatternTask(4, 5, 2.0, label_dim=3)
MU, Q = np.asarray(TASK.relevant), np.asarray(TASK.label_embedding)


@pytest.fixture(scope="module")
def params():
    start = PatternTransformer(6).init(jax.random.key(0), TASK)
    rng = np.random.default_rng(1)
    made = {name: rng.normal(size=leaf.shape) for name, leaf in start.items()}
    made["W_O"][0] *= 0.1  # a small neuron
    return {name: jnp.asarray(leaf) for name, leaf in made.items()}


def angle(v, w):
    return np.arccos(v @ w / np.sqrt((v @ v) * (w @ w)))


def test_projections_token_by_token(params, key):
    prompt = TASK.sample(key, 6, 5, 0.5)
    found = projections(params, TASK, prompt)
    query, keys = [], []
    for b in range(6):
        tokens = [(prompt.P_query[b], prompt.query_pattern[b], "W_Q", query)]
        tokens += [
            (p, j, "W_K", keys)
            for p, j in zip(prompt.P[b], prompt.pattern[b], strict=True)
        ]
        for token, j, name, where in tokens:
            out = np.asarray(params[name]) @ np.asarray(token)
            unit = MU[int(j)] / 2
            where.append((np.sqrt(out @ out), abs(out[:9] @ unit)))
    wanted = [*np.mean(query, axis=0), *np.mean(keys, axis=0)]
    np.testing.assert_allclose(jax.tree.leaves(found), wanted, rtol=1e-12)


def test_logits_are_those_of_tokens_without_label(params):
    found = pattern_logits(params, TASK)
    W_K, W_Q = np.asarray(params["W_K"]), np.asarray(params["W_Q"])
    for i, j in np.ndindex(4, 4):
        key, query = (np.concatenate([MU[k], np.zeros(3)]) for k in (i, j))
        np.testing.assert_allclose(found[i, j], (W_K @ key) @ (W_Q @ query))


def test_parts_neuron_by_neuron(params):
    found = neuron_parts(params, TASK, threshold=0.3)
    sizes = [np.linalg.norm(row) for row in np.asarray(params["W_O"])]
    for i, row in enumerate(np.asarray(params["W_O"] @ params["W_V"])):
        feature, label = row[:9], row[9:]
        wanted = {
            "size": sizes[i],
            "positive": params["a"][i] > 0,
            "large": sizes[i] >= 0.3 * max(sizes),
            "feature_norm": np.linalg.norm(feature),
            "feature_angle": angle(feature, MU.mean(0)),
            "label_norm": np.linalg.norm(label),
            "label_angle": angle(label, Q),
        }
        for name, value in wanted.items():
            np.testing.assert_allclose(getattr(found, name)[i], value, rtol=1e-10)
    assert int(found.num_small) == 1
    large = np.asarray(found.large)
    mean = found.mean(found.label_norm, found.large)
    np.testing.assert_allclose(mean, np.asarray(found.label_norm)[large].mean())
    limit = 1.6
    off = np.where(found.positive, found.label_angle, np.pi - found.label_angle)
    wanted = (np.asarray(found.feature_angle) <= limit) & (off <= limit)
    np.testing.assert_array_equal(found.lucky(limit), wanted)


def ideal(feature, label, a):
    """Rows along the mean pattern and along +-q, and one row that is along neither."""
    rows = [np.concatenate([feature * MU.mean(0), np.sign(s) * label * Q]) for s in a]
    rows.append(np.concatenate([-MU.mean(0), Q]))
    return {
        "W_O": jnp.asarray(rows),
        "W_V": jnp.eye(12),
        "a": jnp.asarray([*a, 1.0]),
    }


def test_gain_and_ratio_of_an_ideal_network():
    found = gain_ratio(ideal(0.3, 0.7, [0.5, 0.25, -0.75]), TASK)
    np.testing.assert_allclose(found.gain, 1.5 * 0.7 / 2, rtol=1e-12)
    np.testing.assert_allclose(found.ratio, 0.3 * (4 / 4) / 0.7, rtol=1e-12)


def test_a_network_without_lucky_neurons_has_no_gain():
    found = gain_ratio(ideal(-1.0, 0.7, [0.5]), TASK)
    assert (float(found.gain), float(found.ratio)) == (0, 0)


def test_probes_run_over_snapshots(params):
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    parts = jax.vmap(lambda p: neuron_parts(p, TASK))(stack)
    assert parts.num_small.shape == (2,)
    np.testing.assert_allclose(parts.label_norm[1], 4 * parts.label_norm[0])
    np.testing.assert_allclose(parts.label_angle[1], parts.label_angle[0])
    assert jax.vmap(lambda p: gain_ratio(p, TASK))(stack).gain.shape == (2,)


def test_a_dead_neuron_has_a_right_angle(params):
    dead = params | {"W_O": params["W_O"].at[2].set(0)}
    found = neuron_parts(dead, TASK)
    np.testing.assert_allclose(found.feature_angle[2], np.pi / 2)
    assert not found.large[2]
    with pytest.raises(ValueError, match="threshold: expected a value >= 0, got -1"):
        neuron_parts(params, TASK, threshold=-1)
