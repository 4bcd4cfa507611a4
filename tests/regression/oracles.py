"""Independent oracles of ``regression``: NumPy float64, from the definitions.

Nothing here imports the library. Predictors take one prompt and one query; the tests
call them prefix by prefix.
"""

import numpy as np


def each_prefix(predict, X, y, X_query):
    """predict(X[:k], y[:k], X_query[k]) for every k of every prompt of a batch."""
    return np.array(
        [
            [predict(Xb[:k], yb[:k], Qb[k]) for k in range(len(yb))]
            for Xb, yb, Qb in zip(X, y, X_query, strict=True)
        ]
    )


def ols(X, y, x):
    if len(y) == 0:
        return 0.0
    return float(np.linalg.lstsq(X, y, rcond=None)[0] @ x)


def ridge(X, y, x, penalty):
    d = len(x)
    gram, moment = penalty * np.eye(d), np.zeros(d)
    for xi, yi in zip(X, y, strict=True):
        gram += np.outer(xi, xi)
        moment += yi * xi
    return float(np.linalg.solve(gram, moment) @ x)


def bayes(X, y, x, mean, cov, noise_var):
    """Conditioning of the joint Gaussian of (labels, <w, x>)."""
    label_cov = X @ cov @ X.T + noise_var * np.eye(len(y))
    gain = np.linalg.solve(label_cov, X @ cov @ x) if len(y) else np.zeros(0)
    return float(mean @ x + gain @ (y - X @ mean))


def averaging(X, y, x):
    total = 0.0
    for xi, yi in zip(X, y, strict=True):
        total += yi * sum(a * b for a, b in zip(xi, x, strict=True)) / len(y)
    return total


def nearest_neighbors(X, y, x, k):
    distances = [sum((a - b) ** 2 for a, b in zip(xi, x, strict=True)) for xi in X]
    nearest = sorted(range(len(y)), key=lambda i: distances[i])[:k]
    return float(np.mean([y[i] for i in nearest])) if nearest else 0.0


def gradient_descent(X, y, x, step_sizes, preconditioner):
    w = np.zeros(len(x))
    for eta in step_sizes:
        gradient = np.zeros(len(x))
        for xi, yi in zip(X, y, strict=True):
            gradient += (w @ xi - yi) * xi / len(y)
        w = w - eta * preconditioner @ gradient
    return float(w @ x)


def newton(X, y, x, steps, scale):
    if len(y) == 0:
        return 0.0
    S = X.T @ X
    M = scale * S / np.linalg.norm(S @ S.T)
    for _ in range(steps):
        M = 2 * M - M @ S @ M
    return float(M @ X.T @ y @ x)


def discrete_mmse(X, y, x, pool, noise_var):
    fits = [
        -sum((yi - w @ xi) ** 2 for xi, yi in zip(X, y, strict=True)) / (2 * noise_var)
        for w in pool
    ]
    weights = np.exp(np.array(fits) - max(fits))
    return float(
        sum(p * (w @ x) for p, w in zip(weights, pool, strict=True)) / weights.sum()
    )


def lasso_violation(X, y, w, penalty):
    """Distance of the gradient of |Xw - y|^2 / (2N) from -penalty * subdifferential."""
    force = X.T @ (y - X @ w) / len(y)
    worst = 0.0
    for f, wj in zip(force, w, strict=True):
        gap = abs(f - penalty * np.sign(wj)) if wj else max(abs(f) - penalty, 0.0)
        worst = max(worst, gap)
    return worst


def relu_network(W1, W2, x):
    hidden = len(W2)
    total = 0.0
    for j in range(hidden):
        total += W2[j] * max(sum(W1[i, j] * x[i] for i in range(len(x))), 0.0)
    return total * np.sqrt(2 / hidden)


def decision_tree(coordinates, values, x):
    node, inner = 0, len(coordinates)
    while node < inner:
        node = 2 * node + 1 + int(x[coordinates[node]] > 0)
    return values[node - inner]


def orthogonal_query(earlier, x):
    """Input less its projection on the earlier rows, at its own length."""
    if len(earlier) == 0:
        return x
    rest = x - np.linalg.pinv(earlier) @ (earlier @ x)
    return rest * np.linalg.norm(x) / np.linalg.norm(rest)


def ridge_risk_given(X, penalty, H, mean, Psi, noise_var):
    """E over weight and noise of the squared error, by expanding it in them."""
    d = len(mean)
    inverse = np.linalg.inv(X.T @ X + penalty * np.eye(d))
    from_w = inverse @ X.T @ X - np.eye(d)
    from_noise = inverse @ X.T
    second = Psi + np.outer(mean, mean)
    bias = np.trace(H @ from_w @ second @ from_w.T)
    return bias + noise_var * np.trace(H @ from_noise @ from_noise.T)
