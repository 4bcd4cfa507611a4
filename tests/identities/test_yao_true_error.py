"""The bounds against the true error of regression in context."""

import functools
import math

import jax
import numpy as np
import pytest

from icltheory import bounds
from icltheory.constructions import gradient_descent
from icltheory.noise import noisy_trajectory
from icltheory.trajectory import implicit_gd


def regression_prompts(reps, N, d):
    """H for y = b.x + 0.5 eps and fresh data, reps of each."""
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(2, reps, N, d)), 0.5
    b = np.ones(d) / math.sqrt(d)
    eps = rng.normal(size=(2, reps, N))
    return np.concatenate([X, (X @ b + noise * eps)[..., None]], axis=-1)


def clipped_loss(W, H):
    """min(squared error, 2) of the residual, the y row of (1 + W) h."""
    residual = H[..., -1] + np.einsum("...j,...ij->...i", W[..., -1, :], H)
    return np.mean(np.minimum(residual**2, 2), axis=-1)


@functools.cache
def noisy_descent():
    """The stack, its training prompts, and the true error with its standard error."""
    N, shots, d, L, reps = 50, 25, 2, 2, 1500
    train, fresh = regression_prompts(reps, N, d)
    stack = gradient_descent(np.full(L, 0.5), d_in=d)
    paths = jax.jit(
        jax.vmap(lambda k, H: noisy_trajectory(stack, H, shots, key=k, scale=1 / N))
    )(jax.random.split(jax.random.key(0), reps), train)
    W = np.asarray(paths.W)[:, -1]
    gaps = clipped_loss(W, fresh) - clipped_loss(W, train)
    return stack, train, gaps.mean(), gaps.std() / math.sqrt(reps)


@pytest.mark.statement("Yao: Theorem 2 (corrected)", "Yao: Section 3.1, error")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("exact", lambda steps: bounds.isotropic_bound(steps, 1.0)),
        ("frobenius", lambda steps: bounds.isotropic_bound(steps.norm_product(), 1.0)),
        ("centred", lambda steps: bounds.isotropic_bound(steps.centred("mean"), 1.0)),
        ("held out", lambda steps: bounds.held_out_bound(steps, 1.0, 25)),
    ],
)
def test_no_valid_variant_is_below_the_true_error(name, form, measured, key):
    stack, train, error, se = noisy_descent()
    measured("true error", error)
    measured("its standard error", se)
    bound = form(bounds.noisy_steps(stack, train, 25, key=key, scale=1 / 50))
    measured(f"bound, {name}", bound.value)
    assert bound.value > error + 4 * se
    assert bound.support_dim.tolist() == [2, 2]
    assert bound.is_bound == (name != "centred")


@pytest.mark.statement("Yao: Theorem 2 (noise-free)")
def test_smoothing_pays_for_both_changes_of_the_loss():
    weights = np.array([[-1.0], [1.0]])
    bound = bounds.smoothing_bound(weights, -0.1, 0.25, 1.0, 10, 1.0)
    np.testing.assert_allclose(bound.residual, 0.35)
    np.testing.assert_allclose(bound.value - bound.smoothed, 0.35)


@pytest.mark.statement("Yao: Theorem 2 (noise-free)")
def test_smoothing_bounds_the_deterministic_transformer(measured):
    N, d, L, reps = 50, 2, 2, 1500
    train, fresh = regression_prompts(reps, N, d)
    stack = gradient_descent(np.full(L, 0.5), d_in=d)
    W = jax.jit(jax.vmap(lambda H: implicit_gd(stack, H, scale=1 / N).W[-1]))(train)
    W = np.asarray(W)
    gap = clipped_loss(W, fresh) - clipped_loss(W, train)
    error, se = float(gap.mean()), float(gap.std() / math.sqrt(reps))
    weights = W[:, -1, :d]
    noise, values = np.random.default_rng(1).normal(size=weights.shape), []
    for c in (0.01, 0.1, 1.0, 10.0):
        moved = W.copy()
        moved[:, -1, :d] += math.sqrt(c / N) * noise
        changes = [
            float((clipped_loss(moved, H) - clipped_loss(W, H)).mean())
            for H in (train, fresh)
        ]
        bound = bounds.smoothing_bound(weights, *changes, c / N, N, 1.0)
        expected = 0.5 * np.linalg.slogdet(np.eye(d) + np.cov(weights.T) * N / c)[1]
        assert abs(bound.information / expected - 1) < 1e-10
        values.append(float(bound.value))
        assert values[-1] > error + 4 * se
    measured("true error", error)
    measured("best smoothing bound", min(values))
