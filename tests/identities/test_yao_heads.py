"""Theorem 1, the noise and Theorem 2 for several heads, and blocks with an MLP."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, noise, trajectory
from icltheory.attention import (
    LinearAttentionStack,
    LinearTransformerStack,
    MultiHeadStack,
)
from icltheory.layered import LayeredStack, attention_patterns
from icltheory.pruning import Rank, depth_table

L, HEADS, n, HEAD_DIM, N, HIDDEN = 3, 2, 4, 3, 6, 5
PHI = {
    "gated": lambda u: np.maximum(u, 0),
    "linear": lambda u: u,
    "half": lambda u: u / 2,
}


def drawn(seed=0, size=0.35):
    rng = np.random.default_rng(seed)
    W_V = size * rng.normal(size=(L, HEADS, n, n))
    W_K, W_Q = size * rng.normal(size=(2, L, HEADS, HEAD_DIM, n))
    return rng, (W_V, W_K, W_Q), rng.normal(size=(N, n)), rng.normal(size=n)


def by_loops(weights, H, h, causal=False, mlp=lambda t, h: h):
    """The query at every depth, from the sums over heads and demonstrations."""
    found = [h]
    for t, (V, K, Q) in enumerate(zip(*weights, strict=True)):
        queries, new = [*H, h], []
        for i, q in enumerate(queries):
            last = i + 1 if causal and i < N else N
            moved = q.copy()
            for a in range(HEADS):
                for k in H[:last]:
                    moved += V[a] @ k * ((K[a] @ k) @ (Q[a] @ q)) / N
            new.append(mlp(t, moved))
        H, h = np.array(new[:-1]), new[-1]
        found.append(h)
    return np.array(found)


@pytest.mark.statement("Yao: Conclusion, question (i), several heads")
@pytest.mark.parametrize("updates", ["shared", "causal"])
def test_theorem_1_holds_with_the_sum_of_the_heads_updates(updates, measured):
    _, weights, H, h = drawn()
    stack, options = MultiHeadStack(*weights), {"demo_updates": updates, "scale": 1 / N}
    expected = by_loops(weights, H, h, updates == "causal")
    mask = "causal" if updates == "causal" else "demos"
    forward = stack.apply(H, h, mask, scale=1 / N).h_query
    found = {
        method: trajectory.implicit_gd(stack, H, method=method, **options)
        for method in ("dense", "gram")
        if updates == "shared" or method == "dense"
    }
    thin = noise.demonstration_gradients(stack, H, **options)
    outputs = [forward, thin.outputs(h), *(each.outputs(h) for each in found.values())]
    error = max(np.abs(np.asarray(each) - expected).max() for each in outputs)
    measured("error", error, below=1e-13)
    dense = found["dense"]
    # The first layer's update is the sum of those of the heads, each a layer alone.
    alone = [  # W_Q' W_K h = (W_K' W_Q)' h, with one square matrix
        trajectory.implicit_update(V, (K.T @ Q).T, np.eye(n), H, scale=1 / N)
        for V, K, Q in zip(*(W[0] for W in weights), strict=True)
    ]
    np.testing.assert_allclose(dense.delta_W[0], sum(alone), atol=1e-14)
    np.testing.assert_allclose(jnp.cumsum(dense.G, axis=0), dense.W, atol=1e-13)
    each = np.stack([thin.per_demonstration(t) for t in range(L)])
    assert each.shape == (L, N, n, n)
    np.testing.assert_allclose(each.sum(1), dense.G, atol=1e-13)


@pytest.mark.statement("Yao: Conclusion, question (i), several heads")
def test_the_noise_of_several_heads_has_the_dense_spectrum(measured):
    rng, weights, H, _ = drawn(1)
    stack = MultiHeadStack(*weights)
    dense = [noise.noise_covariance(stack, H, 2, t, scale=1 / N) for t in range(L)]
    values = np.array([np.linalg.eigvalsh(C)[::-1][:N] for C in dense])
    for method in ("rows", "symmetric", "gram"):
        found = noise.noise_spectrum(stack, H, 2, scale=1 / N, method=method)
        error = np.abs(found.eigenvalues - values).max() / values.max()
        measured("relative error of an eigenvalue", error, below=1e-13)
        assert found.rank.tolist() == [N - 1] * L
    # Subsets of two demonstrations, all of them, have this covariance.
    g = noise.demonstration_gradients(stack, H, scale=1 / N).per_demonstration(0)
    pairs = [(g[i] + g[j]) * N / 2 for i in range(N) for j in range(i)]
    exact = np.cov(np.reshape(pairs, (len(pairs), -1)).T, bias=True)
    np.testing.assert_allclose(dense[0], exact, atol=1e-13)
    path = noise.noisy_trajectory(
        stack, H, 2, key=jax.random.key(0), scale=1 / N, noise="shots"
    )
    first = np.asarray(path.G[0] + path.noise[0])
    assert min(np.abs(first - pair).max() for pair in pairs) < 1e-13


@pytest.mark.statement("Yao: Conclusion, question (i), several heads")
def test_the_space_of_the_noise_of_several_heads():
    rng, (W_V, W_K, W_Q), _, _ = drawn(2)
    thin = [W_V[:, :, :1], W_K[:, :, :1], W_Q[:, :, :1]]  # rank one each
    low = MultiHeadStack(np.swapaxes(thin[0], 2, 3) @ thin[0], *thin[1:])
    H = rng.normal(size=(60, n))
    found = noise.noise_spectrum(low, H, 20, scale=1 / 60, method="rows")
    assert found.support_dim.tolist() == noise.support_dims(low).tolist() == [2] * L
    assert found.rank.tolist() == [2] * L
    assert noise.support_dims(low, limit=1).tolist() == [1] * L
    wide = MultiHeadStack(*(np.ones((1, 2, 65, 65)) for _ in range(3)))
    with pytest.raises(ValueError, match="support_dims: expected numbers for several"):
        noise.support_dims(wide)


@pytest.mark.slow
@pytest.mark.statement("Yao: Conclusion, question (i), several heads")
@pytest.mark.parametrize("keyed", [False, True])
def test_theorem_2_of_two_equal_halves_is_that_of_one_head(keyed, measured):
    rng = np.random.default_rng(3)
    W_V, W_K, W_Q = 0.4 * rng.normal(size=(3, L, n, n))
    one = LinearAttentionStack(W_V, W_K, W_Q)
    halves = (np.stack([W / c] * 2, 1) for W, c in ((W_V, 2), (W_K, 1), (W_Q, 1)))
    prompts, key = rng.normal(size=(4, 40, n)), jax.random.key(0) if keyed else None
    made = [
        bounds.noisy_steps(stack, prompts, 20, scale=1 / 40, key=key)
        for stack in (one, MultiHeadStack(*halves))
    ]
    for name in ("squared_distance", "trace", "log_det", "dim"):
        pair = [np.asarray(getattr(steps, name)) for steps in made]
        np.testing.assert_allclose(*pair, rtol=1e-9, err_msg=name)
        measured(f"difference of {name}", np.abs(pair[0] - pair[1]).max())
    centred = [steps.centred("mean").squared_distance for steps in made]
    np.testing.assert_allclose(*centred, rtol=1e-9)
    forms = [bounds.isotropic_bound, bounds.anisotropic_bound]
    forms += [lambda steps, R: bounds.held_out_bound(steps, R, 16)]
    for form in forms:
        values = [float(form(steps, 1.0).value) for steps in made]
        assert np.isfinite(values[0])
        np.testing.assert_allclose(*values, rtol=1e-9)


@pytest.mark.statement("Yao: Conclusion, question (i), heads and an MLP")
@pytest.mark.parametrize("mlp", PHI)
def test_blocks_with_an_mlp_move_the_query_by_a_sum_of_updates(mlp, measured):
    rng, weights, H, h = drawn(4)
    W_in = 0.4 * rng.normal(size=(L, HIDDEN, n))
    W_out = 0.4 * rng.normal(size=(L, n, HIDDEN))
    stack = LinearTransformerStack(*weights, W_in, W_out, mlp)

    def apply(t, h):
        return h + W_out[t] @ PHI[mlp](W_in[t] @ h)

    for updates, mask in (("shared", "demos"), ("causal", "causal")):
        expected = by_loops(weights, H, h, updates == "causal", apply)
        forward = stack.apply(H, h, mask, scale=1 / N).h_query
        options = {"demo_updates": updates, "scale": 1 / N}
        found = trajectory.implicit_gd_blocks(stack, H, h, **options)
        for each in (forward, found.outputs(h)):
            measured("error", np.asarray(each) - expected, below=1e-12)
        np.testing.assert_allclose(
            jnp.cumsum(found.G + found.mlp, 0), found.W, atol=1e-12
        )
    empty = trajectory.implicit_gd_blocks(stack, H[:0], h)
    assert not np.any(np.asarray(empty.G))  # the attention's part alone is in context
    assert np.any(np.asarray(empty.mlp))
    # For relu the gates depend on the query, and demonstrations have others.
    shared = {"demo_updates": "shared", "scale": 1 / N}
    here, there = (
        np.asarray(trajectory.implicit_gd_blocks(stack, H, q, **shared).W[-1])
        for q in (h, -h)
    )
    changed = np.abs(here - there).max() / np.abs(here).max()
    moved = np.asarray(stack.apply(H, h, scale=1 / N).H[-1])
    apart = np.abs(moved - H @ (np.eye(n) + here).T).max() / np.abs(moved).max()
    measured(f"dependence on the query, {mlp}", changed)
    measured(f"demonstrations from (1 + W) h, {mlp}", apart)
    if mlp == "gated":
        assert min(changed, apart) > 0.05
        with pytest.raises(ValueError, match="mlp: expected one of 'linear', 'half'"):
            stack.without_mlp()
        return
    assert max(changed, apart) < 1e-12
    attention, A = stack.without_mlp()
    alone = A @ trajectory.implicit_gd(attention, H, scale=1 / N).outputs(h)[-1]
    with_it = np.asarray(stack.apply(H, h, scale=1 / N).h_query[-1])
    measured("error without the MLP", alone - with_it, below=1e-12)
    assert np.all(np.isfinite(bounds.noisy_steps(attention, H, 2, scale=1 / N).trace))


@pytest.mark.statement("Yao: Conclusion, question (i), several heads")
def test_heads_as_a_layered_model_and_where_one_head_is_needed():
    _, weights, H, h = drawn(5)
    stack = MultiHeadStack(*weights)
    patterns = attention_patterns(LayeredStack.of(stack), stack, (H, h))
    assert [p.shape for p in patterns] == [(HEADS, N + 1, N + 1)] * L
    expected = (H @ weights[1][0, 1].T) @ (weights[2][0, 1] @ h)
    np.testing.assert_allclose(patterns[0][1, -1, :-1], expected, atol=1e-13)
    with pytest.raises(ValueError, match=r"W_V: expected shape \(L, n, n\)"):
        depth_table(stack, H, "W_V", Rank(1))
    with pytest.raises(ValueError, match="W_K: expected shape"):
        MultiHeadStack(weights[0], weights[1][:, :1], weights[2])
