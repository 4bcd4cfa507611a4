"""Orders in Theorems 1, 3 and 4 of Li et al. that other tests hold fixed: B, M_2, K, M.

The constants of these theorems are hidden, so that a test can only record what a small
training does when one size varies. Asserted is what is far from the noise of the seeds.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.patterns import neuron_parts, prune_neurons, scores
from tests.patterns.trained import SMALL, small_path, small_task


@pytest.mark.statement("Li ICL: Theorem 3, M2")
@pytest.mark.slow
def test_pruning_small_neurons_by_the_number_of_irrelevant_patterns(measured):
    """M_2 = 2, 4, 16: rows of the irrelevant patterns repeat, so that shapes agree."""

    @jax.jit
    @jax.vmap
    def run(seed, rows):
        keys = jax.random.split(jax.random.key(seed), 3)
        task = small_task(keys[0], 16)
        task = eqx.tree_at(lambda t: t.irrelevant, task, task.irrelevant[rows])
        params = small_path(task, keys).last
        prompt = task.held_out().sample(jax.random.key(5), 20, 2048)
        pruned = prune_neurons(params, neuron_parts(params, task).num_small / 16)
        pair = (scores(SMALL, p, prompt).hinge for p in (params, pruned))
        return jnp.stack([*pair])

    sizes = np.repeat([2, 4, 16], 2)
    rows = np.stack([np.arange(16) % size for size in sizes])
    whole, cut = np.asarray(run(np.tile([0, 1], 3), rows)).T
    assert np.all(whole < 0.01)
    bound = sizes**-0.5
    change = np.abs(cut - whole) / bound
    measured("change of the hinge error times M_2^(1/2)", change.max())
    assert np.all(np.abs(cut - whole) < 0.05 * bound)


@pytest.mark.statement("Li ICL: Theorem 1, B")
@pytest.mark.slow
def test_error_by_batch_size(measured):
    """B = 4 and 64 at 160 steps: the order says eps ~ B^(-1/2), a factor of 4."""
    errors = {}
    for size in (4, 64):

        @jax.jit
        @jax.vmap
        def run(seed, size=size):
            keys = jax.random.split(jax.random.key(seed), 3)
            task = small_task(keys[0], 16)
            params = small_path(task, keys, size).last
            prompt = task.held_out().sample(jax.random.key(5), 20, 2048)
            return scores(SMALL, params, prompt).hinge

        errors[size] = np.asarray(run(np.arange(4)))
        measured(f"mean hinge error at B = {size}", errors[size].mean())
    assert errors[64].mean() < 5e-3
    assert errors[4].mean() > errors[64].mean()


def first_below(losses, level):
    smooth = np.stack([losses[:, i : i + losses.shape[1] - 9] for i in range(9)])
    below = smooth.mean(0) < level
    assert np.all(below.any(1))
    return np.argmax(below, axis=1) + 5


@pytest.mark.statement("Li CoT: Theorem 4, K, M and eps")
@pytest.mark.slow
def test_steps_of_chain_of_thought_by_sizes_and_accuracy(measured):
    """T for a loss of .02 at (K, M) = (2, 6), (4, 6), (2, 12); then by the loss."""
    steps = {}
    for K, M in ((2, 6), (4, 6), (2, 12)):

        @jax.jit
        @jax.vmap
        def run(seed, K=K, M=M):
            letters, descent = jax.random.split(jax.random.key(seed))
            alphabet = cot.Alphabet.orthonormal(letters, M, K, M + K)
            start = cot.ReasoningAttention.initial(M + K)
            tasks, sizes = cot.PermutationTasks(alphabet, 0.5), (12, 400)
            settings = {"key": descent, "batch_size": 32, "record_every": 400}
            return cot.train_attention(start, tasks, *sizes, **settings).losses

        losses = np.asarray(run(np.arange(2)))
        steps[K, M] = first_below(losses, 0.02).mean()
        measured(f"steps to a loss of .02 at K = {K}, M = {M}", steps[K, M])
        if (K, M) == (2, 6):
            levels = np.array([0.1, 0.05, 0.02, 0.01])
            needed = [first_below(losses, level).mean() for level in levels]
            slope = np.polyfit(np.log(1 / levels), np.log(needed), 1)[0]
            measured("slope of log T in log 1 / eps", slope)
            assert 0 < slope < 1  # the theorem's term is M K / eps
    assert steps[4, 6] > steps[2, 6]
