"""Chain of thought in NumPy float64 loops, from the formulas; shares no code."""

import numpy as np


def transitions(steps):
    """B, stepwise path, its probability, and the best path of all, by enumeration."""
    steps = [np.asarray(A, float) for A in steps]
    K, M = len(steps), len(steps[0])
    B, correct, shares, best = np.zeros((M, M)), [], [], []
    for i in range(M):
        state, path, share = i, [i], 1.0
        for A in steps:
            nxt = max(range(M), key=lambda j, A=A, s=state: (A[s, j], -j))
            share *= A[state, nxt]
            state = nxt
            path.append(state)
        correct.append(path)
        shares.append(share)
        largest = 0.0
        for code in range(M**K):
            states = [i] + [code // M**k % M for k in range(K)]
            p = np.prod([A[states[k], states[k + 1]] for k, A in enumerate(steps)])
            B[i, states[-1]] += p
            largest = max(largest, p)
        best.append(largest)
    return B, np.array(correct), np.array(shares), np.array(best)


def token(patterns, codes, x, y, step):
    zero = np.zeros(patterns.shape[1])
    halves = [zero if s is None else patterns[s] for s in (x, y)]
    return np.concatenate(halves) + codes[step]


def attend(model, tokens, query):
    W_V, W_K, W_Q = (np.asarray(getattr(model, f"W_{n}"), float) for n in "VKQ")
    logits = [np.dot(W_K @ t, W_Q @ query) for t in tokens]
    weights = np.exp(np.array(logits) - max(logits))
    weights /= weights.sum()
    return weights, sum(w * (W_V @ t) for w, t in zip(weights, tokens, strict=True))


def parts(prompt):
    letters = prompt.alphabet
    return np.asarray(letters.patterns, float), np.asarray(letters.codes, float)


def chain(model, prompt, shown):
    """Outputs of chain of thought, and the vector of its first step."""
    patterns, codes = parts(prompt)
    K, tokens = len(codes), []
    for i in range(shown):
        for k in range(K):
            x, y = int(prompt.states[i, k]), int(prompt.states[i, k + 1])
            tokens.append(token(patterns, codes, x, y, k))
    state, outputs, first = int(prompt.query_states[0]), [], None
    for k in range(K):
        _, F = attend(model, tokens, token(patterns, codes, state, None, k))
        first = F if first is None else first
        found = int(np.argmin([np.sum((F - u) ** 2) for u in patterns]))
        tokens.append(token(patterns, codes, state, found, k))
        outputs.append(found)
        state = found
    return outputs, first


def direct(model, prompt, shown):
    """The answer of plain in-context learning."""
    patterns, codes = parts(prompt)
    K, tokens = len(codes), []
    for i in range(shown):
        x, y = int(prompt.states[i, 0]), int(prompt.states[i, -1])
        tokens.append(token(patterns, codes, x, y, 0))
        tokens += [token(patterns, codes, None, None, k) for k in range(1, K)]
    start = int(prompt.query_states[0])
    _, F = attend(model, tokens, token(patterns, codes, start, None, 0))
    return int(np.argmin([np.sum((F - u) ** 2) for u in patterns]))
