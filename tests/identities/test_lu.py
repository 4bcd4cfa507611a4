"""Lu et al. (2025): the error of pretraining in high dimension, against simulation."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, LinearStep
from icltheory.regression.pretraining import (
    high_dimensional_limit,
    shifted_tasks_limit,
)

RIDGES = np.geomspace(1e-2, 1e2, 41)


def errors(*given, **more):
    found = high_dimensional_limit(*map(float, given), **more)
    return np.array([found.icl, found.in_distribution])


# --- the published forms without ridge


def published(alpha, kappa, tau, rho):
    """ICL and IDG of Lu et al., whose two cases are written out."""
    q = (1 + rho) / alpha

    def M(kappa):
        b = q + 1 - 1 / kappa
        root = np.sqrt(b**2 + 4 * q / kappa)
        m = 2 / (b + root)
        return m, -(m**2) / 2 * (1 + (q + 1 + 1 / kappa) / root)

    if tau > 1:
        m, slope = M(kappa)
        noise = rho + q - q**2 * m
        first = 1 - 2 * q * m - q**2 * slope + m * noise / (tau - 1)
        return (1 + q) * first - 2 * (1 - q * m) + 1 + rho, tau * noise / (tau - 1)
    m, (mu, _) = M(kappa)[0], M(kappa / tau)
    mu = q * mu
    size = 1 - tau * (1 - mu) ** 2 + mu * (rho / q - 1)
    icl = tau * (1 + q) / (1 - tau) * size - 2 * tau * (1 - mu) + 1 + rho
    xi = (1 - tau) * q / (tau * mu)
    c = 1 / (1 - kappa / (1 + kappa * xi / (1 - tau)) ** 2)
    rest = (rho + q - 2 * q * (1 - tau) * (q / xi + 1)) / (1 - tau - c * (1 - tau) ** 2)
    return icl, tau * ((q + xi) ** 2 / xi + rest)


@pytest.mark.statement("Lu: error on new tasks")
@pytest.mark.statement("Lu: error on the tasks of pretraining")
@pytest.mark.parametrize(
    "given", [(1.3, 0.7, 0.3, 0.1), (3, 1, 1.7, 0.5), (0.7, 4, 0.9, 0.05)]
)
def test_without_ridge_it_is_the_published_form(given, measured):
    measured("relative error", errors(*given) / published(*given) - 1, below=1e-12)


# --- with ridge, by the law of Marchenko and Pastur


def by_spectrum(alpha, kappa, tau, rho, ridge):
    """Solves for the ridge xi with the spectrum of the tasks, and sums over it."""
    theta = (np.arange(20_000) + 0.5) * np.pi / 20_000
    x = 1 + 1 / kappa + 2 / np.sqrt(kappa) * np.cos(theta)
    weights = 2 * np.sin(theta) ** 2 / x / len(theta)
    x, weights = np.append(x, 0), np.append(weights, max(1 - kappa, 0))
    assert weights.sum() == pytest.approx(1, abs=1e-8)

    def mean(values):
        return np.sum(weights * values)

    sigma = (1 + rho) / alpha
    s = x + sigma  # the spectrum of the second moments of the features
    xi = brentq(
        lambda xi: tau * (1 - ridge / xi) - mean(s / (s + xi)), ridge, 1e3, xtol=1e-14
    )
    step = x / (s + xi)  # the mean of the fitted Gamma
    own = rho + mean(x - 2 * x * step + step**2 * s)
    own = own / (1 - mean((s / (s + xi)) ** 2) / tau)
    new = 1 - 2 * step + (1 + sigma) * (step**2 + own / tau * s / (s + xi) ** 2)
    return rho + mean(new), own


@pytest.mark.statement("Lu: error on new tasks")
@pytest.mark.statement("Lu: error on the tasks of pretraining")
@pytest.mark.parametrize(
    "given",
    [(1.5, 0.8, 2.5, 0.5, 0.1), (3, 3, 0.6, 0.1, 0.3), (0.5, 1.2, 1.0, 0.3, 1e-3)],
)
def test_with_ridge_it_is_that_of_the_spectrum(given, measured):
    found, exact = errors(*given[:-1], ridge=given[-1]), by_spectrum(*given)
    measured("relative error", found / exact - 1, below=1e-12)


@pytest.mark.statement("Lu: double descent")
def test_errors_grow_without_bound_where_prompts_are_as_many_as_weights(measured):
    for alpha, kappa, rho in ((1.2, 0.6, 0.4), (3.0, 2.5, 0.1), (0.7, 9.0, 0.2)):
        assert np.all(errors(alpha, kappa, 1, rho) == np.inf)
        for side in (-1, 1):
            near, nearer = (
                errors(alpha, kappa, 1 + side * e, rho) for e in (1e-4, 1e-5)
            )
            measured("change of error |tau - 1|", np.abs(nearer / near / 10 - 1).max())
            assert nearer == pytest.approx(10 * near, rel=1e-2)
        # The best ridge removes the peak.
        best = [
            min(errors(alpha, kappa, tau, rho, ridge=r)[1] for r in RIDGES)
            for tau in (0.5, 0.9, 1, 1.1, 2)
        ]
        assert np.all(np.diff(best) < 0)


@pytest.mark.statement("Lu: transition in the number of tasks")
def test_new_tasks_are_solved_beyond_the_dimension_of_the_tasks(measured):
    for kappa, rho in ((0.3, 0.1), (0.8, 0.4), (1.5, 0.2), (5.0, 0.0)):
        icl, own = errors(1e7, kappa, math.inf, rho)
        measured("distance to the limit", abs(icl - rho - max(1 - kappa, 0)))
        assert icl == pytest.approx(rho + max(1 - kappa, 0), abs=1e-5)
        assert own == pytest.approx(rho, abs=1e-5)


# --- simulation


def fitted(rng, d, alpha, kappa, tau, rho, R, ridge):
    """Gamma fitted to prompts of x ~ N(0, I / d), and the tasks' second moments."""
    n, N, k = round(tau * d * d), round(alpha * d), round(kappa * d)
    tasks = rng.normal(size=(k, d)) * np.sqrt(R)
    w, h = tasks[np.arange(n) % k], np.empty((n, d))
    for s in range(0, n, 500):
        X = rng.normal(size=(len(w[s : s + 500]), N, d)) / np.sqrt(d)
        y = np.einsum("tnd,td->tn", X, w[s : s + 500])
        y += np.sqrt(rho) * rng.normal(size=y.shape)
        h[s : s + 500] = np.einsum("tnd,tn->td", X, y) * d / N
    x = rng.normal(size=(n, d)) / np.sqrt(d)
    y = np.sum(x * w, 1) + np.sqrt(rho) * rng.normal(size=n)
    if tau > 1:
        F = (x[:, :, None] * h[:, None]).reshape(n, -1)
        A = F.T @ F + ridge * n / d * np.eye(d * d)
        return np.linalg.solve(A, F.T @ y).reshape(d, d) * d, tasks.T @ tasks / k
    A = (x @ x.T) * (h @ h.T) + ridge * n / d * np.eye(n)
    a = np.linalg.solve(A, y)
    return np.einsum("t,ti,tj->ij", a, x, h) * d, tasks.T @ tasks / k


exact_risk = jax.jit(
    lambda Gamma, M, N, rho: reg.risk(
        LinearStep(Gamma),
        LinearPopulation(jnp.eye(len(M)) / len(M), 0 * M[0], M, rho),
        N,
    )
)


def simulated(rng, d, fits, given, R, test):
    """Mean errors of fits and their standard errors; each fit's risk is exact."""
    found = []
    for _ in range(fits):
        Gamma, M = fitted(rng, d, *given[:4], R, given[4])
        N = round(given[0] * d)
        risks = [exact_risk(Gamma, S, N, given[3]) for S in (np.diag(test), M)]
        found.append(risks)
    found = np.array(found)
    return found.mean(0), found.std(0, ddof=1) / np.sqrt(fits)


@pytest.mark.statement("Lu: error on new tasks")
@pytest.mark.statement("Lu: error on the tasks of pretraining")
@pytest.mark.statement("Letey: alignment of tasks")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "is_shifted"),
    [
        ((1.5, 0.8, 2.5, 0.5, 0.1), False),
        ((3, 3, 0.6, 0.1, 0.3), False),
        ((2, 1.5, 3, 0.25, 0.0), True),
        ((1.5, 0.6, 0.5, 0.4, 0.0), True),
        ((2, 1, 2, 0.2, 0.1), True),
    ],
)
def test_simulation_approaches_the_limit_like_1_over_d(given, is_shifted, measured):
    rng, found = np.random.default_rng(1), {}
    for d, fits in ((20, 40), (40, 12)):
        R = np.where(np.arange(d) % 2, 1.6, 0.4) if is_shifted else np.ones(d)
        test = np.where(np.arange(d) % 2, 0.5, 2.0) if is_shifted else R
        found[d] = simulated(rng, d, fits, given, R, test)
    (small, error), (large, other) = found[20], found[40]
    matrices = np.diag(R[:2]), np.diag(test[:2])
    limits = shifted_tasks_limit(*map(float, given[:4]), *matrices, ridge=given[4])
    exact = np.array([limits.icl, limits.in_distribution])
    # The term of order 1/d cancels in 2 R(40) - R(20).
    z = (2 * large - small - exact) / np.sqrt(4 * other**2 + error**2)
    measured("largest z", z, below=3)
    assert np.all(np.abs(large / exact - 1) < 0.12)


@pytest.mark.statement("Letey: alignment of tasks")
def test_more_tasks_can_harm_where_the_test_tasks_are_others(measured):
    values = 1000 ** -np.linspace(0, 1, 40)
    R = np.diag(values / values.mean())
    for tau, test, harms in ((4.0, R[::-1, ::-1], True), (4.0, R, False)):
        few, many = (
            shifted_tasks_limit(2.0, k, tau, 0.25, R, test).icl for k in (0.2, 4.0)
        )
        measured("error of few tasks / of many", few / many)
        assert (many > few) == harms


@pytest.mark.statement("Letey: alignment of tasks")
@pytest.mark.parametrize("tau", [0.7, pytest.param(3.0, marks=pytest.mark.slow)])
def test_resolvent_of_sampled_tasks_is_that_of_its_equivalent(tau, measured):
    """Errors with the tasks of one draw in place of the equivalent, by matrices."""
    alpha, kappa, rho, ridge = 1.7, 0.7, 0.3, 0.2
    rng, found = np.random.default_rng(0), []
    for d in (40, 80):
        R = np.where(np.arange(d) % 2, 1.6, 0.4)
        test = np.where(np.arange(d) % 2, 0.5, 2.0)
        drawn = functools.partial(of_tasks, rng, R, test, alpha, kappa, tau, rho)
        runs = np.array([drawn(ridge) for _ in range(10)])
        found.append((runs.mean(0), runs.std(0, ddof=1) / np.sqrt(len(runs))))
    (small, error), (large, other) = found
    limits = shifted_tasks_limit(
        alpha, kappa, tau, rho, np.diag(R[:2]), np.diag(test[:2]), ridge=ridge
    )
    exact = np.array([limits.icl, limits.in_distribution])
    z = (2 * large - small - exact) / np.sqrt(4 * other**2 + error**2)
    measured("largest z", z, below=4)
    assert large == pytest.approx(exact, rel=0.04)


def of_tasks(rng, R, test, alpha, kappa, tau, rho, ridge):
    """ICL and IDG from the matrix of k sampled tasks."""
    d, k = len(R), round(kappa * len(R))
    tasks = rng.normal(size=(k, d)) * np.sqrt(R)
    F = tasks.T @ tasks / k
    S = F + (np.trace(F) / d + rho) / alpha * np.eye(d)
    values, V = np.linalg.eigh(S)
    xi = brentq(
        lambda xi: tau * (1 - ridge / xi) - np.mean(values / (values + xi)), ridge, 1e3
    )
    G = V / (values + xi) @ V.T
    Gamma = F @ G
    own = rho + np.trace(F - 2 * F @ Gamma + Gamma @ S @ Gamma.T) / d
    own /= 1 - np.mean((values / (values + xi)) ** 2) / tau
    of_test = test + (test.mean() + rho) / alpha
    quadratic = np.diag(Gamma.T @ Gamma) + own / tau * np.diag(S @ G @ G)
    new = rho + np.mean(test - 2 * test * np.diag(Gamma) + of_test * quadratic)
    return new, own
