"""Theorem 4 of Li et al.: training learns to match, the step first, then the input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import trained


@functools.cache
def small():
    """Two seeds of K = 2, M = 6 in d = 9, 150 steps; masses on fresh patterns."""

    @jax.vmap
    def run(seed):
        letters, descent, unseen, draws = jax.random.split(jax.random.key(seed), 4)
        alphabet = cot.Alphabet.orthonormal(letters, 6, 2, 9)
        start = cot.ReasoningAttention.initial(9)
        tasks, sizes = cot.PermutationTasks(alphabet, 0.5), (12, 150)
        settings = {"key": descent, "batch_size": 32, "record_every": 15}
        path = cot.train_attention(start, tasks, *sizes, **settings)
        steps = jnp.stack([jnp.eye(4)[jnp.array([1, 2, 3, 0])]] * 2)
        task = cot.ReasoningTask(steps, 0.5, alphabet.unseen(unseen, 4))
        prompts = task.sample(draws, 12, 50)

        def masses(model):
            return jax.vmap(lambda p: cot.attention_masses(model, p))(prompts)

        return jax.lax.map(masses, path.models)

    return jax.tree.map(np.asarray, jax.jit(run)(np.arange(2)))


@pytest.mark.statement("Li CoT: Figure 20")
def test_attention_finds_the_step_and_then_the_input_in_a_small_setting(measured):
    same, other_step, step, neither = (mass.mean(axis=-1) for mass in small())
    np.testing.assert_allclose(same + other_step + step + neither, 1, atol=1e-12)
    # uniform over steps at first, then those of the step lead, then the input too
    assert np.all(np.abs((other_step + neither)[:, 0] - 0.5) < 0.03)
    assert np.all((other_step + neither)[:, 1] < 0.1)
    assert np.all(step[:, 1] > 0.3)
    measured("least attention on the same step and input, small setting", same.min())
    assert np.all(same[:, -1] > 0.85)


@pytest.mark.statement("Li CoT: Theorem 4")
@pytest.mark.slow
def test_training_ends_with_a_small_loss(measured):
    """K = 3, M = 20, alpha = .4, l = 20, B = 64, 400 steps; seeds 0 to 2."""
    _, path = trained.ensemble(3, 0.4)
    last = np.asarray(path.losses)[:, -20:].mean(axis=1)
    measured("largest loss over three seeds", last.max(), below=2e-3)
    assert np.asarray(path.losses)[:, 0].min() > 0.3


@pytest.mark.statement("Li CoT: Figure 20")
@pytest.mark.slow
def test_attention_finds_the_step_and_then_the_input(measured):
    """Figure 20 starts at .145, .26, .205, .385, read to half a hundredth."""
    alphabets, path = trained.ensemble(3, 0.4)
    steps = jnp.stack(
        [jnp.roll(jnp.eye(10, dtype=jnp.float32), k, 1) for k in range(3)]
    )

    @jax.jit
    @jax.vmap
    def along(alphabet, models):
        unseen = alphabet.unseen(jax.random.key(9), 10)
        prompts = cot.ReasoningTask(steps, 0.4, unseen).sample(
            jax.random.key(3), 20, 100
        )

        def at(model):
            masses = jax.vmap(lambda p: cot.attention_masses(model, p))(prompts)
            return jnp.stack([jnp.mean(mass) for mass in masses])

        return jax.lax.map(at, models)

    found = np.asarray(along(alphabets, path.models))
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(
        found[:, 0].mean(axis=0), [0.145, 0.26, 0.205, 0.385], atol=0.015
    )
    same, other_step = found[..., 0], found[..., 1] + found[..., 3]
    for seed in range(3):
        reached = int(np.argmax(same[seed] > 0.6))
        measured(
            "other steps when same step and input reach .6",
            other_step[seed, reached],
            below=0.05,
        )
        # before that, columns of the step but of other inputs led
        assert found[seed, 3, 2] > same[seed, 3]
    measured("least attention on the same step and input", same[:, -1].min())
    assert same[:, -1].min() > 0.93


@pytest.mark.statement("Li CoT: Theorem 4")
@pytest.mark.slow
def test_what_is_learned_is_the_matching_of_steps_and_patterns(measured):
    """W_K' W_Q is a large multiple of I on patterns and codes."""
    alphabets, path = trained.ensemble(3, 0.4)
    diagonal, rest = [], []
    for seed in range(3):
        patterns = np.asarray(alphabets.patterns[seed])
        upper = np.pad(patterns, ((0, 0), (0, 30)))
        words = np.concatenate([upper, np.asarray(alphabets.codes[seed])])
        W_K, W_Q = (
            np.asarray(getattr(path.models, n)[seed, -1]) for n in ("W_K", "W_Q")
        )
        form = words @ W_K.T @ W_Q @ words.T
        diagonal.append(np.diag(form).min())
        rest.append(np.abs(form - np.diag(np.diag(form)))[:20, :20].max())
    measured("least gain of a match", min(diagonal))
    measured("largest of a mismatch of patterns", max(rest))
    assert min(diagonal) > 2
    assert max(rest) < 0.5 * min(diagonal)
    W_V = np.asarray(path.models.W_V)
    np.testing.assert_array_equal(W_V, np.broadcast_to(np.eye(30, 60, 30), W_V.shape))


@pytest.mark.statement("Li CoT: Theorem 4", "Li CoT: Theorem 4, K, M and eps")
def test_the_predicate_is_its_inequalities():
    tasks = cot.PermutationTasks(cot.Alphabet.standard(20, 3), 0.4)
    given = {"num_examples": 20, "num_iterations": 2000, "batch_size": 64}
    given |= {"tasks": tasks, "loss": 0.25}
    found = cot.training_conditions(**given)
    needed = 0.4**-2 * 27 + 60 * (1 / 0.4 + 4)
    assert float(found["steps"].right) == pytest.approx(needed, rel=1e-12)
    assert float(found["training length"].right) == pytest.approx(2.5)
    assert float(found["batch"].right) == pytest.approx(16)
    assert bool(found.holds)
    for name, value in (
        ("num_examples", 2),
        ("num_iterations", 500),
        ("batch_size", 15),
        ("pattern_counts", jnp.array([[3, 3], [2, 4]])),
    ):
        assert not bool(cot.training_conditions(**{**given, name: value}).holds)
    certain = cot.PermutationTasks(tasks.alphabet, 1)
    whole = cot.training_conditions(**{**given, "tasks": certain, "loss": 1})
    assert float(whole["steps"].right) == 27 + 60 * 2
    counts = jnp.array([[3, 3], [2, 4]])
    rough = cot.training_conditions(**given, pattern_counts=counts, tolerance=0.5)
    assert bool(rough.holds)
    for constants in ((10.0, 1.0, 1.0), (1.0, 10.0, 1.0), (1.0, 1.0, 10.0)):
        assert not bool(cot.training_conditions(**given, constants=constants).holds)
