"""Footnote 4 of Yao et al.: equation (4) as a discretisation of an SDE."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from icltheory.attention import LinearAttentionStack
from icltheory.noise import noisy_trajectory, path_moments
from tests.oracles import z_score

pytestmark = pytest.mark.statement("Yao: Footnote 4")

N, n, L, SHOTS = 6, 2, 3, 2
RNG = np.random.default_rng(0)
WEIGHTS = 0.6 * RNG.standard_normal((3, L, n, n))
H = RNG.standard_normal((N, n))
STACK = LinearAttentionStack(*map(jnp.asarray, WEIGHTS))


def moments(steps=1, continuous=False, stack=STACK):
    found = path_moments(
        stack, H, SHOTS, steps_per_layer=steps, continuous=continuous, scale=1 / N
    )
    return np.asarray(found.mean), np.asarray(found.covariance)


def updates(t):
    """One demonstration's matrix after the other, on vec(1 + W) row by row."""
    W_V, W_K, W_Q = WEIGHTS[:, t]
    found = []
    for h in H:
        B = np.zeros((n * n, n * n))
        left = np.outer(W_V @ h, W_Q.T @ W_K @ h) / N
        for i in range(n):
            for j in range(n):
                for m in range(n):
                    B[i * n + m, j * n + m] = left[i, j]
        found.append(B)
    return found


def noise(B, Q):
    """Covariance of the mean of b of N values, drawn without replacement."""
    z = [N * b for b in B]
    mean = sum(z) / N
    spread = sum(one @ Q @ one.T for one in z) / N - mean @ Q @ mean.T
    return (N - SHOTS) / (SHOTS * (N - 1)) * spread


def test_footnote_4_moments_of_the_descent_are_those_of_simulated_paths(measured):
    mean, covariance = moments()
    keys = jax.random.split(jax.random.key(1), 20_000)
    draw = jax.vmap(
        lambda key: (
            noisy_trajectory(
                STACK, H, SHOTS, key=key, demo_updates="frozen", scale=1 / N
            ).W
        )
    )
    W = np.asarray(jax.jit(draw)(keys)).reshape(len(keys), L, n * n)
    z = z_score(W, mean.reshape(L, -1))
    measured("largest z of 12 means", z, below=4.5)
    centred = W - mean.reshape(L, -1)
    squares = centred[:, :, :, None] * centred[:, :, None]
    z = z_score(squares, covariance)
    measured("largest z of 48 second moments", z, below=4.5)


def test_footnote_4_moments_of_the_diffusion_solve_its_equations(measured):
    p, Q, k = np.eye(n).ravel(), np.outer(np.eye(n), np.eye(n)), 2
    mean, covariance = moments(k, continuous=True)
    for t in range(L):
        B = updates(t)
        A = sum(B)

        def change(_, state, A=A, B=B):
            p, Q = state[: n * n], state[n * n :].reshape(n * n, n * n)
            Q_moved = A @ Q + Q @ A.T + noise(B, Q) / k
            return np.concatenate([A @ p, Q_moved.ravel()])

        start = np.concatenate([p, Q.ravel()])
        end = solve_ivp(change, (0, 1), start, rtol=1e-10, atol=1e-12).y[:, -1]
        p, Q = end[: n * n], end[n * n :].reshape(n * n, n * n)
        error = covariance[t] - (Q - np.outer(p, p))
        measured("error of a covariance", error, below=1e-8)
        np.testing.assert_allclose(mean[t].ravel() + np.eye(n).ravel(), p, atol=1e-9)


@pytest.mark.slow
def test_footnote_4_the_distance_to_the_diffusion_is_of_first_order(measured):
    distances = []
    for k in (8, 16, 32):
        steps, diffusion = moments(k), moments(k, continuous=True)
        # The covariance itself falls like 1/k.
        scales = (1, 1 / np.abs(diffusion[1]).max())
        distances.append(
            [
                np.abs(a - b).max() * s
                for a, b, s in zip(steps, diffusion, scales, strict=True)
            ]
        )
    ratios = np.array(distances[:-1]) / np.array(distances[1:])
    measured("ratio of the distances when the steps are halved", ratios.min())
    # First order: 2, with terms of second order that halve as well.
    assert (abs(ratios[1] - 2) < abs(ratios[0] - 2) + 1e-3).all()
    assert (abs(ratios[1] - 2) < 0.15).all()


def test_footnote_4_a_layer_is_not_a_small_step(measured):
    # At the paper's own step, one layer, the SDE is another model: weights of gradient
    # descent with half the stable step size.
    one = jnp.ones((4, 1, 1))
    stack = LinearAttentionStack(-one, one, one)
    points = jnp.array([[0.5], [1.0]])
    step, flow = (
        path_moments(stack, points, 1, scale=1.0, continuous=c) for c in (False, True)
    )
    # 1 + W is multiplied by 1 - 1.25, or by exp(-1.25), in each layer.
    np.testing.assert_allclose(1 + step.mean.ravel(), (-0.25) ** np.arange(1, 5))
    np.testing.assert_allclose(1 + flow.mean.ravel(), np.exp(-1.25 * np.arange(1, 5)))
    ratio = float(flow.covariance[0, 0, 0] / step.covariance[0, 0, 0])
    measured("variance after one layer, SDE over equation (4)", ratio)
    # 0.5625 = (1.5 / 2)^2 is the variance of one step.
    expected = np.exp(-2.5) * np.expm1(0.5625) / 0.5625
    assert ratio == pytest.approx(expected, rel=1e-12)


def test_bad_input():
    with pytest.raises(ValueError, match="steps_per_layer: expected"):
        moments(0)
    with pytest.raises(ValueError, match="shots: expected an integer from 1 to N"):
        path_moments(STACK, H, 7)
