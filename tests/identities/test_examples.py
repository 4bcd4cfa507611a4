"""Equations (18) to (20) and Examples 1 to 4: what pruning does to the update's norm.

Equation (18) holds, (19) holds with slack, (20) and the line (**) are false as written.
The examples that stand on (20) are saved where the pruned matrix is an outermost factor
of the update: there (20) is an equality.
"""

import jax
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.linalg import low_rank_approximation
from icltheory.pruning import frobenius_split, update_split, update_upper_bound
from icltheory.trajectory import implicit_gd_norms
from tests import oracles
from tests.oracles import share_z, truncate
from tests.raising import raises

n, N, DRAWS = 4, 3, 1000


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def square(M):
    return np.sum(np.asarray(M) ** 2, axis=(-2, -1))


def weights(seed=0, count=N):
    return (*draws(3, n, n, seed=seed), draws(count, n, seed=seed + 1))


@pytest.mark.statement("Yao: Eq. (18)")
def test_equation_18_norm_of_an_outer_product(measured):
    a, b = draws(6), draws(5, seed=1)
    outer = np.array([[x * y for y in b] for x in a])
    s = np.linalg.svd(outer)[1]
    for value in (s[0], np.linalg.norm(a) * np.linalg.norm(b)):
        np.testing.assert_allclose(np.sqrt(square(outer)), value, rtol=1e-14)
    measured("relative error", abs(s[0] / np.sqrt(square(outer)) - 1))


@pytest.mark.statement("Yao: Eq. (19)")
def test_equation_19_submultiplicative_and_tighter_with_the_spectral_norm(measured):
    A, B = draws(2, DRAWS, 6, 6)
    product = np.sqrt(square(A @ B))
    spectral = np.sqrt(square(A)) * np.linalg.norm(B, 2, axis=(1, 2))
    printed = np.sqrt(square(A) * square(B))
    assert (product <= spectral).all()
    assert (spectral < printed).all()
    measured("mean ratio of the printed bound", (printed / product).mean())
    measured("mean ratio of the tighter bound", (spectral / product).mean())


@pytest.mark.statement("Yao: Eq. (20)")
def test_equation_20_fails_for_half_of_all_pairs(measured):
    A, B = draws(2, 4000, 4, 4)
    fails = square(A + B) > square(A) + square(B)
    np.testing.assert_array_equal(fails, np.sum(A * B, axis=(1, 2)) > 0)
    assert abs(share_z(fails, 0.5)) < 5
    measured("share of Gaussian pairs that fail", fails.mean())
    np.testing.assert_allclose(square(2 * A[0]) / (2 * square(A[0])), 2)  # A = B: twice


@pytest.mark.statement("Yao: Eq. (20)")
def test_equation_20_is_an_equality_for_svd_parts_unless_in_the_middle(measured):
    W, X, A = draws(3, 6, 6)
    kept = truncate(W, 2)
    removed = W - kept

    def ratio(act):
        return square(act(W)) / (square(act(kept)) + square(act(removed)))

    outermost = [ratio(lambda M: M), ratio(lambda M: X @ M), ratio(lambda M: M @ X)]
    np.testing.assert_allclose(outermost, 1, rtol=1e-13)
    middle = ratio(lambda M: X @ M @ A)
    assert abs(middle - 1) > 1e-2
    measured("largest error, outermost factor", np.abs(np.array(outermost) - 1).max())
    measured("ratio of the two sides, middle factor", middle)


@pytest.mark.statement("Yao: Example 1 (**)")
def test_line_double_star_needs_squares(measured):
    W = draws(6, 4)
    s = np.linalg.svd(W)[1]
    np.testing.assert_allclose(frobenius_split(W, 4).kept, np.sum(s**2), rtol=1e-14)
    np.testing.assert_allclose(square(W), np.sum(s**2), rtol=1e-14)
    assert abs(square(W) / np.sum(s) - 1) > 0.1  # as printed
    assert square(2 * np.eye(2)) == 8  # against sigma_1 + sigma_2 = 4
    measured("norm squared over the sum of singular values", square(W) / np.sum(s))


@pytest.mark.statement("Yao: Example 1 (display)")
def test_example_1_first_display_is_an_identity(measured):
    W, h = draws(6, 6), draws(6, seed=1)
    for rank in range(7):
        kept = truncate(W, rank)
        parts = np.sum((kept @ h) ** 2) + np.sum(((W - kept) @ h) ** 2)
        np.testing.assert_allclose(np.sum((W @ h) ** 2), parts, rtol=1e-13)
    measured("relative error", abs(parts / np.sum((W @ h) ** 2) - 1))


def printed_UB(W_V, W_K, W_Q, H):
    total = 0.0
    for h in H:
        total += square(np.outer(W_V @ h, W_K @ h))
    return total * square(W_Q)


@pytest.mark.statement("Yao: Example 1 (UB)")
def test_example_1_the_three_numbers_against_loops():
    for count in (2, 9):  # through the N x N and through the n x n matrix
        *W, H = weights(count=count)
        found = update_upper_bound(*W, H, scale=0.5)
        exact = square(oracles.implicit_update(*W, H, 0.5))
        np.testing.assert_allclose(found.exact, exact, rtol=1e-13)
        np.testing.assert_allclose(found.printed, printed_UB(*W, H) / 4, rtol=1e-13)
        np.testing.assert_allclose(found.corrected, count * found.printed, rtol=1e-14)


@pytest.mark.statement("Yao: Example 1 (UB)")
def test_example_1_ub_is_too_small_by_the_factor_n_for_equal_demonstrations(measured):
    W_V, W_K, _, H = weights()
    H = np.tile(H[:1], (32, 1))
    k = W_K @ H[0]
    found = jax.tree.map(np.asarray, update_upper_bound(W_V, W_K, np.outer(k, k), H))
    ratio = found.exact / found.printed
    measured("norm squared over UB, 32 equal demonstrations", ratio)
    np.testing.assert_allclose(ratio, 32, rtol=1e-12)
    np.testing.assert_allclose(found.exact, found.corrected, rtol=1e-12)


@pytest.mark.statement("Yao: Example 1 (UB)")
def test_example_1_ub_fails_for_random_weights_and_n_ub_never(measured):
    batch = jax.jit(jax.vmap(update_upper_bound))
    for count, least in ((4, 0.005), (64, 0.8), (256, 0.97)):
        *W, H = *draws(3, 300, n, n), draws(300, count, n, seed=1)
        found = batch(*W, H)
        violated = np.mean(found.exact > found.printed)
        assert violated > least
        assert (found.exact <= found.corrected).all()
        measured(f"share of draws with UB violated, N = {count}", violated)


@pytest.mark.statement("Yao: Example 1 (*)")
def test_example_1_pruning_lowers_ub():
    for seed in range(5):
        *W, H = weights(seed)
        whole = update_upper_bound(*W, H).printed
        for i in range(3):
            pruned = [truncate(M, 2) if i == j else M for j, M in enumerate(W)]
            assert update_upper_bound(*pruned, H).printed <= whole


MLP = {"W_in": draws(6, n, seed=5), "W_out": draws(n, 6, seed=6)}


@pytest.mark.statement("Yao: Example 2 (W_Q)", case="W_Q")
@pytest.mark.statement("Yao: Example 3 (W_V)", case="W_V")
@pytest.mark.statement("Yao: Example 3 (W_K)", case="W_K")
@pytest.mark.statement("Yao: Example 4 (W_MLP)", case="W_MLP")
@pytest.mark.statement("Yao: Example 4 (W_MLP)", case="W_out")
@pytest.mark.statement("Yao: Example 4 (in practice)", case="W_in")
@pytest.mark.parametrize("module", ["W_V", "W_K", "W_Q", "W_in", "W_out", "W_MLP"])
def test_the_split_of_the_update_against_loops(module):
    *W, H = weights()
    named = dict(zip(("W_V", "W_K", "W_Q"), W, strict=True))
    mlp = {} if module in named else MLP
    found = update_split(module, 2, *W, H, scale=0.5, **mlp)

    def update(change):
        current = named | MLP | change
        z = oracles.implicit_update(*map(current.get, named), H, 0.5)
        if not mlp:
            return z
        return current.get("W_MLP", current["W_out"] @ current["W_in"]) @ z

    M = (named | MLP | {"W_MLP": MLP["W_out"] @ MLP["W_in"]})[module]
    kept, removed = (update({module: P}) for P in (truncate(M, 2), M - truncate(M, 2)))
    whole = square(update({}))
    for got, want in (
        (found.whole, whole),
        (found.kept, square(kept)),
        (found.removed, square(removed)),
        (found.cross, np.sum(kept * removed)),
    ):
        np.testing.assert_allclose(got, want, atol=1e-12 * whole)
    total = found.kept + found.removed + 2 * found.cross
    np.testing.assert_allclose(found.whole, total, rtol=1e-12)


def splits(module, rank=n - 1, mlp=False):
    W_V, W_K, W_Q = draws(3, DRAWS, n, n)
    H = draws(DRAWS, N, n, seed=1)
    mlp = mlp or module not in ("W_V", "W_K", "W_Q")
    W_in, W_out = draws(DRAWS, 6, n, seed=2), draws(DRAWS, n, 6, seed=3)

    def one(V, K, Q, H, W_in, W_out):
        extra = {"W_in": W_in, "W_out": W_out} if mlp else {}
        return update_split(module, rank, V, K, Q, H, **extra)

    found = jax.jit(jax.vmap(one))(W_V, W_K, W_Q, H, W_in, W_out)
    return found, np.sqrt(found.kept / found.whole)


def report(measured, found, ratio):
    measured("largest cross term over whole", np.abs(found.cross / found.whole).max())
    measured("share of draws with a raised norm", np.mean(ratio > 1 + 1e-9))
    measured("largest ratio after pruning", ratio.max())


@pytest.mark.statement("Yao: Example 2 (W_Q)", case="W_Q*")
@pytest.mark.statement("Yao: Example 3 (W_V)", case="W_V*")
@pytest.mark.statement("Yao: Example 4 (W_MLP)", case="W_MLP*")
@pytest.mark.statement("Yao: Example 4 (W_MLP)", case="W_out*")
@pytest.mark.parametrize("module", ["W_Q", "W_V", "W_MLP", "W_out"])
def test_examples_2_to_4_exact_for_an_outermost_matrix(module, measured):
    found, ratio = splits(module)
    np.testing.assert_allclose(found.cross / found.whole, 0, atol=1e-12)
    assert ratio.max() <= 1 + 1e-12
    report(measured, found, ratio)


@pytest.mark.statement("Yao: Example 3 (W_K)", case="W_K*")
@pytest.mark.statement("Yao: Example 4 (in practice)", case="W_in*")
@pytest.mark.parametrize(
    ("module", "mlp"), [("W_K", False), ("W_in", True), ("W_V", True)]
)
def test_examples_3_and_4_false_for_a_matrix_in_the_middle(module, mlp, measured):
    found, ratio = splits(module, mlp=mlp)
    assert np.mean(found.cross > 1e-9 * found.whole) > 0.05  # (20) fails
    assert np.mean(ratio > 1 + 1e-9) > 0.05  # and the norm itself rises
    raised = ratio > 1 + 1e-9
    np.testing.assert_array_equal(raised, found.cross < -found.removed / 2 * (1 + 1e-9))
    report(measured, found, ratio)


@pytest.mark.statement("Yao: Example 3 (W_K)")
def test_example_3_counter_example_with_whole_numbers(measured):
    """The removed direction of W_K cancels most of the kept one."""
    H, W_V = np.eye(2), np.array([[1.0, 1.0], [0.0, 0.0]])
    W_K, W_Q = np.diag([2.0, 1.0]), np.array([[1.0, 0.0], [-2.0, 0.0]])
    found = update_split("W_K", 1, W_V, W_K, W_Q, H)
    np.testing.assert_allclose([found.whole, found.kept], [0, 4], atol=1e-14)
    measured("norm before", np.sqrt(np.abs(found.whole)))
    measured("norm after pruning W_K to rank 1", np.sqrt(found.kept))


@pytest.mark.statement("Yao: Example 4 (in practice)")
def test_example_4_false_for_the_two_matrices_pruned_one_by_one(measured):
    W_in, W_out = draws(DRAWS, 6, n, seed=2), draws(DRAWS, n, 6, seed=3)
    z = draws(DRAWS, n, n)
    whole = square(W_out @ W_in @ z)
    separate = np.sqrt(square(truncate(W_out, 3) @ truncate(W_in, 3) @ z) / whole)
    product = np.sqrt(square(truncate(W_out @ W_in, 3) @ z) / whole)
    assert product.max() <= 1 + 1e-12
    assert np.mean(separate > 1) > 0.1
    measured("share of draws with a raised norm", np.mean(separate > 1))
    measured("largest ratio after pruning", separate.max())


@pytest.mark.statement("Yao: Example 2 (W_Q)", "Yao: Example 3 (W_V)")
def test_examples_2_and_3_for_the_implicit_gradient_of_a_later_layer(measured):
    """G_t = dW_t P: W_Q is no longer outermost, W_V still is."""
    W_V, W_K, W_Q = draws(3, 300, 2, n, n) / 2
    H = draws(300, N, n, seed=1)
    cut = jax.jit(jax.vmap(lambda W: low_rank_approximation(W, n - 1)))

    def pruned(W):
        return np.stack([W[:, 0], cut(W[:, 1])], axis=1)

    @jax.jit
    @jax.vmap
    def norms(V, K, Q, H):
        return implicit_gd_norms(LinearAttentionStack(V, K, Q), H, method="dense").G[1]

    before = norms(W_V, W_K, W_Q, H)
    value = norms(pruned(W_V), W_K, W_Q, H) / before
    query = norms(W_V, W_K, pruned(W_Q), H) / before
    assert value.max() <= 1 + 1e-9
    assert np.mean(query > 1 + 1e-9) > 0.1
    measured("largest ratio of G_2, W_V pruned", value.max())
    measured("largest ratio of G_2, W_Q pruned", query.max())
    measured("share of draws in which W_Q raises G_2", np.mean(query > 1 + 1e-9))


@pytest.mark.statement("Yao: Example 3 (W_V)")
def test_gradients_survive_identity_weights():
    I = np.eye(3)
    for module in ("W_V", "W_K", "W_Q"):

        def kept(W, name=module):
            named = {"W_V": I, "W_K": I, "W_Q": I} | {name: W}
            return update_split(name, 3, **named, H=I).kept

        assert np.isfinite(jax.jit(jax.grad(kept))(2 * I)).all()


@pytest.mark.statement("Yao: Example 4 (W_MLP)")
def test_bad_input():
    *W, H = weights()
    with raises("W_in, W_out: expected both matrices of the MLP, got None"):
        update_split("W_MLP", 2, *W, H)
    with raises("rank: expected 0 <= rank <= 4, got 5"):
        update_split("W_Q", 5, *W, H)
    with raises("W_out: expected shape (4, 6), got (3, 6)"):
        update_split("W_in", 2, *W, H, W_in=MLP["W_in"], W_out=MLP["W_out"][:3])
