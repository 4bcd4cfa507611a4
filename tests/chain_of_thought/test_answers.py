"""Answers step by step and at once, against loops over explicit columns."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.chain_of_thought import attention
from tests.chain_of_thought import drawn, oracles
from tests.chain_of_thought.test_attention import DIM, random_model

BOTH = cot.ChainOfThought, cot.DirectAnswer
answers = jax.jit(lambda reasoner, prompt, shown: reasoner.answers(prompt, shown))


@pytest.mark.statement("Li CoT: Errors of inference")
@pytest.mark.parametrize(
    ("K", "M", "l"),
    [
        pytest.param(1, 3, 4, marks=pytest.mark.slow),
        (3, 4, 9),
        pytest.param(2, 2, 40, marks=pytest.mark.slow),
    ],
)
def test_answers_are_those_of_the_loop(K, M, l):
    """Short prompts keep their columns, long ones are counted."""
    letters, models = drawn.alphabet(M, K, DIM), [random_model(1), random_model(2)]
    for seed in range(4):
        prompt = drawn.prompt(letters, l, seed)
        states = np.asarray(prompt.states), np.asarray(prompt.query_states)
        plain = types.SimpleNamespace(**vars(prompt), num_examples=l)
        plain.states, plain.query_states = states
        for model in models:
            for shown in (l, l // 2):
                outputs, _ = oracles.chain(model, plain, shown)
                found = answers(cot.ChainOfThought(model), prompt, shown)
                np.testing.assert_array_equal(found, outputs)
                truth = states[1][1:]
                np.testing.assert_array_equal(prompt.wrong(found), outputs != truth)
                answer = oracles.direct(model, plain, shown)
                found = answers(cot.DirectAnswer(model), prompt, shown)
                assert found.tolist() == [answer]
                assert prompt.wrong(found).tolist() == [answer != truth[-1]]


def test_both_memories_read_the_same_after_a_column_joins():
    letters = drawn.alphabet(3, 2, DIM)
    columns = attention.chain_columns(drawn.prompt(letters, 6))
    direction = jax.random.normal(jax.random.key(0), (2 * DIM,))

    @jax.jit
    def both(*column):
        return [
            memory.joined(*column).average(letters, direction)
            for memory in (columns, attention.count(columns, letters))
        ]

    for given in ((0, 1, 0), (2, 2, 1)):
        by_columns, by_counts = both(*map(jnp.asarray, given))
        np.testing.assert_allclose(by_counts, by_columns, rtol=1e-12)


@pytest.mark.statement("Li CoT: Errors of inference")
def test_errors_are_the_papers():
    """The mean over steps of a wrong state, and a wrong last state."""
    letters = drawn.alphabet(3, 3, DIM)
    states = jnp.array([[0, 1, 2, 0], [0, 1, 1, 1]])
    prompts = cot.ReasoningPrompt(jnp.zeros((2, 4, 4), int), states, letters)
    wrong = prompts.wrong(jnp.array([[2, 2, 0], [1, 1, 2]]))
    assert wrong.tolist() == [[True, False, False], [False, False, True]]
    assert prompts.wrong(jnp.array([[0], [2]])).tolist() == [[False], [True]]
    task, key = cot.ReasoningTask(cot.slide_transitions()), jax.random.key(3)
    run = {"key": key, "num_prompts": 40}
    for reasoner, size in ((cot.ChainOfThought(), 2), (cot.DirectAnswer(), 1)):
        curve = np.asarray(cot.wrong_answers(reasoner, task, (1, 5), **run))
        assert curve.shape == (2, 40, size)
        found = cot.error(reasoner, task, (1, 5), **run)
        shares = curve.mean(axis=(1, 2))
        np.testing.assert_allclose(found.estimate.mean, shares, rtol=1e-12)
        bound = cot.error(reasoner, task, 5).bound
        assert float(found.bound[1]) == pytest.approx(float(bound), rel=1e-12)
    single = cot.wrong_answers(cot.DirectAnswer(), task, 5, **run)
    np.testing.assert_array_equal(curve[1], single)


def test_the_vote_is_exact_where_two_states_have_one_answer():
    steps = np.array([[[0.7, 0.3], [0.4, 0.6]]])
    task = cot.ReasoningTask(steps, 0.8)
    exact = np.mean([cot.vote_error(p, 7, 0.8) for p in (0.7, 0.6)], axis=0)
    for reasoner in (cot.ChainOfThought(), cot.DirectAnswer()):
        found = cot.error(reasoner, task, 7)
        np.testing.assert_allclose(found.votes, exact, rtol=1e-12)
        assert found.estimate is None
        assert sum(found.votes) <= found.bound
    two = cot.ReasoningTask(np.array([steps[0], [[0.2, 0.8], [0.9, 0.1]]]), 0.8)
    # From 0 by 0 to 1, and from 1 by 1 to 0: .7 .8 + .3 .1 and .6 .9 + .4 .2.
    exact = np.mean([cot.vote_error(p, 7, 0.8) for p in (0.59, 0.62)], axis=0)
    found = cot.error(cot.DirectAnswer(), two, 7)
    np.testing.assert_allclose(found.votes, exact, rtol=1e-12)
    longer = cot.ReasoningTask(cot.slide_transitions())
    assert cot.error(cot.ChainOfThought(), longer, 7).votes is None
    three = cot.ReasoningTask(np.full((1, 3, 3), 1 / 3))
    assert cot.error(cot.DirectAnswer(), three, 7).votes is None


def test_a_wrong_task_has_no_error_where_it_is_traced():
    steps = np.stack([cot.slide_transitions(), cot.slide_transitions() / 2])

    def measured(steps):
        task = cot.ReasoningTask(steps)
        run = {"key": jax.random.key(1), "num_prompts": 3}
        found = cot.error(cot.DirectAnswer(), task, 3, **run)
        bound = cot.icl_error_bound(cot.ReasoningTask(steps[:, ::-1]), 3)
        return found.bound, found.estimate.mean, task.icl_error_limit, task.rho, bound

    right, wrong = np.stack(jax.jit(jax.vmap(measured))(steps), axis=1)
    assert np.all(np.isfinite(right))
    assert np.all(np.isnan(wrong))
    model = cot.ReasoningAttention.matching(4)
    with pytest.raises(ValueError, match="predictor: expected ChainOfThought"):
        cot.error(model, cot.ReasoningTask(steps[0]), 3)


@pytest.mark.usefixtures("as_for_a_user")
def test_the_exact_errors_are_those_of_a_reasoning_task():
    other = cot.PermutationTasks(cot.Alphabet.standard(4, 2), 0.4)
    with pytest.raises(ValueError, match="^task: expected a ReasoningTask, got P"):
        cot.error(cot.DirectAnswer(), other, 3)


def test_examples_that_are_not_shown_do_not_matter():
    model = random_model(2)
    prompt = drawn.prompt(drawn.alphabet(3, 2, DIM), 12)
    states = np.asarray(prompt.states) * (np.arange(12) < 5)[:, None]
    other = cot.ReasoningPrompt(
        jnp.asarray(states), prompt.query_states, prompt.alphabet
    )
    for reasoner in (kind(model) for kind in BOTH):
        one, two = (answers(reasoner, each, 5) for each in (prompt, other))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(
            reasoner.answers(prompt), answers(reasoner, prompt, 12)
        )
        wanted = "num_examples: expected 1 <= num_examples <= 12"
        for shown in (0, 13):
            with pytest.raises(ValueError, match=f"{wanted}, got {shown}"):
                reasoner.answers(prompt, shown)
        with pytest.raises(ValueError, match="^num_examples: expected a whole number"):
            reasoner.answers(prompt, 1.5)


def test_attention_masses_are_sums_over_explicit_columns():
    model, prompt = random_model(3), drawn.prompt(drawn.alphabet(4, 3, DIM), 5)
    patterns, codes = oracles.parts(prompt)
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
