"""Independent oracles: NumPy float64 loops written from the sum notation.

Nothing here imports the library. Tokens are rows, weights are (out, in), as there; all
else is spelled out one scalar product at a time and is meant to be read beside the
paper, not to be fast.
"""

import numpy as np

# --- Attention: equations (1) to (3), Appendix B.3


KERNELS = {
    "linear": lambda x, z: x @ z,
    "relu": lambda x, z: max(x @ z, 0.0),
    "exp": lambda x, z: np.exp(x @ z),
    "rbf": lambda x, z: np.exp(-((x - z) ** 2).sum() / 2),
}
MASK_OF = {"shared": "demos", "causal": "causal"}  # of the demonstrations' updates


def attends(mask, i, j, N):
    """Whether token i may attend to token j; N is the query."""
    if mask == "none":
        return True
    if j == N:
        return False
    return mask == "demos" or i == N or j <= i


def linear_sum(W_V, W_K, W_Q, tokens, i, mask):
    N = len(tokens) - 1
    total = np.zeros(W_V.shape[0])
    for j in range(N + 1):
        if attends(mask, i, j, N):
            total += (W_V @ tokens[j]) * ((W_K @ tokens[j]) @ (W_Q @ tokens[i]))
    return total


def linear_layer(W_V, W_K, W_Q, tokens, mask, scale=1.0):
    return np.array(
        [
            tokens[i] + scale * linear_sum(W_V, W_K, W_Q, tokens, i, mask)
            for i in range(len(tokens))
        ]
    )


def softmax_layer(W_V, W_K, W_Q, tokens, mask, d_scale, scale=1.0):
    """M stands outside the softmax; causal demonstrations normalise over j <= i."""
    N, out = len(tokens) - 1, []
    for i in range(N + 1):
        counted = [j for j in range(N + 1) if not (mask == "causal" and j > i)]
        u = {
            j: np.exp((W_K @ tokens[j]) @ (W_Q @ tokens[i]) / np.sqrt(d_scale))
            for j in counted
        }
        total = np.zeros(len(tokens[i]))
        for j in counted:
            if attends(mask, i, j, N):
                total += u[j] / sum(u.values()) * (W_V @ tokens[j])
        out.append(tokens[i] + scale * total)
    return np.array(out)


def mlp_layer(W_V, W_K, W_Q, W_in, W_out, tokens, mask, mlp, scale=1.0):
    out = []
    for i in range(len(tokens)):
        u = W_in @ (scale * linear_sum(W_V, W_K, W_Q, tokens, i, mask))
        u = {"gated": np.maximum(u, 0), "linear": u, "half": u / 2}[mlp]
        out.append(tokens[i] + W_out @ u)
    return np.array(out)


def run_stack(layer, weights, H, h_query):
    """Tokens at every depth; ``layer(*weights_t, tokens)``."""
    depths = [np.concatenate([H, h_query[None]])]
    for t in range(len(weights[0])):
        depths.append(layer(*(W[t] for W in weights), depths[-1]))
    depths = np.array(depths)
    return depths[:, :-1], depths[:, -1]


# --- Lemma 1 and Theorem 1


def implicit_update(W_V, W_K, W_Q, H, scale=1.0):
    total = np.zeros((W_V.shape[0], W_K.shape[0]))
    for h in H:
        total += np.outer(W_V @ h, W_K @ h)
    return scale * total @ W_Q


def trajectory(W_V, W_K, W_Q, H, demo_updates="shared", scale=1.0):
    """Delta W_t, G_t, W_t, with the demonstrations moved one by one."""
    n = H.shape[1]
    W, delta_Ws, Gs, Ws = np.zeros((n, n)), [], [], []
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        delta_W = implicit_update(V, K, Q, H, scale)
        G = delta_W @ (np.eye(n) + W)
        W = W + G
        delta_Ws.append(delta_W)
        Gs.append(G)
        Ws.append(W)
        if demo_updates != "frozen":
            tokens = np.concatenate([H, np.zeros((1, n))])
            H = linear_layer(V, K, Q, tokens, MASK_OF[demo_updates], scale)[:-1]
    return np.array(delta_Ws), np.array(Gs), np.array(Ws)


# --- Gradient descent on L(W) = c/2 sum_i |W x_i - y_i|^2


def regression_gradient(W, X, Y, c):
    total = np.zeros_like(W)
    for x, y in zip(X, Y, strict=True):
        total += np.outer(W @ x - y, x)
    return c * total


def gradient_descent(W, X, Y, preconditioners, c):
    """Weights before the first and after every step W <- W - grad L(W) A^T."""
    path = [W]
    for A in preconditioners:
        path.append(path[-1] - regression_gradient(path[-1], X, Y, c) @ A.T)
    return np.array(path)


def gd_plus_plus(X, Y, x_query, step_sizes, input_steps, c):
    """Predictions of GD++ at every depth, residuals and inputs moved by loops."""
    X, R, x, prediction = X.copy(), Y.copy(), x_query.copy(), np.zeros(Y.shape[1])
    out = [prediction]
    for eta, gamma in zip(step_sizes, input_steps, strict=True):
        step = np.zeros((Y.shape[1], X.shape[1]))
        S = np.zeros((X.shape[1], X.shape[1]))
        for x_i, r_i in zip(X, R, strict=True):
            step += eta * c * np.outer(r_i, x_i)
            S += c * np.outer(x_i, x_i)
        prediction = prediction + step @ x
        R = np.array([r - step @ x_i for r, x_i in zip(R, X, strict=True)])
        X = np.array([x_i - gamma * S @ x_i for x_i in X])
        x = x - gamma * S @ x
        out.append(prediction)
    return np.array(out)


# --- Matrices


def truncate(W, r):
    """The sum of the r largest terms s_i u_i v_i' of a matrix, or of each of many."""
    U, s, Vt = np.linalg.svd(np.asarray(W, np.float64), full_matrices=False)
    total = np.zeros(W.shape)
    for i in range(min(r, s.shape[-1])):
        total += s[..., i, None, None] * U[..., :, i, None] * Vt[..., i, None, :]
    return total


def relative(a, b):
    """|a - b| / |b|, in the Frobenius norm."""
    return np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.linalg.norm(b)


def z_score(draws, value):
    """Standard errors between the mean of independent draws and a value."""
    draws = np.asarray(draws)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return (draws.mean(axis=0) - np.asarray(value)) / error


def share_z(hits, share):
    """Standard errors between the share of independent hits and a probability."""
    return (np.mean(hits) - share) / np.sqrt(share * (1 - share) / np.size(hits))


# --- Random draws


def random_problem(L, N, n, seed=0, rho=0.1):
    """W_V, W_K, W_Q, H, h_query with the spectral norm of the first update at rho.

    The matrices 1 + W_t are polynomials of degree (3^t - 1) / 2 in H^T H, so draws of
    order one overflow after a few layers; rho = 0.1 keeps 24 layers at order one.
    """
    rng = np.random.default_rng(seed)
    W_V, W_K, W_Q = rng.normal(size=(3, L, n, n)) / np.sqrt(n)
    H, h_query = rng.normal(size=(N, n)), rng.normal(size=n)
    first = np.linalg.norm(implicit_update(W_V[0], W_K[0], W_Q[0], H), 2)
    return W_V * (rho / first if N else 1.0), W_K, W_Q, H, h_query


# --- The noise of the implicit gradient, section 3.3


def demonstration_gradients(W_V, W_K, W_Q, H, demo_updates="shared", scale=1.0):
    """g_i of every layer, one outer product at a time, ``(L, N, n, n)``."""
    n, W, out = H.shape[1], np.zeros((H.shape[1],) * 2), []
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        g = [scale * np.outer(V @ h, K @ h) @ Q @ (np.eye(n) + W) for h in H]
        out.append(g)
        W = W + sum(g)
        if demo_updates != "frozen":
            tokens = np.concatenate([H, np.zeros((1, n))])
            H = linear_layer(V, K, Q, tokens, MASK_OF[demo_updates], scale)[:-1]
    return np.array(out)


def noise_covariance(g, shots):
    """C_t from g_i, ``(N, n, n)``: the definition with z_i = N g_i."""
    N = len(g)
    z = [N * one.ravel() for one in g]
    G = sum(g).ravel()
    second = sum(np.outer(a, a) for a in z) / N
    return (N - shots) / (shots * (N - 1)) * (second - np.outer(G, G))


# --- The linear transformer block (Zhang-Wu-Bartlett): all matrices, exact expectations


def block_predictions(weights, X, y, x, mask="demos"):
    """[W_2'W_1 (E + W_P'W_V E Mask E'W_K'W_Q E / M)]_{-1,-1}, prompt by prompt.

    ``weights`` are (W_K, W_Q, W_P, W_V), an LSA, or these and (W_1, W_2), an LTB.
    """
    W_K, W_Q, W_P, W_V, *mlp = weights
    read = mlp[1].T @ mlp[0] if mlp else np.eye(W_K.shape[1])
    prompts, M, d = X.shape
    E = np.zeros((prompts, d + 1, M + 1))
    E[:, :d, :M], E[:, d, :M] = np.swapaxes(X, 1, 2), y
    E[:, :d, M] = x
    Mask = np.diag(np.append(np.ones(M), 0.0 if mask == "demos" else 1.0))
    scores = np.swapaxes(E, 1, 2) @ (W_K.T @ W_Q) @ E / M
    return (read @ (E + (W_P.T @ W_V) @ E @ Mask @ scores))[:, -1, -1]


def gradient_step_predictions(beta, Gamma, X, y, x):
    """<beta - Gamma sum_i (<beta, x_i> - y_i) x_i / M, x>, example by example."""
    step = np.zeros_like(x)
    for i in range(X.shape[1]):
        residual = X[:, i] @ beta - y[:, i]
        step += residual[:, None] * X[:, i] / X.shape[1]
    return np.sum((beta - step @ Gamma.T) * x, axis=1)


def covariance_factor(C):
    """F with C = FF' and as many columns as C has rank."""
    values, V = np.linalg.eigh(C)
    seen = values > 1e-12 * values[-1]
    return V[:, seen] * np.sqrt(values[seen])


def gaussian_grid(nodes):
    """Points and weights for standard normals; n nodes are exact to degree 2n - 1."""
    rules = [np.polynomial.hermite_e.hermegauss(n) for n in nodes]
    points = np.meshgrid(*(x for x, _ in rules), indexing="ij")
    weights = np.ones(1)
    for _, w in rules:
        weights = np.multiply.outer(weights, w / w.sum()).ravel()
    return np.stack([p.ravel() for p in points], axis=1), weights


def exact_risk(predict, H, mean, Psi, noise_var, M):
    """E (predict(X, y, x) - <w, x> - noise)^2, by a product rule over X, w, eps and x.

    Exact for predictions of degree 2 in every number of the examples and in w, and 1 in
    the query, as those of a masked linear transformer block are: squared errors have
    degree 4 and 2. The query's noise is independent of all else, and is added.
    """
    F, G, d = covariance_factor(H), covariance_factor(Psi), len(mean)
    noisy = M if noise_var else 0
    sizes = (M * F.shape[1], G.shape[1], noisy, F.shape[1])
    nodes = sum(([n] * k for n, k in zip((3, 3, 3, 2), sizes, strict=True)), [])
    points, weights = gaussian_grid(nodes)
    total = 0.0
    for part in np.array_split(np.arange(len(points)), 1 + len(points) // 100_000):
        z = np.split(points[part], np.cumsum(sizes)[:-1], axis=1)
        X = z[0].reshape(len(part), M, -1) @ F.T
        w = mean + z[1] @ G.T
        y = np.einsum("nmd,nd->nm", X, w)
        if noisy:
            y += np.sqrt(noise_var) * z[2]
        x = z[3] @ F.T
        assert X.shape == (len(part), M, d)
        error = predict(X, y, x) - np.sum(w * x, axis=1)
        total += weights[part] @ error**2
    return total + noise_var
