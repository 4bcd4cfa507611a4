"""The bounds against the true error of regression in context."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.bounds import smoothing_bound
from icltheory.constructions import gradient_descent
from icltheory.noise import noisy_trajectory
from icltheory.trajectory import implicit_gd
from tests.identities.test_theorem2 import bound_jit


def regression_prompts(key, reps, N, d):
    """H for y = b.x + 0.5 eps and fresh data, reps of each."""
    X, noise = jax.random.normal(key, (2, reps, N, d)), 0.5
    b = jnp.ones(d) / math.sqrt(d)
    eps = jax.random.normal(jax.random.fold_in(key, 1), (2, reps, N))
    return jnp.concatenate([X, (X @ b + noise * eps)[..., None]], axis=-1)


def clipped_loss(W, H):
    """min(squared error, 2) of the residual, the y row of (1 + W) h."""
    residual = H[..., -1] + jnp.einsum("...j,...ij->...i", W[..., -1, :], H)
    return jnp.mean(jnp.minimum(residual**2, 2), axis=-1)


def test_no_valid_variant_is_below_the_true_error(measured, key):
    N, shots, d, L, reps = 50, 25, 2, 2, 1500
    train, fresh = regression_prompts(key, reps, N, d)
    stack = gradient_descent(np.full(L, 0.5), d_in=d)
    paths = jax.jit(
        jax.vmap(lambda k, H: noisy_trajectory(k, stack, H, shots, scale=1 / N))
    )(jax.random.split(key, reps), train)
    W = paths.W[:, -1]
    gaps = clipped_loss(W, fresh) - clipped_loss(W, train)
    error, se = float(gaps.mean()), float(gaps.std() / math.sqrt(reps))
    measured("true error", error)
    measured("its standard error", se)
    variants = {
        "exact": {},
        "frobenius": {"numerator": "frobenius"},
        "mean": {"center": "mean"},
        "held out": {"prior": "held_out", "held_out": 25},
    }
    for name, choice in variants.items():
        bound = bound_jit(stack, train, shots, 1.0, key=key, scale=1 / N, **choice)
        measured(f"bound, {name}", bound.value)
        assert bound.value > error + 4 * se
        assert bound.support_dim.tolist() == [2, 2]
    assert bound_jit(stack, train, shots, 1.0, key=key, scale=1 / N).is_bound


def test_smoothing_bounds_the_deterministic_transformer(measured, key):
    N, d, L, reps = 50, 2, 2, 1500
    train, fresh = regression_prompts(key, reps, N, d)
    stack = gradient_descent(np.full(L, 0.5), d_in=d)
    W = jax.jit(jax.vmap(lambda H: implicit_gd(stack, H, scale=1 / N).W[-1]))(train)
    gap = clipped_loss(W, fresh) - clipped_loss(W, train)
    error, se = float(gap.mean()), float(gap.std() / math.sqrt(reps))
    weights = W[:, -1, :d]
    noise = jax.random.normal(key, weights.shape)
    values = []
    for c in (0.01, 0.1, 1.0, 10.0):
        moved = W.at[:, -1, :d].add(math.sqrt(c / N) * noise)
        changes = [
            float((clipped_loss(moved, H) - clipped_loss(W, H)).mean())
            for H in (train, fresh)
        ]
        bound = smoothing_bound(weights, *changes, c / N, N, 1.0)
        expected = (
            0.5
            * np.linalg.slogdet(np.eye(d) + np.cov(np.asarray(weights).T) * N / c)[1]
        )
        assert abs(bound.information / expected - 1) < 1e-10
        values.append(float(bound.value))
        assert values[-1] > error + 4 * se
    measured("true error", error)
    measured("best smoothing bound", min(values))
