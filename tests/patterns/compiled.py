"""Tasks and prompts, each made by one program."""

import functools

import jax

from icltheory.patterns import PatternTask

out_of_domain = jax.jit(PatternTask.out_of_domain, static_argnames=("tasks",))


@functools.partial(jax.jit, static_argnums=(2, 3))
def sample(task, key, num_examples, num_prompts, alpha=None, coefficient_sum=None):
    """Prompts with a share alpha of relevant contexts, shifted if a sum is given."""
    if coefficient_sum is not None:
        first, key = jax.random.split(key)
        task = task.out_of_domain(coefficient_sum, key=first)
    task = task.with_(relevant_fraction=alpha)
    return task.sample(key, num_examples, num_prompts)


def pattern_task(*args, **kwargs):
    return jax.jit(lambda: PatternTask(*args, **kwargs))()
