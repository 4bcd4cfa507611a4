"""Inference step by step and at once, against loops over explicit columns."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.chain_of_thought import _memory
from tests.chain_of_thought import drawn, oracles
from tests.chain_of_thought.test_attention import DIM, random_model

chain, direct = jax.jit(cot.cot_infer), jax.jit(cot.icl_infer)


@pytest.mark.parametrize(
    ("K", "M", "l", "noise"),
    [
        pytest.param(1, 3, 4, 0.0, marks=pytest.mark.slow),
        (3, 4, 9, 0.4),
        pytest.param(2, 2, 40, 0.0, marks=pytest.mark.slow),
    ],
)
def test_answers_are_those_of_the_loop(K, M, l, noise):
    """Short prompts keep their columns, long ones are counted."""
    letters, models = drawn.alphabet(M, K, DIM), [random_model(1), random_model(2)]
    for seed in range(4):
        prompt = drawn.prompt(letters, l, seed, noise)
        states = np.asarray(prompt.states), np.asarray(prompt.query_states)
        plain = types.SimpleNamespace(**vars(prompt), num_examples=l)
        plain.states, plain.query_states = states
        for model in models:
            for shown in (l, l // 2):
                outputs, _ = oracles.chain(model, plain, shown)
                found = chain(model, prompt, shown)
                np.testing.assert_array_equal(found.outputs, outputs)
                truth = states[1][1:]
                np.testing.assert_array_equal(found.wrong, outputs != truth)
                answer = oracles.direct(model, plain, shown)
                found = direct(model, prompt, shown)
                assert found.outputs.tolist() == [answer]
                assert found.wrong.tolist() == [answer != truth[-1]]


def test_both_memories_read_the_same_after_a_column_joins():
    letters = drawn.alphabet(3, 2, DIM)
    columns = _memory.chain_columns(drawn.prompt(letters, 6))
    direction = jax.random.normal(jax.random.key(0), (2 * DIM,))

    @jax.jit
    def both(*column):
        return [
            memory.joined(*column).average(letters, direction)
            for memory in (columns, _memory.count(columns, letters))
        ]

    for given in ((0, 1, 0), (2, 2, 1)):
        by_columns, by_counts = both(*map(jnp.asarray, given))
        np.testing.assert_allclose(by_counts, by_columns, rtol=1e-12)


def test_errors_are_the_papers():
    wrong = jnp.array([[True, False, False], [False, False, True]])
    found = cot.Inference(jnp.zeros((2, 3), int), wrong)
    np.testing.assert_allclose(found.mean_error, [1 / 3, 1 / 3])
    assert found.final_error.tolist() == [False, True]
    one = cot.Inference(jnp.zeros(3, int), wrong[0])
    assert one.mean_error == 1 / 3


def test_examples_that_are_not_shown_do_not_matter():
    model = random_model(2)
    prompt = drawn.prompt(drawn.alphabet(3, 2, DIM), 12)
    states = np.asarray(prompt.states) * (np.arange(12) < 5)[:, None]
    other = cot.ReasoningPrompt(
        jnp.asarray(states), prompt.query_states, prompt.alphabet
    )
    for infer in (chain, direct):
        one, two = infer(model, prompt, 5), infer(model, other, 5)
        np.testing.assert_array_equal(one.outputs, two.outputs)
        np.testing.assert_array_equal(
            infer(model, prompt).outputs, infer(model, prompt, 12).outputs
        )
    with pytest.raises(
        ValueError, match="num_examples: expected 1 <= num_examples <= 12, got 13"
    ):
        cot.cot_infer(model, prompt, 13)
    with pytest.raises(ValueError, match="num_examples: .* <= 12, got 0"):
        cot.icl_infer(model, prompt, 0)
    for infer in (cot.cot_infer, cot.icl_infer):
        with pytest.raises(ValueError, match="^num_examples: expected a whole number"):
            infer(model, prompt, 1.5)


def test_attention_masses_are_sums_over_explicit_columns():
    model, prompt = random_model(3), drawn.prompt(drawn.alphabet(4, 3, DIM), 5)
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
    found = jax.jit(cot.attention_masses)(model, prompt)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
def test_uniform_attention_has_the_shares_of_the_classes():
    letters = drawn.alphabet(4, 3, DIM)
    draw = jax.jit(lambda key: cot.sample_training_prompt(key, letters, 50, 0.4))
    prompt = draw(jax.random.key(1))
    blind = cot.initial_attention(DIM, 0.0)
    states, query = np.asarray(prompt.states), np.asarray(prompt.query_states)
    same = np.mean(states[:, 0] == query[0])
    expected = np.array([same, 2 * same, 1 - same, 2 * (1 - same)]) / 3
    found = jax.jit(cot.attention_masses)(blind, prompt)
    np.testing.assert_allclose(found, expected, atol=1e-12)
