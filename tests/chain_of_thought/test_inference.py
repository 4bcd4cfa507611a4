"""Inference step by step and at once, against loops over explicit columns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import oracles
from tests.chain_of_thought.test_attention import DIM, random_model


def task_of(K, M, seed=0):
    letters = cot.training_alphabet(jax.random.key(seed), M, K, DIM)
    steps = np.random.default_rng(seed).dirichlet(np.ones(M), size=(K, M))
    return cot.ReasoningTask(letters, steps)


@pytest.mark.parametrize(
    ("K", "M", "l", "noise"), [(1, 3, 4, 0.0), (3, 4, 9, 0.4), (2, 2, 40, 0.0)]
)
def test_answers_are_those_of_the_loop(K, M, l, noise):
    """Short prompts keep their columns, long ones are counted."""
    task, models = task_of(K, M), [random_model(1), random_model(2)]
    chain, direct = jax.jit(cot.cot_infer), jax.jit(cot.icl_infer)
    for seed in range(4):
        prompt = task.sample(jax.random.key(seed), l, 0.6, noise=noise)
        for model in models:
            for shown in (None, l // 2):
                outputs, _ = oracles.chain(model, prompt, shown or l)
                found = chain(model, prompt, shown)
                np.testing.assert_array_equal(found.outputs, outputs)
                truth = np.asarray(prompt.query_states[1:])
                np.testing.assert_array_equal(found.wrong, outputs != truth)
                answer = oracles.direct(model, prompt, shown or l)
                found = direct(model, prompt, shown)
                assert found.outputs.tolist() == [answer]
                assert found.wrong.tolist() == [answer != truth[-1]]


def test_errors_are_the_papers():
    wrong = jnp.array([[True, False, False], [False, False, True]])
    found = cot.Inference(jnp.zeros((2, 3), int), wrong)
    np.testing.assert_allclose(found.mean_error, [1 / 3, 1 / 3])
    assert found.final_error.tolist() == [False, True]


def test_examples_that_are_not_shown_do_not_matter():
    task, model = task_of(2, 3), random_model(2)
    prompt = task.sample(jax.random.key(1), 12, 0.5)
    states = prompt.states.at[5:].set(0)
    other = cot.ReasoningPrompt(states, prompt.query_states, prompt.alphabet)
    for infer in (cot.cot_infer, cot.icl_infer):
        one, two = infer(model, prompt, 5), infer(model, other, 5)
        np.testing.assert_array_equal(one.outputs, two.outputs)
    with pytest.raises(ValueError, match="num_examples: expected 1 to 12, got 13"):
        cot.cot_infer(model, prompt, 13)
    with pytest.raises(ValueError, match="num_examples: expected 1 to 12, got 0"):
        cot.icl_infer(model, prompt, 0)


def test_attention_masses_are_sums_over_explicit_columns():
    task, model = task_of(3, 4), random_model(3)
    prompt = task.sample(jax.random.key(2), 5, 0.5)
    patterns, codes, _ = oracles.parts(prompt)
    expected = np.zeros(4)
    states, truth = np.asarray(prompt.states), np.asarray(prompt.query_states)
    tokens = [
        oracles.token(patterns, codes, int(s[k]), int(s[k + 1]), k)
        for s in states
        for k in range(3)
    ]
    for k in range(3):
        query = oracles.token(patterns, codes, int(truth[k]), None, k)
        weights, _ = oracles.attend(model, tokens, query)
        for i, weight in enumerate(weights):
            alike, now = states[i // 3, k] == truth[k], i % 3 == k
            expected[2 * (not alike) + (not now)] += weight / 3
    found = cot.attention_masses(model, prompt)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_uniform_attention_has_the_shares_of_the_classes():
    letters = cot.training_alphabet(jax.random.key(0), 4, 3, DIM)
    prompt = cot.sample_training_prompt(jax.random.key(1), letters, 50, 0.4)
    blind = cot.initial_attention(DIM, 0.0)
    same = float(jnp.mean(prompt.states[:, 0] == prompt.query_states[0]))
    expected = np.array([same, 2 * same, 1 - same, 2 * (1 - same)]) / 3
    found = jax.jit(cot.attention_masses)(blind, prompt)
    np.testing.assert_allclose(found, expected, atol=1e-12)
