"""The recursion of Theorem 1: on tokens, on their Gram matrix, or in thin factors."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from icltheory._checks import check_choice, check_shape
from icltheory._core import widened
from icltheory._typing import Array, DemoUpdates
from icltheory.attention import LinearAttentionStack

DEMO_UPDATES = ("shared", "causal", "frozen")


class Learner(NamedTuple):
    """A stack with the options of Theorem 1's implicit learner."""

    stack: LinearAttentionStack
    demo_updates: DemoUpdates
    scale: Array


def check_stack(stack: Any, kind: type) -> None:
    """Raises for a stack of another kind, of which the recursion is not true."""
    if not isinstance(stack, kind):
        got = type(stack).__name__
        raise ValueError(f"stack: expected a {kind.__name__}, got {got}")


def prepare(stack, H, demo_updates, scale) -> tuple[Learner, Array]:
    """Checks the arguments and converts them to one dtype."""
    check_stack(stack, LinearAttentionStack)
    check_choice("demo_updates", demo_updates, DEMO_UPDATES)
    check_shape("H", H, ("N", stack.W_V.shape[-1]))
    stack, H = jax.tree.map(widened, (stack, H))
    dtype = jnp.result_type(H, *jax.tree.leaves(stack))
    stack, H, scale = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, dtype), (stack, H, scale)
    )
    return Learner(stack, demo_updates, scale), H


def demo_factors(layer, H, scale):
    """Rows v_i = c W_V h_i and u_i = W_Q^T W_K h_i of the update V^T U."""
    if layer.W_V.ndim == 3:  # the rows of one head after those of the other
        one = jax.vmap(lambda V, K, Q: (scale * (H @ V.T), H @ K.T @ Q))
        V, U = one(layer.W_V, layer.W_K, layer.W_Q)
        return V.reshape(-1, H.shape[1]), U.reshape(-1, H.shape[1])
    return scale * (H @ layer.W_V.T), H @ layer.W_K.T @ layer.W_Q


def num_heads(stack) -> int:
    """Number of heads of a stack of linear attention."""
    return 1 if stack.W_V.ndim == 3 else stack.W_V.shape[1]


def move_demos(demo_updates, H, V, U):
    """Returns the demonstrations after the layer, with the same update as the query."""
    if demo_updates == "frozen":
        return H
    if demo_updates == "causal":
        seen = jnp.tile(jnp.tri(len(H), dtype=bool), len(V) // max(len(H), 1))
        return H + jnp.where(seen, H @ U.T, 0) @ V
    return H + jnp.linalg.multi_dot([H, U.T, V])


def telescope(stack, state, update, emit):
    """Scans ``G = dW (1 + W)``, ``W <- W + G``, and keeps ``emit(dW, G, W)``.

    ``update(state, layer)`` gives the layer's dW and the next state.
    """
    start = jnp.zeros_like(stack.W_V, shape=stack.W_V.shape[-1:] * 2)

    def step(carry, layer):
        state, W = carry
        delta_W, state = update(state, layer)
        G = delta_W + delta_W @ W
        return (state, W + G), emit(delta_W, G, W)

    return jax.lax.scan(step, (state, start), stack)[1]


def choose_dense(method, demo_updates, H):
    """Returns the cheaper of two dense methods, or the given one if it applies."""
    check_choice("method", method, ("auto", "dense", "gram"))
    if method == "gram" and demo_updates == "causal":
        raise ValueError(
            "method: expected 'dense' for demo_updates 'causal', got 'gram'"
        )
    if method == "auto":
        gram = demo_updates != "causal" and H.shape[0] > H.shape[1]
        return "gram" if gram else "dense"
    return method


def dense_recursion(learner: Learner, H, method, emit):
    """Runs Theorem 1 with n x n matrices and returns what ``emit`` selects."""
    stack, demo_updates, scale = learner

    def from_tokens(H, layer):
        V, U = demo_factors(layer, H, scale)
        return V.T @ U, move_demos(demo_updates, H, V, U)

    def from_gram(S, layer):
        W_V, W_K, W_Q = layer.W_V, layer.W_K, layer.W_Q
        delta_W = scale * (W_V @ S @ jnp.swapaxes(W_K, -1, -2) @ W_Q)
        delta_W = jnp.sum(delta_W, axis=0) if delta_W.ndim == 3 else delta_W
        if demo_updates == "frozen":
            return delta_W, S
        half = S + delta_W @ S
        return delta_W, half + half @ delta_W.T

    if method == "gram":
        return telescope(stack, H.T @ H, from_gram, emit)
    return telescope(stack, H, from_tokens, emit)


def factor_recursion(learner: Learner, H):
    """Runs Theorem 1 in thin factors V_t of both, and U_t of dW_t and C_t of G_t.

    C_t = U_t + sum over s < t of (U_t V_s^T) C_s, at cost O(L N n^2 + L^2 N^2 n).
    """
    stack, demo_updates, scale = learner
    layers = stack.num_layers
    rows = num_heads(stack) * H.shape[0]
    empty = jnp.zeros((layers, rows, H.shape[1]), H.dtype)

    def flat(buffer):
        return buffer.reshape(-1, buffer.shape[-1])

    def step(carry, inputs):
        H, left, right_G = carry
        t, layer = inputs
        V, U = demo_factors(layer, H, scale)
        C = U + (U @ flat(left).T) @ flat(right_G)  # rows not yet written are 0
        left, right_G = left.at[t].set(V), right_G.at[t].set(C)
        return (move_demos(demo_updates, H, V, U), left, right_G), U

    inputs = jnp.arange(layers), stack
    (_, left, right_G), right = jax.lax.scan(step, (H, empty, empty), inputs)
    return left, right, right_G


def token_recursion(learner: Learner, H):
    """Runs Theorem 1 on tokens; tokens, V, U, C and B of each layer, C = tokens B."""
    stack, demo_updates, scale = learner
    one = jnp.eye(H.shape[1], dtype=H.dtype)

    def step(carry, layer):
        H, P = carry
        parts = gradient_parts(layer, H, P, scale)
        V, U, C, _ = parts
        return (move_demos(demo_updates, H, V, U), P + V.T @ C), (H, *parts)

    return jax.lax.scan(step, (H, one), stack)[1]


def parts_on_path(learner: Learner, H, W):
    """Parts of each g_i at given weights W_{t-1}."""
    stack, demo_updates, scale = learner
    one = jnp.eye(H.shape[1], dtype=H.dtype)

    def one_layer(layer, W):
        tokens = H if demo_updates == "frozen" else H + H @ W.T
        return tokens, *gradient_parts(layer, tokens, one + W, scale)

    return jax.vmap(one_layer)(stack, W)


def gradient_parts(layer, H, P, scale):
    """V, U and C = U P of one layer, and B = W_K^T W_Q P."""
    V, U = demo_factors(layer, H, scale)
    return V, U, U @ P, jnp.swapaxes(layer.W_K, -1, -2) @ (layer.W_Q @ P)
