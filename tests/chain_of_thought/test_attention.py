"""The attention model against explicit columns, in both forms of its memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.chain_of_thought import attention
from tests.chain_of_thought import drawn, oracles
from tests.raising import raises

DIM = 7


def random_model(seed):
    rng = np.random.default_rng(seed)
    shapes = ((DIM, 2 * DIM), (2 * DIM, 2 * DIM), (2 * DIM, 2 * DIM))
    return cot.ReasoningAttention(*(jnp.asarray(rng.normal(size=s)) for s in shapes))


@pytest.fixture
def prompt():
    return drawn.prompt(drawn.alphabet(4, 2, DIM), 6)


def explicit(prompt, shown):
    patterns, codes = oracles.parts(prompt)
    return [
        oracles.token(patterns, codes, int(s[k]), int(s[k + 1]), k)
        for s in np.asarray(prompt.states)[:shown]
        for k in range(2)
    ]


@pytest.mark.statement("Li CoT: Eq. (11), model")
@pytest.mark.parametrize("shown", [1, 6])
def test_the_output_is_that_of_explicit_columns_in_both_forms(prompt, shown):
    model, letters = random_model(1), prompt.alphabet
    query = np.random.default_rng(2).normal(size=2 * DIM)
    weights, output = oracles.attend(model, explicit(prompt, shown), query)

    @jax.jit
    def answers(model, prompt, shown, query):
        columns = attention.chain_columns(prompt, shown)
        found = columns.weights(letters, model.direction(query))
        memories = (columns, attention.count(columns, letters))
        return found, [model.output(one, letters, query) for one in memories]

    found, both = jax.tree.map(np.asarray, answers(model, prompt, shown, query))
    np.testing.assert_allclose(found[: 2 * shown], weights, atol=1e-12)
    np.testing.assert_array_equal(found[2 * shown :], 0)
    for answer in both:
        np.testing.assert_allclose(answer, output, atol=1e-12)


@pytest.mark.slow
def test_counts_are_used_where_they_are_less_work(prompt):
    letters = prompt.alphabet
    short = cot.ReasoningPrompt(prompt.states[:4], prompt.query_states, letters)
    columns = attention.chain_columns(short)
    assert attention.compact(columns, letters) is columns
    columns = attention.chain_columns(drawn.prompt(letters, 30), 20)
    counts = attention.compact(columns, letters)
    assert isinstance(counts, attention.Counts)
    assert float(counts.counts.sum()) == 40


def test_start_and_matching_attention_are_their_formulas():
    start = cot.ReasoningAttention.initial(3, 0.5)
    np.testing.assert_array_equal(start.W_K, 0.5 * np.eye(6))
    np.testing.assert_array_equal(start.W_V, [[0, 0, 0, *row] for row in np.eye(3)])
    match = cot.ReasoningAttention.matching(3, 9.0)
    np.testing.assert_allclose(match.W_Q, np.diag([3.0, 3, 3, 0, 0, 0]), rtol=1e-15)
    with raises("model: expected dimension 14, as of the prompt, got 7"):
        random_model(1).check_dim(drawn.alphabet(4, 2, 2 * DIM))
    with raises("dim: expected a positive integer, got 0"):
        cot.ReasoningAttention.initial(0)
    with raises("W_V: expected shape (2, 4), got (2, 3)"):
        cot.ReasoningAttention(jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones((4, 3)))
    with raises("W_Q: expected shape (1, 4)"):
        cot.ReasoningAttention(jnp.ones((2, 4)), jnp.ones((1, 4)), jnp.ones((2, 4)))
