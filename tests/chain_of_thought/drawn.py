"""Alphabets and prompts that NumPy draws, for tests of what is made of them."""

import jax.numpy as jnp
import numpy as np

from icltheory import chain_of_thought as cot


def alphabet(num_states, num_steps, dim, seed=0):
    """Orthonormal patterns, and codes in the upper half."""
    rng = np.random.default_rng(seed)
    words = np.linalg.qr(rng.normal(size=(dim, dim)))[0][: num_states + num_steps]
    codes = np.pad(words[num_states:], ((0, 0), (0, dim)))
    return cot.Alphabet(words[:num_states], codes)


def prompt(letters, num_examples, seed=0):
    """States that follow no matrix: inference has to answer for any."""
    rng = np.random.default_rng([1, seed])
    M, K = letters.num_states, letters.num_steps
    states = rng.integers(M, size=(num_examples + 1, K + 1))
    return cot.ReasoningPrompt(
        jnp.asarray(states[:-1]), jnp.asarray(states[-1]), letters
    )
