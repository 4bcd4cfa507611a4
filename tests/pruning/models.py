"""A small linear stack with prompts and targets, and scores of module level."""

import jax.numpy as jnp
import numpy as np

from icltheory.attention import LinearAttentionStack
from icltheory.layered import Batched, LayeredStack
from icltheory.pruning import Scored

L, n, N, B = 4, 6, 5, 3
RATES = (0.0, 0.1, 0.5, 0.75)  # ranks 6, 5, 3, 1


def draws(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) / 2)


STACK = LinearAttentionStack(*draws(3, L, n, n))
MODEL = Batched(LayeredStack.of(STACK, scale=1 / N))
INPUTS = draws(B, N, n, seed=1), draws(B, n, seed=2)
TARGETS = draws(B, n, seed=3)
traces = []


def errors(outputs, targets):
    """One error for each prompt; leaves a mark whenever it is traced."""
    traces.append(1)
    return jnp.sum((outputs - targets) ** 2, axis=-1)


SCORED = Scored(MODEL, STACK, INPUTS, errors, (TARGETS,))
