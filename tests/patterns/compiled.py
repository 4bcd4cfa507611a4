"""Tasks and prompts, each made by one program."""

import jax

from icltheory.patterns import PatternTask

sample = jax.jit(PatternTask.sample, static_argnums=(2, 3))
out_of_domain = jax.jit(PatternTask.out_of_domain, static_argnames=("tasks",))


def pattern_task(*args, **kwargs):
    return jax.jit(lambda: PatternTask(*args, **kwargs))()
