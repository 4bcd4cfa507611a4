"""The spectrum: precision, size, batches and what a user mistypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.constructions import gradient_descent
from icltheory.noise import (
    demonstration_gradients,
    noise_covariance,
    noise_spectrum,
    noisy_trajectory,
    spectrum_of_gradients,
    support_dims,
)
from icltheory.trajectory import implicit_gd
from tests import oracles


def problem(L=2, N=24, n=6, seed=0, rho=0.3):
    *W, H, _ = oracles.random_problem(L, N, n, seed, rho)
    return LinearAttentionStack(*map(jnp.asarray, W)), jnp.asarray(H)


def test_float32_keeps_small_eigenvalues_that_its_gram_matrix_loses():
    stack, H = problem(L=1, N=128, n=8)
    low = jax.tree.map(lambda a: a.astype(jnp.float32), (stack, H))
    exact = noise_spectrum(stack, H, 64).eigenvalues[0, :36]
    assert exact[0] / exact[-1] > 1e6

    def error(method):
        got = noise_spectrum(*low, 64, method=method)
        assert got.eigenvalues.dtype == jnp.float32
        return float(np.max(np.abs(got.eigenvalues[0, :36] / exact - 1)))

    # singular values err by eps sqrt(condition), a Gram matrix by eps * condition
    eps, condition = np.finfo(np.float32).eps, float(exact[0] / exact[-1])
    assert error("symmetric") < 10 * eps * condition**0.5
    assert error("rows") < 10 * eps * condition**0.5
    assert error("gram") > 0.03
    assert noise_spectrum(*low, 64).rank.tolist() == [36]


def test_wide_tokens_need_no_matrix_of_the_ambient_size():
    stack, H = problem(L=2, N=6, n=96)
    compute = jax.jit(lambda s, H: noise_spectrum(s, H, 3))
    memory = compute.lower(stack, H).compile().memory_analysis()
    if memory is not None:  # n^2 x n^2 would be 650 MB
        assert memory.temp_size_in_bytes < 20e6
    spectrum = compute(stack, H)
    assert spectrum.rank.tolist() == [5, 5]
    assert spectrum.support_dim.tolist() == [96 * 97 // 2] * 2
    g = oracles.demonstration_gradients(stack.W_V, stack.W_K, stack.W_Q, H)[1]
    rows = g.reshape(6, -1) - g.reshape(6, -1).mean(axis=0)
    values = np.linalg.eigvalsh(rows @ rows.T)[::-1] * (3 / (3 * 5)) * 6
    np.testing.assert_allclose(spectrum.eigenvalues[1, :5], values[:5], rtol=1e-9)


def test_a_batch_of_prompts_is_one_vmapped_call():
    stack, _ = problem(n=3)
    H = jax.random.normal(jax.random.key(0), (50, 10, 3))
    batch = jax.jit(jax.vmap(lambda H: noise_spectrum(stack, H, 4)))(H)
    one = noise_spectrum(stack, H[7], 4)
    np.testing.assert_allclose(batch.log_pdet[7], one.log_pdet, rtol=1e-10)
    assert batch.eigenvalues.shape == (50, 2, 10)


def test_noise_at_given_weights_is_that_of_their_trajectory():
    stack, H = problem(n=3)
    W = implicit_gd(stack, H).W
    before = jnp.concatenate([jnp.zeros_like(W[:1]), W[:-1]])
    a, b = noise_spectrum(stack, H, 4), noise_spectrum(stack, H, 4, W=before)
    np.testing.assert_allclose(a.log_pdet, b.log_pdet, rtol=1e-10)
    C = noise_covariance(stack, H, 4, 1, W=before)
    np.testing.assert_allclose(C, noise_covariance(stack, H, 4, 1), rtol=1e-9)


def test_gradients_of_another_learner_have_the_same_formulas():
    stack, H = problem(n=3)
    gradients = demonstration_gradients(stack, H)
    a = spectrum_of_gradients(gradients, 4, support_dims(stack), method="gram")
    b = noise_spectrum(stack, H, 4, method="rows")
    np.testing.assert_allclose(a.trace, b.trace, rtol=1e-12)
    np.testing.assert_allclose(a.log_pdet, b.log_pdet, rtol=1e-6)
    assert a.rank.tolist() == b.rank.tolist()


def test_duplicates_and_equal_demonstrations():
    stack, H = problem(n=3, N=4)
    twice = noise_spectrum(stack, jnp.concatenate([H, H]), 2)
    assert twice.rank.tolist() == [3, 3]
    same = noise_spectrum(stack, jnp.tile(H[:1], (4, 1)), 2)
    assert not np.any(np.asarray(same.eigenvalues) > 1e-25)


@pytest.mark.parametrize(
    ("N", "method"), [(4, "rows"), (4, "symmetric"), (30, "symmetric")]
)
def test_the_gradient_is_that_of_differences_where_weights_are_singular(N, method):
    # those of gradient descent are, exactly, and a triangle of their factors with them
    stack = gradient_descent(jnp.array([0.5, 0.5]), d_in=4)
    H, change = jax.random.normal(jax.random.key(1), (2, N, 5))

    @jax.jit
    def numbers(H):
        found = noise_spectrum(stack, H, 2, scale=1 / N, method=method)
        return jnp.stack([found.trace, found.log_pdet, found.eigenvalues[:, 1]])

    slope = jax.jit(lambda H: jax.vjp(numbers, H)[1](jnp.ones((3, 2)))[0])(H)
    ends = [numbers(H + sign * 1e-5 * change) for sign in (1, -1)]
    expected = float(jnp.sum(ends[0] - ends[1]) / 2e-5)
    assert abs(float(jnp.sum(slope * change)) / expected - 1) < 1e-7


def test_traced_shots_and_frozen_demonstrations():
    stack, H = problem(n=3)
    compute = jax.jit(lambda b: noise_spectrum(stack, H, b, demos="frozen").trace)
    C = noise_covariance(stack, H, 7, 1, demos="frozen")
    assert abs(compute(7)[1] / np.trace(C) - 1) < 1e-12


@pytest.mark.parametrize("method", ["rows", "symmetric", "gram"])
def test_what_is_not_finite_has_no_finite_determinant(method):
    stack, H = problem(n=3)
    for broken in (H.at[0, 0].set(jnp.nan), 1e60 * H):
        found = jax.jit(lambda H: noise_spectrum(stack, H, 4, method=method))(broken)
        assert np.isnan(found.log_pdet[1])


def test_bad_input():
    stack, H = problem(n=3)
    with pytest.raises(ValueError, match="shots: expected an integer from 1 to N = 24"):
        noise_spectrum(stack, H, 25)
    with pytest.raises(ValueError, match="shots"):
        noise_covariance(stack, H, 0, 0)
    with pytest.raises(ValueError, match="layer: expected 0 to 1, got 2"):
        noise_covariance(stack, H, 4, 2)
    with pytest.raises(
        ValueError, match="N: expected at least 2 demonstrations, got 1"
    ):
        noise_spectrum(stack, H[:1], 1)
    with pytest.raises(ValueError, match=r"H: expected shape \(N, 3\), got \(24, 2\)"):
        noise_spectrum(stack, H[:, :2], 4)
    with pytest.raises(ValueError, match="method: expected one of"):
        noise_spectrum(stack, H, 4, method="svd")
    with pytest.raises(ValueError, match="demos: expected one of 'demos', 'frozen'"):
        noisy_trajectory(jax.random.key(0), stack, H, 4, demos="causal")
    with pytest.raises(ValueError, match="noise: expected one of"):
        noisy_trajectory(jax.random.key(0), stack, H, 4, noise="laplace")
