"""Random stacks of linear attention, and the loops of ``oracles`` on their weights."""

import jax
import numpy as np

from icltheory.attention import LinearAttentionStack
from icltheory.noise import noise_spectrum
from tests import oracles

spectrum = jax.jit(noise_spectrum, static_argnames=("demo_updates", "method"))


def problem(L, N, n, seed=0, rho=0.1):
    """A stack, demonstrations and a query, as ``oracles.random_problem`` draws them."""
    *W, H, h = oracles.random_problem(L, N, n, seed, rho)
    return LinearAttentionStack(*W), H, h


def _weights(stack):
    return [np.asarray(W) for W in jax.tree.leaves(stack)]


def trajectory(stack, H, demo_updates="shared", scale=1.0):
    """Delta W_t, G_t and W_t."""
    return oracles.trajectory(*_weights(stack), np.asarray(H), demo_updates, scale)


def gradients(stack, H, demo_updates="shared", scale=1.0):
    """The gradient of each demonstration in each layer, ``(L, N, n, n)``."""
    given = *_weights(stack), np.asarray(H), demo_updates, scale
    return oracles.demonstration_gradients(*given)
