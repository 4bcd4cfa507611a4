"""Recurrent learners by float64 NumPy loops, which share no code with the library."""

import numpy as np


def delta_rule(X, y, Q, step_size, gate=1.0):
    """Answers before each example: W <- g W + b x (y - g <x, W>)."""
    w, found = np.zeros(X.shape[1]), []
    for i in range(len(y)):
        found.append(Q[i] @ w)
        w = gate * w
        if i < len(y) - 1:
            w = w + _at(step_size, i) * X[i] * (y[i] - X[i] @ w)
    return np.array(found)


def gated_linear_attention(X, y, Q, step_size, gate=1.0):
    """Sums over the examples before each, every one weighted by its age."""
    found = []
    for k in range(len(y)):
        terms = (
            _at(step_size, i) * gate ** (k - 1 - i) * y[i] * (X[i] @ Q[k])
            for i in range(k)
        )
        found.append(sum(terms, 0.0))
    return np.array(found)


def mesa(X, y, Q, penalty, forgetting):
    """Ridge regression on the examples before each, weighted by their age."""
    found = []
    for k in range(len(y)):
        H, G = penalty * np.eye(X.shape[1]), np.zeros(X.shape[1])
        for i in range(k):
            weight = forgetting ** (k - 1 - i)
            H, G = H + weight * np.outer(X[i], X[i]), G + weight * y[i] * X[i]
        found.append(Q[k] @ np.linalg.solve(H, G))
    return np.array(found)


def _at(step_size, i):
    return step_size if np.ndim(step_size) == 0 else step_size[i]


def fourth(H, A):
    """E x x' A x x' for x ~ N(0, H), by Isserlis' theorem with indices written out."""
    d = len(H)
    found = np.zeros((d, d))
    for i in range(d):
        for j in range(d):
            for k in range(d):
                for l in range(d):
                    pairs = H[i, k] * H[l, j] + H[i, l] * H[k, j] + H[i, j] * H[k, l]
                    found[i, j] += A[k, l] * pairs
    return found


def risk(H, mean, Psi, noise_var, a, step_size, gate, N, delta=True):
    """Risk by whole second moments of (W, w - mean, 1), with the query's noise.

    For linear attention the example's error is not subtracted.
    """
    d = len(mean)
    M = np.zeros((2 * d + 1, 2 * d + 1))
    M[d:-1, d:-1], M[-1, -1] = Psi, 1
    eye, zero = np.eye(d), np.zeros((d, d))
    for t in range(N):
        if t:
            M = _drifted(M, a, Psi, d)
        beta = _at(step_size, t)
        # The label is <x, B z> + noise.
        B = np.hstack([-delta * gate * eye, eye, mean[:, None]])
        grown = np.vstack(
            [
                np.hstack([gate * eye, zero, np.zeros((d, 1))]) + beta * H @ B,
                np.eye(2 * d + 1)[d:],
            ]
        )
        new = grown @ M @ grown.T
        # The mean of the square is not the square of the mean.
        inner = B @ M @ B.T
        new[:d, :d] += beta**2 * (fourth(H, inner) - H @ inner @ H + noise_var * H)
        M = new
    M = _drifted(M, a, Psi, d) if N else M
    C = np.hstack([-eye, eye, mean[:, None]])
    return np.trace(H @ C @ M @ C.T) + noise_var


def _drifted(M, a, Psi, d):
    D = np.diag(np.concatenate([np.ones(d), np.full(d, a), [1]]))
    M = D @ M @ D
    M[d:-1, d:-1] += (1 - a**2) * Psi
    return M


def kalman(X, y, mean, Psi, noise_var, a):
    """Means of the task at each point given the labels before: the joint Gaussian."""
    means, covs = [], []
    for k in range(len(y)):
        R = a ** np.abs(np.subtract.outer(np.arange(k + 1), np.arange(k + 1)))
        K = R[:k, :k] * (X[:k] @ Psi @ X[:k].T) + noise_var * np.eye(k)
        C = R[k, :k][:, None] * (X[:k] @ Psi)
        gain = np.linalg.solve(K, C).T if k else np.zeros((len(mean), 0))
        means.append(mean + gain @ (y[:k] - X[:k] @ mean))
        covs.append(Psi - gain @ C)
    return np.array(means), np.array(covs)
