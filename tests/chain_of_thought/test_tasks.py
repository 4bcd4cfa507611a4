"""Prompts: the law of their steps, and what is never drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.chain_of_thought import votes
from icltheory.chain_of_thought.tasks import _starts
from tests.chain_of_thought import drawn
from tests.raising import raises


@pytest.fixture(scope="module")
def letters():
    return drawn.alphabet(4, 2, 8)


def z_of(found, share, count):
    return (found - share) / np.sqrt(np.maximum(share * (1 - share), 1e-3) / count)


@pytest.mark.slow
def test_training_prompts_are_permutations_without_errors(letters):
    tasks = cot.PermutationTasks(letters, 0.4)
    found = jax.jit(lambda key: tasks.sample(key, 20, 500))(jax.random.key(1))
    paths = np.concatenate([found.states, found.query_states[:, None]], axis=1)
    for prompt in paths[:50]:
        for k in range(2):
            pairs = set(map(tuple, prompt[:, k : k + 2].tolist()))
            assert (
                len({a for a, _ in pairs}) == len(pairs) == len({b for _, b in pairs})
            )
    same = paths[:, :-1, 0] == paths[:, -1:, 0]
    assert abs(z_of(same.mean(), 0.4, same.size)) < 4
    # every pattern is equally frequent in every step
    for k in range(3):
        share = np.bincount(paths[:, -1, k], minlength=4) / 500
        assert np.abs(z_of(share, 0.25, 500)).max() < 4


def test_test_prompts_follow_the_transition_matrices(letters):
    steps = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 4))
    steps[0, 0] = [0, 0.5, 0.5, 0]
    task = cot.ReasoningTask(steps, 0.5, letters)
    found = jax.jit(lambda key: task.sample(key, 50, 400))(jax.random.key(2))
    states = np.asarray(found.states)
    same = states[:, :, 0] == np.asarray(found.query_states)[:, None, 0]
    assert abs(z_of(same.mean(), 0.5, same.size)) < 4
    for k in range(2):
        for i in range(4):
            after = states[states[..., k] == i][:, k + 1]
            share = np.bincount(after, minlength=4) / len(after)
            assert np.abs(z_of(share, steps[k, i], len(after))).max() < 4.5
    # states of probability 0 are never drawn
    after = states[states[..., 0] == 0][:, 1]
    assert set(after.tolist()) == {1, 2}
    paths = np.asarray(task.stepwise_paths)
    queries = np.asarray(found.query_states)
    np.testing.assert_array_equal(queries, paths[queries[:, 0]])


def test_sizes_are_those_of_the_states(letters):
    prompt = drawn.prompt(letters, 6)
    assert (prompt.num_examples, prompt.num_steps) == (6, 2)


@pytest.mark.slow
def test_all_or_no_examples_start_like_the_query(letters, key):
    steps = np.stack([np.eye(4)] * 2)
    sample = jax.jit(lambda share: cot.ReasoningTask(steps, share).draw(key, 30))
    for fraction in (0.0, 1.0):
        prompt = sample(fraction)
        same = np.asarray(prompt.states)[:, 0] == np.asarray(prompt.query_states)[0]
        assert np.all(same == bool(fraction))


def test_tasks_that_do_not_fit_are_refused(letters, key):
    task, still = cot.ReasoningTask(np.stack([np.eye(4)] * 2)), np.ones((2, 1, 1))
    cot.ReasoningTask(np.full((1, 2, 2), 0.5), 0.5).draw(key, 6)  # two states suffice
    for run, message in (
        (
            lambda: cot.ReasoningTask(np.eye(4)[None], alphabet=letters),
            "steps: expected 2 steps over 4 states",
        ),
        (
            lambda: cot.ReasoningTask(jnp.ones((2, 4, 4))),
            "steps: expected rows that sum to 1",
        ),
        (lambda: task.draw(key, 0), "num_examples: expected a positive integer"),
        (
            lambda: cot.ReasoningTask(task.steps, 1.5),
            "relevant_fraction: expected a value in [0, 1]",
        ),
        (
            lambda: cot.ReasoningTask(still, 0.5),
            "relevant_fraction: expected 1 where there is one state",
        ),
        (
            lambda: task.path_probabilities(np.array([[0, 1, 4]])),
            "paths: expected 0 <= paths <= 3, got 4",
        ),
    ):
        with raises(message):
            run()


@pytest.mark.parametrize("fraction", [0.0, 1.0])
@pytest.mark.parametrize("states", [2, 3])
def test_starts_of_a_share_of_0_or_1(states, fraction, key):
    tasks = cot.PermutationTasks(cot.Alphabet.standard(states, 1), fraction)
    query, others = _starts(key, tasks, 40)
    assert np.all((others == query) == (fraction == 1))
    assert set(np.unique(others)) <= set(range(states))


@pytest.mark.parametrize("states", [1, 2, 3])
def test_an_example_starts_at_one_of_the_states(states):
    fraction = 1.0 if states == 1 else 0.3
    task = cot.ReasoningTask(np.stack([np.eye(states)] * 2), fraction)
    found = votes._start_shares(task)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(jnp.diagonal(found), fraction, rtol=1e-12)
