"""Populations of the linear transformer block and its closed forms through roots of H.

NumPy float64; nothing here imports the library, which works without roots.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import minimize


class Population(NamedTuple):
    """x ~ N(0, H), w ~ N(mean, Psi), labels with noise."""

    H: np.ndarray
    mean: np.ndarray
    Psi: np.ndarray
    noise_var: float


def random_covariance(rng, dim, rank=None, decades=0.5):
    """Random axes, eigenvalues within so many decades of 1, the last ones 0."""
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    values = 10 ** rng.uniform(-decades, decades, size=dim)
    values[dim if rank is None else rank :] = 0
    C = axes @ np.diag(values) @ axes.T
    return (C + C.T) / 2


def random_population(rng, dim, rank_H=None, rank_Psi=None, noise_var=None):
    """Noise of 0.3 to 1.5 (standard deviation) unless it is given, mean of order 2."""
    drawn = rng.uniform(0.3, 1.5) ** 2
    return Population(
        random_covariance(rng, dim, rank_H),
        2 * rng.normal(size=dim),
        random_covariance(rng, dim, rank_Psi),
        drawn if noise_var is None else noise_var,
    )


def singular_population(rng, dim, least=1):
    """Ranks of H and Psi drawn too; those below ``dim`` are singular."""
    ranks = rng.integers(least, dim + 1, size=2)
    return random_population(rng, dim, *ranks)


def random_prompts(rng, population, M, count):
    """X, y and x_query of ``count`` prompts."""
    H, mean, Psi, noise_var = population
    d = len(mean)
    X = rng.normal(size=(count, M, d)) @ root(H)
    w = mean + rng.normal(size=(count, d)) @ root(Psi)
    noise = np.sqrt(noise_var) * rng.normal(size=(count, M))
    y = np.einsum("nmd,nd->nm", X, w) + noise
    return X, y, rng.normal(size=(count, d)) @ root(H)


def stacked(cases):
    """Tuples of arrays as one tuple of arrays with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *cases)


def in_chunks(function, cases, size):
    """A function of arrays over cases, so many at a time that it is compiled once."""
    filled = cases + cases[:1] * (-len(cases) % size)
    starts = range(0, len(filled), size)
    found = [function(*stacked(filled[k : k + size])) for k in starts]
    return jax.tree.map(lambda *a: np.concatenate(a)[: len(cases)], *found)


def _powers(C):
    values, V = np.linalg.eigh(C)
    seen = values > 1e-12 * values[-1]
    return np.where(seen, values, 0), np.where(seen, values, np.inf), V


def root(C):
    values, _, V = _powers(C)
    return V @ np.diag(np.sqrt(values)) @ V.T


def inverse_root(C):
    """Moore-Penrose."""
    _, values, V = _powers(C)
    return V @ np.diag(1 / np.sqrt(values)) @ V.T


def projector(C):
    """On the image."""
    _, values, V = _powers(C)
    return V @ np.diag(np.isfinite(values).astype(float)) @ V.T


class Whitened(NamedTuple):
    """Phi, tau, Omega, m and the roots of H they came from."""

    Phi: np.ndarray
    tau: float
    Omega: np.ndarray
    m: np.ndarray
    root: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, population, M):
        H, mean, Psi, noise_var = population
        R = root(H)
        Phi = R @ Psi @ R
        tau = np.trace(Phi) + noise_var
        Omega = (M + 1) / M * Phi + tau / M * np.eye(len(H))
        return cls(Phi, tau, Omega, R @ mean, R, inverse_root(H))


def best_preconditioner(population, M):
    """Psi H^{1/2} Omega^{-1} H^{-1/2}."""
    white = Whitened.of(population, M)
    return population.Psi @ white.root @ np.linalg.inv(white.Omega) @ white.inverse


def risk_slopes(beta, Gamma, population, M):
    """2 Q b, and 2 H Gamma [(M+1)/M H D H + (tr(HD) + sigma^2)/M H] - 2 H D H."""
    H, mean, Psi, noise_var = population
    b = beta - mean
    D, GH = Psi + np.outer(b, b), Gamma @ H
    Q = H - H @ GH - GH.T @ H + (M + 1) / M * GH.T @ H @ GH
    Q = Q + np.trace(Gamma.T @ H @ GH) / M * H
    spread = ((M + 1) * H @ D @ H + (np.trace(H @ D) + noise_var) * H) / M
    return 2 * Q @ b, 2 * (H @ Gamma @ spread - H @ D @ H)


def minimal_risks(population, M):
    """The three forms of the smallest risk of a GD-beta."""
    white, noise_var = Whitened.of(population, M), population.noise_var
    Phi, tau, d = white.Phi, white.tau, len(white.m)
    inverse = np.linalg.inv(white.Omega)
    phi = np.maximum(np.linalg.eigvalsh(Phi), 0)
    return (
        noise_var + np.trace(Phi) - np.trace(Phi @ Phi @ inverse),
        noise_var + np.trace(Phi @ (Phi + tau * np.eye(d)) @ inverse) / M,
        noise_var + np.sum(phi * (phi + tau) / ((M + 1) * phi + tau)),
    )


# --- The gap between the best LSA and the best LTB (Theorem 4.1)


def gap_lower_bounds(population, M):
    """2/(3M + 2), its form with kappa, 1/(M + 1), and with theta scanned over im(H)."""
    white = Whitened.of(population, M)
    tau, T, size = white.tau, np.sum(white.Phi**2), white.m @ white.m
    kappa = 2 * tau**2 / M + 2 * T
    image = covariance_image(population.H)
    phi = np.maximum(np.linalg.eigvalsh(image.T @ white.Phi @ image), 0)
    t = np.linspace(phi[0], phi[-1], 2001)
    theta = ((tau**2 - tau * t + t**2) / M + T / 2) / ((tau**2 + t**2) / M + T)
    return {
        "proof route": 2 * size / (3 * M + 2),
        "kappa": size * kappa / (tau**2 + (M + 1) * kappa),
        "universal": size / (M + 1),
        "instance": size / (1 + M * theta.max()),
    }


def covariance_image(C):
    """An orthonormal basis of the image."""
    _, values, V = _powers(C)
    return V[:, np.isfinite(values)]


def gap_upper_bounds(population, M):
    """Excesses of named LSAs, each by its formula."""
    white = Whitened.of(population, M)
    tau, T = white.tau, np.sum(white.Phi**2)
    kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * T
    phi, V = np.linalg.eigh(white.Phi)
    phi, m = np.maximum(phi, 0), V.T @ white.m
    omega = ((M + 1) * phi + tau) / M
    a = (phi / omega) ** 2
    second = population.Psi + np.outer(population.mean, population.mean)
    centred = population._replace(Psi=second, mean=0 * population.mean)
    return {
        "labels": m @ m * kappa / (tau**2 + kappa),
        "values": np.sum(m**2 * (a + a.sum()) / ((M + 1) * a + a.sum())),
        "rank one": 2 * (m @ m) / (M + 2) + np.sum(phi**2 / omega),
        "zero start": minimal_risks(centred, M)[2] - minimal_risks(population, M)[2],
    }


def lsa_residuals(z, white, M):
    """Blocks whose squares sum to the excess of an LSA at (q, A, g), v = 1."""
    d = len(white.m)
    q, g, A = z[:d], z[d : 2 * d], z[2 * d :].reshape(d, d)
    Phi, tau, Omega, m = white.Phi, white.tau, white.Omega, white.m
    a = A.T @ q
    step = root(Omega) @ (A + np.outer(q, g) - np.linalg.inv(Omega) @ Phi)
    tensor = np.einsum("ij,k->ijk", A, q) + 2 * np.einsum("ik,j->ijk", Phi, g)
    labels = np.sqrt(2 * tau**2 / M + 2 * np.sum(Phi**2)) * g
    blocks = (step, a + tau * g - m, labels, tensor / np.sqrt(M), a / np.sqrt(M))
    return np.concatenate([block.ravel() for block in blocks])


def lowest(value_and_gradient, starts, gtol=1e-9):
    """The ends of BFGS from the starts, the lowest one, and the share that reach it."""
    ends = [
        minimize(
            lambda z: [np.asarray(a) for a in value_and_gradient(z)],
            start,
            jac=True,
            method="BFGS",
            options={"gtol": gtol, "maxiter": 6000},
        )
        for start in starts
    ]
    best = min(ends, key=lambda end: end.fun)
    return ends, best, np.mean([end.fun < best.fun * (1 + 1e-6) for end in ends])
