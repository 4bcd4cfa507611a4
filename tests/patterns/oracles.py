"""NumPy loops of the two models, written from their sums; nothing of the library."""

import numpy as np


def relu(v):
    return np.maximum(v, 0)


def weights(W_K, W_Q, contexts, token):
    """Softmax over the contexts of (W_K p_i)' W_Q p."""
    logits = np.array([(W_K @ p) @ (W_Q @ token) for p in contexts])
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def one_layer(params, P, p_query):
    """Equation (7), and its attention."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    attn = weights(p["W_K"], p["W_Q"], P, p_query)
    pooled = np.zeros(P.shape[1])
    for w, token in zip(attn, P, strict=True):
        pooled += w * (p["W_V"] @ token)
    F = 0.0
    for a, row in zip(p["a"], p["W_O"], strict=True):
        F += a * max(row @ pooled, 0.0)
    return F, attn


def many_layers(params, P, p_query):
    """Residual attention of all tokens to the contexts, then a ReLU network."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    tokens, seen = [*P, p_query], []
    for layer in range(len(p["W_O"])):
        V, K, Q, O, U = (p[n][layer] for n in ("W_V", "W_K", "W_Q", "W_O", "W_U"))
        contexts, mixed = tokens[:-1], []
        for token in tokens:
            attn = weights(K, Q, contexts, token)
            total = sum(w * (V @ c) for w, c in zip(attn, contexts, strict=True))
            mixed.append(token + total)
        seen.append(attn)  # that of the query, the last one
        tokens = [token + U @ relu(O @ token) for token in mixed]
    return p["w"] @ tokens[-1], seen
