"""The covariance of the implicit gradient noise, and Assumption 1."""

import itertools
import math

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
    support_dims,
)
from icltheory.trajectory import implicit_gd
from tests import oracles, stacks
from tests.oracles import relative, truncate


def problem(L=3, N=9, n=4, rho=0.5):
    return stacks.problem(L, N, n, rho=rho)[:2]


@pytest.mark.statement("Yao: C_t (sum or mean)")
@pytest.mark.parametrize("demo_updates", ["shared", "causal", "frozen"])
@pytest.mark.parametrize("size", [(3, 9, 4), (2, 2, 9)])
def test_the_gradients_of_the_demonstrations_sum_to_G(size, demo_updates, measured):
    stack, H = problem(*size)

    @jax.jit
    def compute(stack, H):
        gradients = demonstration_gradients(stack, H, demo_updates=demo_updates)
        each = [gradients.per_demonstration(t) for t in range(size[0])]
        return each, implicit_gd(stack, H, demo_updates=demo_updates).G

    got, G = compute(stack, H)
    errors = list(map(relative, got, stacks.gradients(stack, H, demo_updates)))
    measured("relative error of g_i", max(errors), below=1e-12)
    assert relative(np.sum(got, axis=1), G) < 1e-12


@pytest.mark.statement("Yao: C_t (definition)")
def test_C_t_is_the_covariance_of_b_of_N_without_replacement(measured):
    stack, H = problem(L=2, N=6, n=3)
    worst = 0.0
    for t in range(2):
        g = stacks.gradients(stack, H)[t]
        z = 6 * g.reshape(6, -1)
        means = np.array(
            [z[list(s)].mean(axis=0) for s in itertools.combinations(range(6), 2)]
        )
        assert len(means) == 15
        assert relative(means.mean(axis=0), g.sum(axis=0).ravel()) < 1e-12
        enumerated = np.cov(means.T, bias=True)
        worst = max(worst, relative(noise_covariance(stack, H, 2, t), enumerated))
    measured("against all 15 subsets", worst, below=1e-12)


@pytest.mark.statement("Yao: C_t (sum or mean)")
def test_a_prompt_of_b_must_be_normalised_by_1_over_b(measured):
    stack, H = problem(L=1, N=6, n=3)
    G = np.asarray(implicit_gd(stack, H).G[0])
    pairs = itertools.combinations(range(6), 2)
    sums = [np.asarray(implicit_gd(stack, H[list(s)]).G[0]) for s in pairs]
    ratio = np.linalg.norm(np.mean(sums, axis=0)) / np.linalg.norm(G)
    measured("|E G~| / |G| without the normalisation", ratio)
    assert relative(np.mean(sums, axis=0), G / 3) < 1e-12  # b/N of it: a bias
    rescaled = [3 * one for one in sums]
    assert relative(np.mean(rescaled, axis=0), G) < 1e-12


@jax.jit
def all_covariances(stack, H, shots):
    return [noise_covariance(stack, H, shots, t) for t in range(stack.num_layers)]


@pytest.mark.statement("Yao: C_t positive definite")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "N"),
    [(3, 50), (4, 9), (2, 50), (5, 200)],
)
def test_C_t_is_never_positive_definite(n, N, measured):
    stack, H = problem(L=3, N=N, n=n, rho=0.3)
    spectrum = stacks.spectrum(stack, H, N // 2)
    ceiling = min(N - 1, n * (n + 1) // 2)
    for C in all_covariances(stack, H, N // 2):
        assert np.linalg.matrix_rank(C, tol=1e-13 * np.linalg.norm(C, 2)) <= ceiling
    assert spectrum.rank.tolist() == [ceiling] * 3
    assert ceiling < n * n
    measured("rank / d", ceiling / n**2)


@pytest.mark.statement("Yao: C_t positive definite")
@pytest.mark.slow
def test_support_dimension_of_pruned_and_gradient_descent_weights(measured):
    stack, H = problem(L=3, N=40, n=5, rho=0.2)
    for name in ("W_V", "W_K", "W_Q"):
        weights = {k: np.array(getattr(stack, k)) for k in ("W_V", "W_K", "W_Q")}
        for t, r in enumerate((5, 3, 1)):
            weights[name][t] = truncate(weights[name][t], r)
        pruned = LinearAttentionStack(**weights)
        assert support_dims(pruned).tolist() == [15, 12, 5]
        assert stacks.spectrum(pruned, H, 9).rank.tolist() == [15, 12, 5]
    descent = gradient_descent(np.array([0.3, 0.3]), d_in=3, d_out=2)
    assert support_dims(descent).tolist() == [6, 6]  # d_in d_out
    ranks = stacks.spectrum(descent, H, 9, scale=1 / 40).rank
    assert ranks.tolist() == [6, 6]
    measured("support of GD weights, d_in = 3, d_out = 2", int(ranks[0]))


@pytest.mark.statement("Yao: C_t positive definite")
@pytest.mark.slow
def test_support_dimension_up_to_a_limit(measured):
    rng = np.random.default_rng(4)
    draws = rng.normal(size=(3, 6, 7, 7))
    for t, (which, rank) in enumerate([(0, 1), (1, 2), (2, 3), (0, 2)]):
        draws[which, t] = truncate(draws[which, t], rank)
    # Keys and queries without a common range: their product is rounding error.
    basis = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    draws[1, 4] = basis[:, :3] @ draws[1, 4, :3]
    draws[2, 4] = basis[:, 3:] @ draws[2, 4, 3:]
    stack = LinearAttentionStack(*draws)
    m = np.array(support_dims(stack))
    measured("largest m_t of six layers", int(m.max()))
    assert m.tolist() == [7, 13, 18, 13, 0, 28]
    for limit in (1, 6, 15, 40):
        found = support_dims(stack, limit=limit)
        assert found.tolist() == np.minimum(m, limit).tolist(), limit


@pytest.mark.statement("Yao: C_t positive definite")
@pytest.mark.slow
def test_support_dimension_of_weights_wider_than_those_of_the_direct_count(measured):
    """Regular weights need no singular vectors; nearly singular ones do."""
    n = 40
    rng = np.random.default_rng(5)
    draws = rng.normal(size=(3, 4, n, n))
    for t, smallest in ((1, 1e-13), (2, 0.0)):
        U, s, Vt = np.linalg.svd(draws[t, t])
        draws[t, t] = (U * np.append(s[:-1], smallest * s[0])) @ Vt
    draws[0, 3] = truncate(draws[0, 3], 7)
    found = support_dims(LinearAttentionStack(*draws)).tolist()
    full = n * (n + 1) // 2
    measured("m_t of a layer with a weight of rank 7, n = 40", found[3])
    assert found == [full, full, full - 1, 7 * n - 7 * 6 // 2]


@pytest.mark.statement("Yao: C_t positive definite")
def test_dimension_of_the_image_of_the_symmetric_matrices(measured):
    rng = np.random.default_rng(1)
    n, weights, expected = 5, [], []
    for draw in range(30):
        r, s = rng.integers(1, n + 1, 2)
        A = truncate(rng.normal(size=(n, n)), r)
        B = truncate(rng.normal(size=(n, n)), s)
        # Of odd draws rows of A and columns of B overlap.
        keys = A if draw % 2 else np.eye(n)
        weights.append((A, keys, B))
        B, image = keys.T @ B, []
        for i, j in itertools.combinations_with_replacement(range(n), 2):
            X = np.zeros((n, n))
            X[i, j] = X[j, i] = 1
            image.append((A @ X @ B).ravel())
        expected.append(np.linalg.matrix_rank(np.array(image), tol=1e-9))
    counts = support_dims(LinearAttentionStack(*np.stack(weights, axis=1)))
    wrong = np.count_nonzero(np.asarray(counts) != expected)
    measured("wrong counts of 30", wrong)
    assert wrong == 0


@pytest.mark.statement("Yao: C_t (definition)")
@pytest.mark.parametrize("method", ["rows", "symmetric", "gram"])
@pytest.mark.parametrize(
    ("N", "n"),
    [(9, 4), (5, 6)]
    + [pytest.param(*s, marks=pytest.mark.slow) for s in ((30, 4), (6, 5))],
    ids=str,
)
def test_every_route_equals_the_dense_covariance(N, n, method, measured):
    stack, H = problem(L=2, N=N, n=n, rho=0.5)
    spectrum = stacks.spectrum(stack, H, 4, method=method)
    spectrum = jax.tree.map(np.asarray, spectrum)
    for t in range(2):
        C = oracles.noise_covariance(stacks.gradients(stack, H)[t], 4)
        values = np.linalg.eigvalsh(C)[::-1]
        rank = min(N - 1, n * (n + 1) // 2)
        assert int(spectrum.rank[t]) == rank
        top = np.pad(values, (0, N))[:N]
        error = np.abs(spectrum.eigenvalues[t] - top).max() / values[0]
        measured("eigenvalues", error, below=1e-13)
        assert abs(spectrum.trace[t] / np.trace(C) - 1) < 1e-13
        # the dense eigenvalues themselves carry an error of eps times the largest
        log_error = abs(float(spectrum.log_pdet[t]) - np.log(values[:rank]).sum())
        assert log_error < 1e-10 * rank * max(1, 1e-5 * values[0] / values[rank - 1])


@pytest.mark.statement("Yao: C_t (definition)")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("N", "method"),
    [(6, "rows"), (6, "gram"), (14, "symmetric")],
)
def test_the_gradient_of_the_spectrum_equals_the_dense_one(N, method, measured):
    # N - 1 <= m and N - 1 > m; the dense twin restricts C to its support by a fixed
    # orthonormal basis, so that its log-determinant needs no threshold
    stack, H = problem(L=2, N=N, n=4, rho=0.5)
    C = np.asarray(noise_covariance(stack, H, 3, 1))
    basis = np.linalg.eigh(C)[1][:, -min(N - 1, 10) :]
    # d log pdet C = tr(C^+ dC), so the support may turn with the weights
    inverse = basis @ np.linalg.inv(basis.T @ C @ basis) @ basis.T

    def fast(W_V):
        moved = LinearAttentionStack(W_V, stack.W_K, stack.W_Q)
        s = noise_spectrum(moved, H, 3, method=method)
        return s.log_pdet[1] + jnp.log(s.trace[1])

    def dense(W_V):
        moved = LinearAttentionStack(W_V, stack.W_K, stack.W_Q)
        C = noise_covariance(moved, H, 3, 1)
        return jnp.sum(inverse * C) + jnp.log(jnp.trace(C))

    error = relative(*(jax.jit(jax.grad(f))(stack.W_V) for f in (fast, dense)))
    measured(f"gradient, {method}", error, below=1e-10)


@pytest.mark.statement("Yao: Assumption 1, eq. (4)")
@pytest.mark.slow
def test_assumption_1_gaussian_noise_has_covariance_C_t(measured, key):
    stack, H = problem(L=1, N=8, n=2)
    C = np.asarray(noise_covariance(stack, H, 3, 0))
    draws = 4000
    for noise in ("gaussian", "shots"):
        paths = jax.jit(
            jax.vmap(
                lambda k, noise=noise: noisy_trajectory(stack, H, 3, key=k, noise=noise)
            )
        )(jax.random.split(key, draws))
        assert relative(paths.G[0, 0], implicit_gd(stack, H).G[0]) < 1e-12
        sample = np.asarray(paths.noise[:, 0]).reshape(draws, -1)
        spread = np.sqrt(np.diag(C) / draws)
        z = np.abs(sample.mean(axis=0) / spread).max()
        products = sample[:, :, None] * sample[:, None, :]
        error = products.mean(axis=0) - C
        z_cov = error / (products.std(axis=0) / math.sqrt(draws))
        measured(f"|z| of the covariance, {noise}", z_cov, below=5)
        assert z < 5


@pytest.mark.statement("Yao: Assumption 1, eq. (4)")
def test_the_simulated_prompt_of_b_shots_is_the_stack_on_b_demonstrations(key):
    stack, H = problem(L=3, N=7, n=3)
    path = jax.jit(lambda k: noisy_trajectory(stack, H, 3, key=k, noise="shots"))(key)
    subsets = np.array(list(itertools.combinations(range(7), 3)))
    alone = jax.jit(jax.vmap(lambda H: implicit_gd(stack, H, scale=7 / 3).W))
    assert min(relative(path.W, W) for W in np.asarray(alone(H[subsets]))) < 1e-12


@pytest.mark.statement("Yao: Assumption 1 (independence)")
def test_assumption_1_independence_over_the_layers_fails_for_real_prompts(
    measured, key
):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(24, 3))
    y = X @ rng.normal(size=3) + 0.5 * rng.normal(size=24)
    H = np.concatenate([X, y[:, None]], axis=1)
    stack = gradient_descent(np.array([0.3, 0.3]), d_in=3)

    def correlations(noise):
        paths = jax.jit(
            jax.vmap(
                lambda k: noisy_trajectory(
                    stack, H, 8, key=k, noise=noise, scale=1 / 24
                )
            )
        )(jax.random.split(key, 2000))
        V = np.asarray(paths.noise)[:, :, -1, :3]
        return [np.corrcoef(V[:, 0, k], V[:, 1, k])[0, 1] for k in range(3)]

    same, fresh = correlations("shots"), correlations("fresh_shots")
    gaussian = correlations("gaussian")
    measured("least correlation of V_1 and V_2, same demonstrations", min(same))
    measured("largest, fresh demonstrations", max(map(abs, fresh)))
    assert min(same) > 0.5
    assert max(map(abs, fresh)) < 5 / math.sqrt(2000)
    assert max(map(abs, gaussian)) < 5 / math.sqrt(2000)
