"""Scores of the hand-built induction circuit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.mechanisms.config import Heads
from icltheory import induction
from icltheory.layered import attention_patterns
from icltheory.training import stream_key


class Circuit(NamedTuple):
    """Scores of the hand-built circuit on repeated blocks.

    Attributes:
        prefix: Prefix-matching score of the previous-token and the induction head.
        previous: Previous-token score of both.
        uniform: Prefix-matching score of uniform causal attention.
        expected_uniform: The same counted: mean of matches / (t + 1).
        copying: By eigenvalues: of the induction head, of -I, and of random matrices
            (largest in size of 20).
        ratio: Copying ratio of the induction head.
        accuracy: Next-token accuracy in the repeats.
        losses: Loss by position, (T - 1,).
        in_context: Loss in the repeats minus loss in the first block.
    """

    prefix: tuple[float, float]
    previous: tuple[float, float]
    uniform: float
    expected_uniform: float
    copying: tuple[float, float, float]
    ratio: float
    accuracy: float
    losses: np.ndarray
    in_context: float


def blocks(key: Array, choices: Array, config: Heads, sequences: int) -> Array:
    """Draws blocks of distinct tokens, each block repeated, (sequences, T)."""
    keys = jax.random.split(key, sequences)

    def one(key):
        block = jax.random.choice(key, choices, (config.block,), replace=False)
        return jnp.tile(block, config.repeats)

    return jax.vmap(one)(keys)


def on_cpu():
    """Context that computes general eigenvalues on the CPU, which has a solver."""
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def circuit(config: Heads, seed: int) -> Circuit:
    """Builds the circuit and computes its scores on one sequence."""
    V, n, T = config.vocab_size, config.block, config.block * config.repeats
    keys = jax.random.split(stream_key(seed, "data"))
    tokens = blocks(keys[0], jnp.arange(V), config, 1)[0]
    strength = 30.0

    @jax.jit
    def run(tokens):
        built = induction.induction_circuit(V, T, strength)
        hidden = built.embed(tokens)
        found = induction.head_scores(built.model, built.stack, hidden, tokens)
        patterns = attention_patterns(built.model, built.stack, hidden)
        W_O, W_V = built.model.ov_factors(1, built.stack)
        M = built.unembedding @ W_O[0] @ W_V[0] @ built.embedding.T
        repeats = jnp.arange(T) >= n
        logits = built.logits(tokens)
        right = jnp.argmax(logits[:-1], axis=1) == tokens[1:]
        each = jax.nn.log_softmax(strength * logits[:-1])
        losses = -jnp.take_along_axis(each, tokens[1:, None], axis=1)[:, 0]
        ratio = induction.copying_ratio(patterns[1][0], M, tokens, repeats)
        return found, M, jnp.mean(right[n:]), losses, ratio

    found, M, accuracy, losses, ratio = run(tokens)
    random = jax.random.normal(keys[1], (20, V, V))
    with on_cpu():
        each_score = np.asarray(
            jax.jit(jax.vmap(induction.copying_score))(np.asarray(random))
        )
        copied = float(induction.copying_score(np.asarray(M)))
        negative = float(induction.copying_score(-np.eye(V)))
    at_random = float(each_score[np.abs(each_score).argmax()])
    place = np.arange(n, T)
    return Circuit(
        prefix=_pair(found.prefix_matching),
        previous=_pair(found.previous_token),
        uniform=float(found.uniform),
        expected_uniform=float(np.mean((place // n) / (place + 1))),
        copying=(copied, negative, at_random),
        ratio=float(ratio),
        accuracy=float(accuracy),
        losses=np.asarray(losses),
        in_context=float(induction.in_context_score(losses, (0, n - 1), (n, T - 1))),
    )


def _pair(values: Array) -> tuple[float, float]:
    first, second = np.asarray(values)[:, 0]
    return float(first), float(second)
