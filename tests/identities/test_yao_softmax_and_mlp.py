"""Appendix B.2 (softmax as a kernel) and B.3 (the MLP after attention)."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import (
    mlp_attention,
    positive_features,
    softmax_attention,
    softmax_kernel_view,
    softmax_weights,
    taylor_features,
)
from icltheory.trajectory import implicit_update_mlp
from tests import oracles
from tests.oracles import relative, z_score
from tests.raising import raises

N, n = 5, 4


def layer(seed=0, size=0.35):
    """Projections whose logits stay below about 1, and tokens."""
    rng = np.random.default_rng(seed)
    W_V, W_K, W_Q = size * rng.normal(size=(3, n, n))
    return W_V, W_K, W_Q, rng.normal(size=(N, n)), rng.normal(size=n)


# B.2


@pytest.mark.statement("Yao: Eq. (1)", "Yao: Eq. (2)")
@pytest.mark.parametrize("d_scale", [1.0, 4.0])
def test_eq_1_and_2_softmax_attention_is_the_double_sum(d_scale, measured):
    for seed, mask in itertools.product(range(3), ("demos", "causal", "none")):
        *W, H, h = layer(seed)
        out = softmax_attention(*W, H, h, mask=mask, d_scale=d_scale, scale=0.7)
        tokens = np.vstack([H, h])
        expected = oracles.softmax_layer(*W, tokens, mask, d_scale, 0.7)
        measured("error", np.vstack([out.H, out.h_query]) - expected, below=1e-14)
    # the mask stands outside the softmax, so that the query keeps a part
    logits = np.array([(W[1] @ k) @ (W[2] @ h) for k in [*H, h]]) / np.sqrt(d_scale)
    on_demos = 1 - np.exp(logits[-1]) / np.exp(logits).sum()
    weights = softmax_weights(W[1], W[2], H, h, d_scale=d_scale, mask="demos")
    weights = np.asarray(weights)[-1]
    measured("sum of the demonstrations' weights", weights[:N].sum(), below=0.99)
    np.testing.assert_allclose(weights[:N].sum(), on_demos, rtol=1e-13)
    assert weights[-1] == 0


@pytest.mark.statement("Yao: B.2, eq. (9)")
def test_eq_9_normalises_over_the_keys_not_over_the_queries(measured):
    W_V, W_K, W_Q, H, h = layer(size=1.0)
    tokens = np.vstack([H, h])
    # columns are tokens in the paper: A_u[i, j] is key i against query j
    A_u = np.exp((W_K @ tokens.T).T @ (W_Q @ tokens.T))
    right = A_u @ np.diag(1 / (np.ones(N + 1) @ A_u))
    printed = np.diag(1 / (A_u @ np.ones(N + 1))) @ A_u
    weights = np.asarray(softmax_weights(W_K, W_Q, H, h, d_scale=1, mask="none")).T
    measured("relative error as printed", relative(weights, printed))
    measured("corrected", relative(weights, right), below=1e-14)
    assert relative(weights, printed) > 0.5
    fewer = A_u[:-1] @ np.diag(1 / (np.ones(N) @ A_u[:-1]))  # N keys, as 1_N says
    assert relative(weights[:-1], fewer) > 0.05


@pytest.mark.statement("Yao: B.2, eq. (10)")
def test_eq_10_softmax_kernel_is_a_gaussian_kernel_between_two_norms(measured):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3))
    gauss = np.exp(-np.sum((x - y) ** 2) / 2)
    product = np.exp(x @ x / 2) * gauss * np.exp(y @ y / 2)
    measured("relative error", product / np.exp(x @ y) - 1, below=1e-14)
    taylor = np.dot(taylor_features(x, 12), taylor_features(y, 12))
    measured("Taylor, degree 12", taylor / np.exp(x @ y) - 1, below=1e-6)


@pytest.mark.statement("Yao: B.2, eq. (12)")
@pytest.mark.parametrize("d_scale", [1.0, 4.0])
def test_eq_12_the_kernel_view_is_softmax_attention_of_the_query(d_scale, measured):
    *W, H, h = layer(size=1.0)
    view = softmax_kernel_view(*W, H, h, d_scale=d_scale)
    tokens = oracles.softmax_layer(*W, np.vstack([H, h]), "demos", d_scale)
    measured("error", view.h_query - tokens[-1], below=1e-14)
    moved = softmax_attention(*W, H, h, d_scale=d_scale).h_query - h
    change = np.asarray(view.delta_W) @ np.asarray(view.query_features)
    np.testing.assert_allclose(change, moved, atol=1e-14)
    kernel = [np.exp((W[1] @ k) @ (W[2] @ h) / np.sqrt(d_scale)) for k in [*H, h]]
    np.testing.assert_allclose(view.normalizer, sum(kernel), rtol=1e-14)


@pytest.mark.statement("Yao: B.2, eq. (11)")
def test_eq_12_taylor_features_converge_like_the_exponential_series(measured):
    *W, H, h = layer(size=0.45)
    exact = softmax_attention(*W, H, h, d_scale=n).h_query
    z = max(abs((W[1] @ k) @ (W[2] @ h)) / math.sqrt(n) for k in [*H, h])
    values = np.linalg.norm(H @ W[0].T, axis=1).max()
    errors = []
    for degree in range(1, 7):
        view = softmax_kernel_view(
            *W, H, h, d_scale=n, features="taylor", degree=degree
        )
        assert view.operator.shape == (n, sum(n**k for k in range(degree + 1)))
        errors.append(float(np.linalg.norm(view.h_query - exact)))
        # each of N + 1 kernels is off by at most the remainder, in sum and normaliser
        remainder = math.exp(z) * z ** (degree + 1) / math.factorial(degree + 1)
        normalizer = view.normalizer
        assert errors[-1] <= 2 * (N + 1) * remainder * values / float(normalizer)
    measured("error, degree 1", errors[0])
    measured("degree 6", errors[-1])
    assert errors[2] > errors[3] > errors[4] > errors[5]
    assert errors[-1] < 1e-3 * errors[0]  # 2 z^5 / 7! with z near 1


@pytest.mark.statement("Yao: B.2, eq. (11)")
def test_positive_features_are_unbiased_with_the_predicted_error(measured):
    rng = np.random.default_rng(0)
    x, y = 0.5 * rng.normal(size=(2, 3))
    F, repeats = 64, 4000

    @jax.jit
    @jax.vmap
    def estimate(key):
        directions = jax.random.normal(key, (F, 3))
        return positive_features(x, directions) @ positive_features(y, directions)

    kernel = np.exp(x @ y)
    draws = np.asarray(estimate(jax.random.split(jax.random.key(0), repeats)))
    errors = draws / kernel - 1
    measured("z of the mean", z_score(errors, 0), below=5)
    predicted = (np.exp(np.sum((x + y) ** 2)) - 1) / F
    measured("z of the mean square", z_score(errors**2, predicted), below=5)


@pytest.mark.statement("Yao: B.2, eq. (11)")
def test_positive_features_improve_like_one_over_the_root(key, measured):
    *W, H, h = layer()
    exact = softmax_attention(*W, H, h, d_scale=n).h_query

    def error(num_features, key):
        drawn = {"features": "positive", "num_features": num_features, "key": key}
        view = softmax_kernel_view(*W, H, h, d_scale=n, **drawn)
        return jnp.sum((view.h_query - exact) ** 2)

    keys = jax.random.split(key, 100)
    few, many = (
        np.sqrt(jax.jit(jax.vmap(functools.partial(error, F)))(keys).mean())
        for F in (64, 1024)
    )
    measured("error at 64 over 1024 features, 4 in theory", few / many)
    # a factor 4 in theory; 100 squared errors fix each root to about 10 percent
    assert 2.5 < float(few / many) < 6


@pytest.mark.statement("Yao: B.2, eq. (12)")
def test_only_the_operator_is_free_of_the_query(measured):
    *W, H, h = layer()
    views = [
        softmax_kernel_view(*W, H, q, d_scale=1, features="taylor", degree=3)
        for q in (h, 2 * h)
    ]
    np.testing.assert_array_equal(views[0].operator, views[1].operator)
    change = relative(views[1].delta_W, views[0].delta_W)
    measured("change when the query doubles", change)
    assert change > 0.01
    divided = np.asarray(views[0].operator) / float(views[0].normalizer)
    np.testing.assert_allclose(views[0].delta_W, divided, rtol=1e-14)


@pytest.mark.statement("Yao: B.2 (rank)")
def test_rank_of_the_operator_is_at_most_the_rank_of_the_demonstrations(measured):
    W_V, W_K, W_Q, H, h = layer()
    H = H[:2][np.array([0, 1, 0, 1, 0])]
    view = softmax_kernel_view(
        W_V, W_K, W_Q, H, h, d_scale=1, features="taylor", degree=3
    )
    rank = np.linalg.matrix_rank(view.operator, tol=1e-10)
    measured("rank, rank H_s = 2", rank)
    assert rank == 2


@pytest.mark.statement("Yao: B.2, eq. (12)")
def test_kernel_view_of_no_demonstrations_and_bad_input():
    *W, H, h = layer()
    view = softmax_kernel_view(*W, H[:0], h, d_scale=1)
    np.testing.assert_array_equal(view.h_query, h)
    for message, wrong in (
        ("features: expected one of 'exact', 'taylor'", {"features": "fourier"}),
        ("key: expected a key for positive features", {"features": "positive"}),
        ("degree: expected a positive integer, got 0", {"degree": 0}),
    ):
        with raises(message):
            softmax_kernel_view(*W, H, h, d_scale=1, **{"features": "taylor"} | wrong)


# B.3

DIM1, DIM2 = 6, 40


def block(seed=0):
    rng = np.random.default_rng(seed)
    W_V, W_K, W_Q = 0.4 * rng.normal(size=(3, DIM1, n))
    W_in, W_out = rng.normal(size=(DIM2, DIM1)), rng.normal(size=(n, DIM2))
    W = W_V, W_K, W_Q, W_in / np.sqrt(DIM1), W_out / np.sqrt(DIM2)
    return W, rng.normal(size=(N, n)), rng.normal(size=n)


@pytest.mark.statement("Yao: B.3 (linear)")
@pytest.mark.parametrize("mlp", ["linear", "half", "gated"])
def test_b_3_update_moves_the_query_like_the_block(mlp, measured):
    W, H, h = block()
    delta_W = implicit_update_mlp(*W, H, h, scale=0.5, mlp=mlp)
    expected = oracles.mlp_layer(*W, np.vstack([H, h]), "demos", mlp, 0.5)[-1]
    measured(f"error, {mlp}", h + delta_W @ h - expected, below=1e-13)
    moved = mlp_attention(*W, H, h, scale=0.5, mlp=mlp).h_query
    np.testing.assert_allclose(moved, expected, atol=1e-13)


@pytest.mark.statement("Yao: B.3 (linear)")
def test_b_3_linear_update_is_the_product_of_the_paper(measured):
    W, H, _ = block()
    z = oracles.implicit_update(*W[:3], H)
    delta_W = implicit_update_mlp(*W, H, mlp="linear")
    measured("error of the product", delta_W - W[4] @ W[3] @ z, below=1e-13)


@pytest.mark.statement("Yao: B.3 (linear)")
def test_b_3_gated_update_depends_on_the_query(measured):
    W, H, h = block()
    here = implicit_update_mlp(*W, H, h)
    np.testing.assert_allclose(here, implicit_update_mlp(*W, H, 2 * h), atol=1e-15)
    change = relative(implicit_update_mlp(*W, H, -h), here)  # the other gates open
    measured("change when the query changes sign", change)
    assert change > 0.5
    with raises("h_query: expected a token for mlp='gated'"):
        implicit_update_mlp(*W, H)


@pytest.mark.statement("Yao: B.3 (relaxation)")
def test_b_3_dropping_the_relu_is_far_off(measured):
    # relu(u) and relu(-u) = relu(u) - u have the same law, so the rms error relative to
    # the output is 1 for the identity and 1 / sqrt(2) for one half, the best slope;
    # 300 blocks fix these numbers to about 5 percent
    exact, linear = [], []
    for seed in range(300):
        W, H, h = block(seed)
        a = np.asarray(mlp_attention(*W, H, h, mlp="gated").h_query) - h
        b = np.asarray(mlp_attention(*W, H, h, mlp="linear").h_query) - h
        size = np.hypot(np.linalg.norm(a), np.linalg.norm(a - b))
        exact.append(a / size)  # blocks of degree three in H: weigh them alike
        linear.append(b / size)
    exact, linear = np.ravel(exact), np.ravel(linear)
    norm = np.linalg.norm(exact)
    dropped = np.linalg.norm(linear - exact) / norm
    measured("relative rms error without the relu", dropped)
    np.testing.assert_allclose(dropped, 1.0, atol=0.1)
    half = np.linalg.norm(linear / 2 - exact) / norm
    measured("with one half", half)
    np.testing.assert_allclose(half, np.sqrt(0.5), atol=0.1)
    slope = exact @ linear / (linear @ linear)
    measured("best slope", slope)
    np.testing.assert_allclose(slope, 0.5, atol=0.05)
