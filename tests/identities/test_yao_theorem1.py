"""Theorem 1 and its remarks, with the counter-examples to what is false in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.constructions import gradient_descent
from icltheory.trajectory import implicit_gd
from tests import oracles, stacks
from tests.oracles import relative


def problem(L=4, N=5, n=4, seed=0, rho=0.5):
    return stacks.problem(L, N, n, seed, rho)


def as_numpy(tree):
    return jax.tree.map(np.asarray, tree)


apply_jit = jax.jit(lambda stack, H, h, mask: stack.apply(H, h, mask), static_argnums=3)


@pytest.mark.statement("Yao: Theorem 1 (identity)")
@pytest.mark.parametrize("L", [1, 8, 24])
def test_theorem_1_trajectory_and_forward_pass_agree(L, measured):
    for seed in range(3):
        stack, H, h = problem(L, 16, 12, seed, 0.1)
        forward = apply_jit(stack, H, h, "demos").h_query
        outputs = implicit_gd(stack, H).outputs(h)
        assert outputs.shape == (L + 1, 12)
        assert np.isfinite(forward).all()
        # 1e-10 is the promise; rounding leaves about 1e-15
        errors = relative(outputs, forward), relative(outputs[-1], forward[-1])
        measured("relative error", max(errors), below=1e-13)


@pytest.mark.statement("Yao: Theorem 1 (mask)")
@pytest.mark.parametrize("demo_updates", ["causal", "frozen"])
def test_theorem_1_holds_however_the_demonstrations_evolve(demo_updates, measured):
    stack, H, h = problem()
    trajectory = implicit_gd(stack, H, demo_updates=demo_updates)
    W_V, W_K, W_Q = (np.asarray(W) for W in jax.tree.leaves(stack))
    tokens, query = np.vstack([H, h]), h
    for t in range(4):  # the query layer by layer, the demonstrations by their own rule
        query = query + oracles.linear_sum(
            W_V[t], W_K[t], W_Q[t], np.vstack([tokens[:-1], query]), len(H), "demos"
        )
        error = relative(trajectory.outputs(h)[t + 1], query)
        measured("relative error", error, below=1e-13)
        if demo_updates == "causal":
            tokens = oracles.linear_layer(W_V[t], W_K[t], W_Q[t], tokens, "causal")


@pytest.mark.statement("Yao: Theorem 1 (identity)", "Yao: Eq. (13)")
def test_theorem_1_is_a_product_of_one_plus_the_updates(measured):
    stack, H, _ = problem()
    trajectory = as_numpy(implicit_gd(stack, H))
    product = np.eye(4)
    for delta_W, G, W in zip(
        trajectory.delta_W, trajectory.G, trajectory.W, strict=True
    ):
        np.testing.assert_allclose(G, delta_W @ product, atol=1e-13)
        product = (np.eye(4) + delta_W) @ product
        measured("error", np.eye(4) + W - product, below=1e-13)


@pytest.mark.statement("Yao: Theorem 1 (display)")
def test_theorem_1_sum_over_G_t_as_printed_is_wrong(measured):
    stack, H, h = problem()
    trajectory = as_numpy(implicit_gd(stack, H))
    moved = apply_jit(stack, H, h, "demos").h_query[-1] - h
    # sum_{j <= t} G_t is t copies of the last step, not the sum of the steps
    printed = relative(4 * trajectory.G[-1] @ h, moved)
    corrected = relative(trajectory.G.sum(axis=0) @ h, moved)
    measured("relative error as printed", printed)
    measured("corrected", corrected)
    assert printed > 0.5
    assert corrected < 1e-13


@pytest.mark.statement("Yao: Remark 1 (order)")
def test_remark_1_order_does_not_matter_with_the_mask_of_the_papers(measured):
    stack, H, h = problem()
    shuffled = H[np.random.default_rng(1).permutation(5)]
    masked = [apply_jit(stack, X, h, "demos").h_query[-1] for X in (H, shuffled)]
    causal = [apply_jit(stack, X, h, "causal").h_query[-1] for X in (H, shuffled)]
    measured("change by order, papers' mask", relative(*masked), below=1e-13)
    measured("causal mask", relative(*causal))
    assert relative(*causal) > 0.01


@pytest.mark.statement("Yao: Theorem 1 (mask)")
def test_without_the_mask_the_final_weights_depend_on_the_query(measured):
    # Every token, the query too, is a key: Theorem 1 run on all tokens as
    # demonstrations telescopes still, but its W_L is a function of the query.
    stack, H, h = problem()
    finals = []
    for query in (h, 2 * h):
        trajectory = implicit_gd(stack, np.vstack([H, query]))
        unmasked = apply_jit(stack, H, query, "none").h_query
        assert relative(trajectory.outputs(query), unmasked) < 1e-13
        finals.append(trajectory.W[-1])
    measured("change of W_L when the query doubles", relative(*finals))
    assert relative(*finals) > 0.1


@pytest.mark.statement("Yao: Theorem 1 (mask)")
def test_corollary_all_tokens_evolve_by_one_matrix_with_the_shared_mask_only(measured):
    stack, H, h = problem()
    one = np.eye(4)
    shared = as_numpy(implicit_gd(stack, H))
    forward = np.asarray(apply_jit(stack, H, h, "demos").H)
    causal = as_numpy(implicit_gd(stack, H, demo_updates="causal"))
    forward_causal = np.asarray(apply_jit(stack, H, h, "causal").H)
    for t in range(4):
        error = relative(H @ (one + shared.W[t]).T, forward[t + 1])
        measured("relative error, shared mask", error, below=1e-13)
    error = relative(H @ (one + causal.W[-1]).T, forward_causal[-1])
    measured("causal mask", error)
    assert error > 0.1


@pytest.mark.statement("Yao: Remark 2")
def test_remark_2_G_is_a_function_of_the_previous_weights_and_the_demonstrations(
    measured,
):
    stack, H, _ = problem()
    for demo_updates, exact in (("shared", True), ("causal", False)):
        trajectory = as_numpy(implicit_gd(stack, H, demo_updates=demo_updates))
        stack = as_numpy(stack)
        P, S = np.eye(4), H.T @ H
        for t in range(4):
            W_V, W_K, W_Q = stack.W_V[t], stack.W_K[t], stack.W_Q[t]
            G = W_V @ P @ S @ P.T @ W_K.T @ W_Q @ P
            error = relative(G, trajectory.G[t])
            measured(f"relative error, {'shared' if exact else 'causal'} mask", error)
            assert (error < 1e-13) if (exact or t == 0) else (error > 1e-3)
            P = np.eye(4) + trajectory.W[t]


@pytest.mark.statement("Yao: Theorem 1 (identity)")
def test_growth_is_by_degree(measured):
    # 1 + W_t is a polynomial of degree (3^t - 1) / 2 in H^T H: 1, 4, 13
    stack, H, _ = problem(L=3, rho=0.1)
    norms = [
        np.linalg.norm(implicit_gd(stack, np.sqrt(c) * H).W, axis=(1, 2))
        for c in (1e6, 1e7)
    ]
    exponents = np.log10(norms[1] / norms[0])
    for t, exponent in enumerate(exponents, 1):
        measured(f"exponent at t = {t}", exponent)
    # 1e-4 is what the lower powers of 1e6 leave
    np.testing.assert_allclose(exponents, [1, 4, 13], atol=1e-4)


def jacobian_asymmetry(field, W):
    J = np.asarray(jax.jit(jax.jacobian(field))(W)).reshape(W.size, W.size)
    return np.linalg.norm(J - J.T) / np.linalg.norm(J)


@pytest.mark.statement("Yao: G_t is a gradient")
def test_implicit_gradients_are_no_gradient_field_for_generic_weights(measured):
    stack, H, _ = problem(L=1)
    W_V, W_K, W_Q = (np.asarray(W)[0] for W in jax.tree.leaves(stack))

    def field(W):  # Remark 2: G as a function of the previous W
        P = np.eye(4) + W
        return W_V @ P @ (H.T @ H) @ P.T @ W_K.T @ W_Q @ P

    start = np.random.default_rng(2).normal(size=(4, 4)) / 4
    asymmetry = jacobian_asymmetry(field, start)
    measured("asymmetry, generic weights", asymmetry)
    assert asymmetry > 0.3


@pytest.mark.statement("Yao: G_t is a gradient")
@pytest.mark.parametrize("d_out", [1, 2])
def test_implicit_gradients_of_gd_weights_are_gradients(d_out, measured):
    d_in, N, eta = 3, 7, 0.2
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(N, d_in)), rng.normal(size=(N, d_out))
    stack = gradient_descent(np.full(4, eta), d_in, d_out)
    trajectory = implicit_gd(stack, np.hstack([X, Y]), scale=1 / N)
    trajectory = as_numpy(trajectory)

    def loss(W_yx):  # the query stores minus its prediction, hence the plus sign
        return jnp.sum((Y + X @ W_yx.T) ** 2) / (2 * N)

    W_yx, slope = np.zeros((d_out, d_in)), jax.jit(jax.grad(loss))
    for G, W in zip(trajectory.G, trajectory.W, strict=True):
        gradient = np.asarray(slope(W_yx))
        measured("error, GD weights", np.abs(G[d_in:, :d_in] + eta * gradient).max())
        np.testing.assert_allclose(G[d_in:, :d_in], -eta * gradient, atol=1e-14)
        np.testing.assert_array_equal(G[:d_in], 0)
        np.testing.assert_array_equal(G[:, d_in:], 0)
        W_yx = W[d_in:, :d_in]
    asymmetry = jacobian_asymmetry(jax.grad(loss), W_yx)
    measured("asymmetry, GD weights", asymmetry, below=1e-14)


@pytest.mark.statement("Yao: G_t is a gradient")
def test_residual_identity_of_gd_weights(measured):
    # label rows of (1 + W_t) [x; y] are y minus the prediction -W_yx x
    d_in, N = 3, 6
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(N, d_in)), rng.normal(size=(N, 1))
    H = np.hstack([X, Y])
    stack = gradient_descent(np.full(3, 0.2), d_in)
    trajectory = as_numpy(implicit_gd(stack, H, scale=1 / N))
    path = oracles.gradient_descent(
        np.zeros((1, d_in)), X, Y, [0.2 * np.eye(d_in)] * 3, 1 / N
    )
    for W, W_gd in zip(trajectory.W, path[1:], strict=True):
        np.testing.assert_allclose(-W[d_in:, :d_in], W_gd, atol=1e-14)
        rows = (H @ (np.eye(d_in + 1) + W).T)[:, d_in:]
        measured("error", rows - (Y - X @ W_gd.T), below=1e-14)
