"""Remark 1 of Yao et al.: what the order of the demonstrations changes, exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_genlaguerre, jv

from icltheory.constructions import gradient_descent, join_tokens, read_prediction
from icltheory.regression.position import label_weights, limit_profile

pytestmark = pytest.mark.statement("Yao: Remark 1 (place)")

STEPS = np.array([0.3, 0.5, 0.2])


def problem(N=6, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, d)), rng.standard_normal(d), rng.standard_normal(N)


def descended(steps, X, x, y, causal):
    """Residuals and prediction step by step, one scalar product at a time."""
    N, residuals, predicted = len(X), list(y), 0.0
    for eta in steps:
        predicted += sum(eta / N * residuals[i] * (X[i] @ x) for i in range(N))
        residuals = [
            residuals[i]
            - sum(
                eta / N * residuals[j] * (X[i] @ X[j])
                for j in range(N)
                if j <= i or not causal
            )
            for i in range(N)
        ]
    return predicted


@pytest.mark.parametrize("mask", ["demos", "causal"])
def test_weights_are_those_of_the_steps_and_of_the_stack(mask, measured):
    X, x, y = problem()
    a = np.asarray(label_weights(STEPS, X, x, mask))
    assert a @ y == pytest.approx(
        descended(STEPS, X, x, y, mask == "causal"), abs=1e-14
    )
    out = gradient_descent(STEPS, 3).apply(
        *join_tokens(X, y[:, None], x), mask, scale=1 / 6
    )
    read = float(read_prediction(out.h_query[-1], 3)[0])
    measured("error against the stack", abs(a @ y - read))
    assert a @ y == pytest.approx(read, abs=1e-14)


def test_without_a_causal_mask_the_place_does_not_matter():
    X, x, _ = problem()
    order = np.random.default_rng(1).permutation(6)
    plain, moved = (label_weights(STEPS, rows, x, "demos") for rows in (X, X[order]))
    np.testing.assert_allclose(np.asarray(plain)[order], moved, atol=1e-15)
    causal, moved = (label_weights(STEPS, rows, x) for rows in (X, X[order]))
    assert np.abs(np.asarray(causal)[order] - moved).max() > 1e-3


def test_one_layer_has_no_order_with_either_mask():
    X, x, _ = problem()
    a = label_weights(STEPS[:1], X, x)
    np.testing.assert_allclose(a, 0.3 / 6 * X @ x, atol=1e-15)


def test_two_layers_weight_a_repeated_query_linearly_by_its_place(measured):
    # x_p = x: E a_p = 2 c |x|^2 - c^2 (|x|^4 + (N - p) |x|^2), c = eta / N
    N, d, eta = 5, 2, 0.6
    rng = np.random.default_rng(2)
    x, c = np.array([1.0, -0.5]), eta / 5
    X = rng.standard_normal((20_000, N, d))
    weights = jax.jit(jax.vmap(lambda X: label_weights(jnp.full(2, eta), X, x)))
    for p in (1, 3, N):
        X_p = X.copy()
        X_p[:, p - 1] = x
        a = np.asarray(weights(X_p))[:, p - 1]
        q = x @ x
        exact = 2 * c * q - c**2 * (q**2 + (N - p) * q)
        error = a.std(ddof=1) / np.sqrt(len(a))
        measured("z", abs(a.mean() - exact) / max(error, 1e-12))
        # At p = N nothing is random.
        assert abs(a.mean() - exact) < 4.5 * error + 1e-13


def test_the_limit_is_a_laguerre_polynomial():
    s = np.linspace(0, 1, 7)
    for L in (1, 2, 5, 20):
        expected = eval_genlaguerre(L - 1, 1, 0.7 * (1 - s))
        np.testing.assert_allclose(limit_profile(0.7, L, s), expected, atol=1e-12)


def test_long_prompts_have_that_limit(measured):
    N, d, eta, L, parts = 2000, 3, 0.8, 5, 5
    rng = np.random.default_rng(3)
    X, x = rng.standard_normal((N, d)), rng.standard_normal(d)
    a, k = np.asarray(label_weights(np.full(L, eta), X, x)), X @ x
    slope = (a * k).reshape(parts, -1).sum(1) / (k * k).reshape(parts, -1).sum(1)
    middle = (np.arange(parts) + 0.5) / parts
    error = N / eta * slope - limit_profile(eta, L, middle)
    measured("largest distance", error, below=5 * 5 / np.sqrt(N))
    # Sums of N terms are off by 1 / sqrt(N) = 0.02, times the polynomial's L = 5.


def test_many_layers_have_weights_of_both_signs_as_a_bessel_function():
    L, eta, s = 400, 0.5, np.array([0.3, 0.6, 0.9, 0.99])
    u = 2 * np.sqrt(L * eta * (1 - s))
    found = np.asarray(limit_profile(eta, L, s)) / L
    # Hilb's formula has the factor exp(x / 2) and an error of order L^(-3/4).
    expected = np.exp(eta * (1 - s) / 2) * jv(1, u) / (u / 2)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    assert found.min() < 0 < found.max()
