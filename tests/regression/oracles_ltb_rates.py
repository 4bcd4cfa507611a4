"""Independent oracles of the Bayes risk and the rates: NumPy and SciPy, float64.

Nothing here imports the library. Expectations over Gaussians are exact: by products of
Gauss-Hermite rules, which integrate polynomials without error, or by Isserlis' theorem
written index by index.
"""

import itertools

import numpy as np
from scipy.integrate import quad
from scipy.stats import chi2

from tests.oracles import gaussian_grid
from tests.oracles_ltb import random_covariance as random_cov  # noqa: F401
from tests.oracles_ltb import root

# --- integrals


def chi_square_average(phi, noise_var, num_examples):
    """E of phi s^2 / (s^2 + phi c) over c of a chi-square law: Bayes for d = 1."""

    def integrand(c):
        return phi * noise_var / (noise_var + phi * c) * chi2.pdf(c, num_examples)

    return quad(integrand, 0, np.inf, epsabs=1e-14, epsrel=1e-12)[0]


def prompt_grid(num_examples, H, Psi, mean, noise_var, degrees=(3, 3, 2, 3, 2)):
    """All prompts of a tensor grid: X, y, x, y_query and their weights.

    ``degrees`` are the nodes of a coordinate of X, of w, of the noise, of x and of the
    noise of the query.
    """
    d, M = len(mean), num_examples
    sizes = (M * d, d, M, d, 1)
    nodes, weights = gaussian_grid(
        [k for k, size in zip(degrees, sizes, strict=True) for _ in range(size)]
    )
    Z, w, noise, x, last = np.split(nodes, np.cumsum(sizes)[:-1], axis=1)
    X = Z.reshape(-1, M, d) @ root(H)
    w = np.asarray(mean)[None] + w @ root(Psi)
    x = x @ root(H)
    y = np.einsum("nmd,nd->nm", X, w) + np.sqrt(noise_var) * noise
    y_query = np.einsum("nd,nd->n", x, w) + np.sqrt(noise_var) * last[:, 0]
    return X, y, x, y_query, weights


# --- Bayes


def posterior_mean(X, y, mean, Psi, noise_var):
    """Conditioning of the joint Gaussian of weight and labels."""
    d = len(mean)
    to_labels = np.vstack([np.eye(d), X])
    joint = to_labels @ Psi @ to_labels.T
    joint[d:, d:] += noise_var * np.eye(len(y))
    return mean + joint[:d, d:] @ np.linalg.inv(joint[d:, d:]) @ (y - X @ mean)


def best_gain(X, Psi, noise_var):
    """The matrix K of the estimate K y for mean 0."""
    columns = np.eye(len(X))
    zero = np.zeros(len(Psi))
    return np.array([posterior_mean(X, e, zero, Psi, noise_var) for e in columns]).T


def linear_estimate_risk(K, X, H, Psi, noise_var):
    """E over weight, noise and query of (<K y, x> - y_query)^2 for mean 0."""
    miss = K @ X - np.eye(len(H))
    error = miss @ Psi @ miss.T + noise_var * K @ K.T
    return noise_var + sum(
        H[i, j] * error[i, j] for i in range(len(H)) for j in range(len(H))
    )


# --- one step of gradient descent from zero


def empirical_product_moment(H, num_examples):
    """E S_ab S_cd of S = X'X / N, from Isserlis' theorem for one example."""
    d, N = len(H), num_examples
    moment = np.zeros((d, d, d, d))
    for a, b, c, e in itertools.product(range(d), repeat=4):
        same = H[a, b] * H[c, e] + H[a, c] * H[b, e] + H[a, e] * H[b, c]
        moment[a, b, c, e] = (N * same + N * (N - 1) * H[a, b] * H[c, e]) / N**2
    return moment


def one_step_risk(Gamma, H, second_moment, noise_var, num_examples):
    """Risk of <Gamma X'y / N, x> for weights with E ww' = second_moment."""
    moment = empirical_product_moment(H, num_examples)
    inner = Gamma.T @ H @ Gamma
    square = np.einsum("ac,abcd,bd->", inner, moment, second_moment)
    cross = np.trace(H @ Gamma @ H @ second_moment)
    noise = noise_var / num_examples * np.trace(inner @ H)
    return noise_var + np.trace(H @ second_moment) - 2 * cross + square + noise


def feature_second_moment(H, second_moment, noise_var, num_examples):
    """E hh' of h = X'y / N."""
    moment = empirical_product_moment(H, num_examples)
    return (
        np.einsum("abcd,bd->ac", moment, second_moment) + noise_var / num_examples * H
    )


# --- trained linear attention


def gain(Lam, N):
    return (1 + 1 / N) * Lam + np.trace(Lam) / N * np.eye(len(Lam))


def attention_prediction(W_PV, W_KQ, X, y, x, masked):
    """Last entry of E + W_PV E M E' W_KQ E / N, for each prompt of a batch."""
    n, N, d = X.shape
    E = np.zeros((n, d + 1, N + 1))
    E[:, :d, :N], E[:, :d, N], E[:, d, :N] = X.transpose(0, 2, 1), x, y
    mask = np.ones(N + 1)
    mask[N] = not masked
    gram = np.einsum("nai,i,nbi->nab", E, mask, E)
    scores = np.einsum("nab,bc,nc->na", gram, W_KQ, E[:, :, N])
    return E[:, d, N] + scores @ W_PV[d] / N


def flow_speed(U, u, Lam, N):
    """Minus the gradient of the risk in U and u, w ~ N(0, I), no noise."""
    G = gain(Lam, N)
    dU = u * Lam @ Lam - u**2 * G @ Lam @ U @ Lam
    du = np.trace(Lam @ Lam @ U.T - u * G @ Lam @ U @ Lam @ U.T)
    return 2 * dU, 2 * du
