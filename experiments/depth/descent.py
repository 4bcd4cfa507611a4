"""Adam on a loss of fresh draws, for all runs in one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


def descend(
    loss: Callable[[Any, Any], jax.Array],
    draw: Callable[[jax.Array], Any],
    start: Any,
    optimizer: optax.GradientTransformation,
    steps: int,
    key: jax.Array,
) -> Any:
    """Minimises the expectation of ``loss(parameters, draw(key))``.

    Args:
        loss: Sum of the losses of all runs, which share no parameters.
        draw: Draws the data of a step.
        start: Parameters of all runs.
        optimizer: The optimizer.
        steps: Steps.
        key: Key of all draws.

    Returns:
        Parameters after the last step.
    """

    def step(state, i):
        now, memory = state
        gradient = jax.grad(loss)(now, draw(jax.random.fold_in(key, i)))
        updates, memory = optimizer.update(gradient, memory)
        return (optax.apply_updates(now, updates), memory), None

    @jax.jit
    def run(start):
        state = (start, optimizer.init(start))
        (now, _), _ = jax.lax.scan(step, state, jnp.arange(steps))
        return now

    return run(start)
