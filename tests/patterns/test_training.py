import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icltheory.layered import forward
from icltheory.patterns import PatternTransformer, Scores, Training, scores, train
from tests.patterns import drawn, oracles
from tests.raising import raises

MODEL = PatternTransformer(8)
SIZES = dict(batch_size=16, num_examples=6)


@functools.cache
def start():
    """The task, and where training begins."""
    task = drawn.pattern_task(4, 4, 3.0, 3, relevant_fraction=0.7)
    init = jax.jit(lambda key: MODEL.init(task, key=key, neuron_scale=0.2))
    return task, init(jax.random.key(0))


def run(num_steps=4, every=2, step_size=0.5, seed=1, **more):
    more = {"step_size": step_size} | SIZES | more
    key = jax.random.key(seed)
    return train(MODEL, *start(), num_steps, key=key, record_every=every, **more)


path = functools.cache(run)
score = jax.jit(functools.partial(scores, MODEL))


def by_hand(steps, step_size, seed=1):
    """A Python loop of steps against the gradient of the mean hinge loss."""
    (task, params), losses = start(), []
    trained = ("W_Q", "W_K", "W_V", "W_O")

    @jax.jit
    def slope(params, t):
        prompt = task.sample(jax.random.fold_in(jax.random.key(seed), t), 6, 16)

        def loss(free):
            F = forward(MODEL, params | free, prompt)
            return jnp.mean(jnp.where(prompt.z * F < 1, 1 - prompt.z * F, 0))

        return jax.value_and_grad(loss)({name: params[name] for name in trained})

    for t in range(steps):
        value, grads = slope(params, t)
        losses.append(value)
        params = params | {
            name: np.asarray(params[name]) - step_size * np.asarray(grads[name])
            for name in trained
        }
    return params, losses


@pytest.mark.statement("Li ICL: Eqs. (8)-(10), training and errors")
@pytest.mark.slow
def test_it_is_the_plain_loop_and_a_is_fixed():
    params, losses = by_hand(4, 0.5)
    np.testing.assert_array_equal(path().steps, [0, 2, 4])
    np.testing.assert_allclose(path().losses, losses, rtol=1e-11)
    for name, leaf in path().last.items():
        np.testing.assert_allclose(leaf, params[name], rtol=1e-10, atol=1e-13)
        first = start()[1][name]
        np.testing.assert_array_equal(np.asarray(path().params[name])[0], first)
        assert np.array_equal(leaf, first) == (name == "a")


@pytest.mark.slow
def test_a_rule_of_optax_fits():
    other = run(step_size=None, rule=optax.sgd(0.5))
    np.testing.assert_allclose(other.losses, path().losses, rtol=1e-11)


@pytest.mark.statement("Li ICL: Eqs. (8)-(10), training and errors")
def test_scores_are_those_of_the_loop():
    task = start()[0]
    params = drawn.pattern_params(MODEL, task, size=0.4)
    prompt = drawn.pattern_prompt(task, 40, 5)
    found = score(params, prompt)
    P, P_query, y, z, pattern, query = map(np.asarray, jax.tree.leaves(prompt)[:6])
    margins, masses, agreements = [], [], []
    for b in range(40):
        F, attn = oracles.one_layer(params, P[b], P_query[b])
        margins.append(z[b] * F)
        masses.append(attn[pattern[b] == query[b]].sum())
        agreements.append(z[b] * (attn @ y[b]))
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


def test_the_last_parameters_are_those_of_the_last_of_three_records():
    w = jnp.arange(24.0).reshape(2, 3, 4)
    for record in (
        Training(jnp.arange(6).reshape(2, 3), w, w[..., 0]),
        Training(jnp.arange(3), w[0], w[0, :, 0]),
    ):
        np.testing.assert_array_equal(record.last, record.params[..., -1, :])


def test_a_model_that_diverged_is_wrong_and_not_right():
    one, none = jnp.ones((1, 3)), jnp.zeros(3, bool)
    found = Scores(jnp.array([np.nan, 1.0, 0.0]), one, one, none, ~none)
    assert float(found.error) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"every": 3}, "num_steps: expected a multiple of record_every = 3, got 4"),
        ({"step_size": None}, "step_size, rule: expected exactly one of them, got nei"),
        ({"rule": optax.sgd(0.1)}, "step_size, rule: expected exactly one"),
        ({"step_size": -1.0}, "step_size: expected a finite value > 0, got -1.0"),
        ({"batch_size": 0}, "batch_size: expected a positive integer, got 0"),
    ],
)
def test_bad_input(changes, message):
    with raises(message):
        run(**changes)


def test_means_are_over_the_prompts_of_each_layer():
    """Scores of several seeds keep their leading axes, and layers stay apart."""
    rng = np.random.default_rng(0)
    margins, masses, agreements = (
        rng.normal(size=shape) for shape in ((2, 4), (2, 3, 4), (2, 3, 4))
    )
    missed = rng.random((2, 4)) < 0.5
    stack = Scores(*map(jnp.asarray, (margins, masses, agreements, missed, ~missed)))
    for name, values in {
        "hinge": np.maximum(1 - margins, 0),
        "error": margins <= 0,
        "margin": margins,
        "attention_mass": masses,
        "agreement": agreements,
        "miss_rate": missed,
    }.items():
        np.testing.assert_allclose(getattr(stack, name), values.mean(axis=-1))
