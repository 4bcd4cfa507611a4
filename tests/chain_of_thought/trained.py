"""Trained models that several files look at; trained once a process, in float32."""

import functools

import jax
import jax.numpy as jnp

from icltheory import chain_of_thought as cot

DIM, STATES, SEEDS, ITERATIONS = 30, 20, (0, 1, 2), 400


@functools.cache
def ensemble(num_steps, fraction):
    """Alphabets and paths of training, a leading axis of seeds."""

    def one(seed):
        letters, descent = jax.random.split(jax.random.key(seed))
        alphabet = cot.Alphabet.orthonormal(letters, STATES, num_steps, DIM)
        alphabet = jax.tree.map(lambda a: a.astype(jnp.float32), alphabet)
        start = cot.ReasoningAttention.initial(DIM)
        tasks = cot.PermutationTasks(alphabet, fraction)
        path = cot.train_attention(start, tasks, 20, ITERATIONS, key=descent)
        return alphabet, path

    return jax.jit(jax.vmap(one))(jnp.asarray(SEEDS))


def member(num_steps, fraction, seed):
    """Alphabet and model at the end of training of one seed."""
    alphabets, path = ensemble(num_steps, fraction)
    alphabet = jax.tree.map(lambda a: a[seed], alphabets)
    return alphabet, jax.tree.map(lambda a: a[seed, -1], path.models)


@functools.partial(jax.jit, static_argnums=(4, 6))
def errors(model, alphabet, steps, fraction, num_examples, key, prompts=1000):
    """Mean CoT error and ICL error over fresh prompts, patterns from one draw."""
    letters, draws = jax.random.split(key)
    steps = jnp.asarray(steps, alphabet.patterns.dtype)
    unseen = alphabet.unseen(letters, steps.shape[1])
    task = cot.ReasoningTask(steps, fraction, unseen)
    return tuple(
        cot.wrong_answers(
            kind(model), task, num_examples, key=draws, num_prompts=prompts
        )
        for kind in (cot.ChainOfThought, cot.DirectAnswer)
    )
