import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icltheory.classification import (
    PatternTask,
    PatternTransformer,
    Scores,
    scores,
    train,
)
from icltheory.layered import forward
from tests.classification import oracles

TASK = PatternTask(4, 4, 3.0, label_dim=3)
MODEL = PatternTransformer(8)
START = MODEL.init(jax.random.key(0), TASK, neuron_scale=0.2)
SIZES = dict(batch_size=16, num_examples=6, relevant_fraction=0.7)


def run(num_steps=4, every=2, start=START, step_size=0.5, seed=1, task=TASK, **more):
    more = {"step_size": step_size} | SIZES | more
    key = jax.random.key(seed)
    return train(MODEL, task, start, num_steps, key=key, record_every=every, **more)


def by_hand(steps, step_size, seed=1):
    """A Python loop of steps against the gradient of the mean hinge loss."""
    params, losses = dict(START), []
    trained = ("W_Q", "W_K", "W_V", "W_O")

    def loss(free, prompt):
        F = forward(MODEL, params | free, prompt)
        return jnp.mean(jnp.where(prompt.z * F < 1, 1 - prompt.z * F, 0))

    for t in range(steps):
        own = jax.random.fold_in(jax.random.key(seed), t)
        prompt = TASK.sample(own, 16, 6, 0.7)
        free = {name: params[name] for name in trained}
        value, grads = jax.value_and_grad(loss)(free, prompt)
        losses.append(value)
        params |= {name: params[name] - step_size * grads[name] for name in trained}
    return params, losses


def test_it_is_the_plain_loop_and_a_is_fixed():
    path = run()
    params, losses = by_hand(4, 0.5)
    np.testing.assert_array_equal(path.steps, [0, 2, 4])
    np.testing.assert_allclose(path.losses, losses, rtol=1e-11)
    for name, leaf in path.last.items():
        np.testing.assert_allclose(leaf, params[name], rtol=1e-10, atol=1e-13)
        np.testing.assert_array_equal(path.params[name][0], START[name])
        assert np.array_equal(leaf, START[name]) == (name == "a")


def test_the_path_does_not_depend_on_how_often_it_is_recorded():
    often, seldom = run(4, 1), run(4, 4)
    np.testing.assert_allclose(often.losses, seldom.losses, rtol=1e-12)
    np.testing.assert_allclose(often.last["W_O"], seldom.last["W_O"], rtol=1e-10)


def test_an_ensemble_is_a_vmap():
    sizes, seeds = jnp.array([0.2, 0.5]), jnp.array([3, 1])

    def one(eta, seed):
        return run(step_size=eta, seed=seed)

    many = jax.vmap(one)(sizes, seeds)
    np.testing.assert_allclose(many.losses[1], run().losses, rtol=1e-11)
    assert many.last["W_O"].shape == (2, *START["W_O"].shape)
    np.testing.assert_allclose(many.last["W_O"][1], run().last["W_O"], rtol=1e-9)


def test_a_rule_of_optax_fits():
    plain = run()
    other = run(step_size=None, rule=optax.sgd(0.5))
    np.testing.assert_allclose(other.losses, plain.losses, rtol=1e-11)


def test_scores_are_those_of_the_loop(key):
    params = by_hand(3, 2.0)[0]
    prompt = TASK.sample(key, 40, 5, 0.5)
    found = scores(MODEL, params, prompt)
    margins, masses, agreements = [], [], []
    for b in range(40):
        F, attn = oracles.one_layer(
            params, np.asarray(prompt.P[b]), np.asarray(prompt.P_query[b])
        )
        margins.append(float(prompt.z[b]) * F)
        same = np.asarray(prompt.pattern[b]) == int(prompt.query_pattern[b])
        masses.append(attn[same].sum())
        agreements.append(float(prompt.z[b]) * (attn @ np.asarray(prompt.y[b])))
    margins = np.array(margins)
    np.testing.assert_allclose(found.margins, margins, atol=1e-12)
    np.testing.assert_allclose(found.masses[0], masses, atol=1e-12)
    np.testing.assert_allclose(found.agreements[0], agreements, atol=1e-12)
    np.testing.assert_allclose(found.agreement, [np.mean(agreements)], atol=1e-12)
    np.testing.assert_allclose(found.hinge, np.maximum(1 - margins, 0).mean())
    np.testing.assert_allclose(found.error, (margins <= 0).mean())
    np.testing.assert_allclose(found.margin, margins.mean(), atol=1e-12)
    np.testing.assert_allclose(found.attention_mass, [np.mean(masses)])
    missed = [not s.any() for s in np.asarray(prompt.same)]
    np.testing.assert_allclose(found.miss_rate, np.mean(missed))


def test_a_model_that_diverged_is_wrong_and_not_right():
    one, none = jnp.ones((1, 3)), jnp.zeros(3, bool)
    found = Scores(jnp.array([np.nan, 1.0, 0.0]), one, one, none, ~none)
    assert float(found.error) == pytest.approx(2 / 3)


def test_means_of_stacked_scores(key):
    prompt = TASK.sample(key, 10, 5, 0.5)
    path = run()
    many = jax.vmap(lambda params: scores(MODEL, params, prompt))(path.params)
    last = scores(MODEL, path.last, prompt)
    assert many.attention_mass.shape == (3, 1)
    for name in ("hinge", "error", "margin", "miss_rate"):
        np.testing.assert_allclose(getattr(many, name)[-1], getattr(last, name))


def test_bad_input():
    def refused(message, **changes):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            run(**changes)

    refused("num_steps: expected a multiple of record_every = 3, got 4", every=3)
    refused(
        "step_size, rule: expected exactly one of them, got neither", step_size=None
    )
    refused("step_size, rule: expected exactly one", rule=optax.sgd(0.1))
    refused("step_size: expected a positive number, got -1.0", step_size=-1.0)
    refused("batch_size: expected a positive integer, got 0", batch_size=0)
    refused("relevant_fraction: expected a value <= 1", relevant_fraction=1.5)
