"""Training: the loss and its gradient from explicit columns, one step, ensembles."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import drawn, oracles
from tests.chain_of_thought.test_attention import DIM, random_model
from tests.raising import raises


@pytest.fixture(scope="module")
def letters():
    return drawn.alphabet(4, 2, DIM)


def test_the_model_of_a_training_is_the_last_of_three_records():
    models = jax.tree.map(lambda W: jnp.stack([W, W + 1, W + 2]), random_model(1))
    found = cot.ReasoningTraining(jnp.arange(3), models, jnp.ones(2)).model
    np.testing.assert_array_equal(found.W_V, random_model(1).W_V + 2)


loss_and_grad = jax.jit(jax.value_and_grad(cot.prompt_loss), static_argnums=2)


def loss_by_hand(model, prompt, step):
    patterns, codes = oracles.parts(prompt)
    truth = np.asarray(prompt.query_states)
    paths = np.concatenate([np.asarray(prompt.states), truth[None]])
    tokens = [
        oracles.token(patterns, codes, int(s[k]), int(s[k + 1]), k)
        for i, s in enumerate(paths)
        for k in range(2)
        if i < prompt.num_examples or k < step
    ]
    query = oracles.token(patterns, codes, int(truth[step]), None, step)
    _, F = oracles.attend(model, tokens, query)
    return np.sum((patterns[truth[step + 1]] - F) ** 2) / 2


@pytest.mark.parametrize("step", [0, 1])
def test_loss_and_gradient_are_those_of_explicit_columns(letters, step):
    model, prompt = random_model(4), drawn.prompt(letters, 6)
    value, grads = loss_and_grad(model, prompt, step)
    by_hand = loss_by_hand(model, prompt, step)
    assert float(value) == pytest.approx(by_hand, rel=1e-12)
    for name, place in (("W_K", (1, 2)), ("W_Q", (3, 9))):
        sides = []
        for sign in (1, -1):
            W = np.asarray(getattr(model, name)).copy()
            W[place] += sign * 1e-6
            weights = {n: getattr(model, n) for n in ("W_V", "W_K", "W_Q")} | {name: W}
            moved = cot.ReasoningAttention(
                **{n: jnp.asarray(w) for n, w in weights.items()}
            )
            sides.append(loss_by_hand(moved, prompt, step))
        slope = (sides[0] - sides[1]) / 2e-6
        grad = np.asarray(getattr(grads, name))[place]
        assert grad == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (0.5, "step: expected an integer, got 0.5"),
        (True, "step: expected an integer, got True"),
        (2, "step: expected 0 <= step <= 1, got 2"),
    ],
)
def test_steps_that_do_not_exist_are_refused(letters, step, message):
    # Without the tests' checks of annotations.
    loss = inspect.unwrap(cot.prompt_loss)
    with raises(message):
        loss(random_model(4), drawn.prompt(letters, 6), step)


@pytest.mark.slow
def test_a_path_is_plain_descent_and_does_not_depend_on_its_records(letters):
    given = cot.ReasoningAttention.initial(DIM), cot.PermutationTasks(letters, 0.4), 5
    run = functools.partial(cot.train_attention, *given, 4, batch_size=4)
    run = functools.partial(run, key=jax.random.key(3))
    path, fine = run(record_every=2), functools.partial(run, record_every=1)
    other = fine()
    assert path.iterations.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(path.losses, other.losses)
    np.testing.assert_array_equal(path.model.W_K, other.model.W_K)
    first = 0.2 * np.eye(2 * DIM)
    np.testing.assert_array_equal(np.asarray(path.models.W_Q)[0], first)
    still = run(record_every=2, step_size=0.0)
    np.testing.assert_array_equal(still.model.W_K, np.asarray(path.models.W_K)[0])
    # half the step moves half as far, to first order
    paths = [fine(step_size=eta) for eta in (2e-3, 1e-3)]
    moves = [np.asarray(path.models.W_Q)[1] - first for path in paths]
    np.testing.assert_allclose(moves[0], 2 * moves[1], atol=1e-15)


def test_numbers_out_of_range_are_refused(letters):
    start, tasks = cot.ReasoningAttention.initial(DIM), cot.PermutationTasks(letters)
    run = functools.partial(cot.train_attention, start, tasks, key=jax.random.key(0))
    with pytest.raises(ValueError, match="multiple of record_every = 10, got 15"):
        run(20, 15)
    with raises("batch_size: expected a positive integer"):
        run(20, 10, batch_size=0)
    with raises("step_size: expected a value >= 0, got -1"):
        run(20, 10, step_size=-1.0)
    with raises("relevant_fraction: expected a value in [0, 1]"):
        cot.PermutationTasks(letters, 1.5)
