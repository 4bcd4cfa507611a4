import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from icltheory.attention import (
    LinearAttentionStack,
    MLPAttentionStack,
    SoftmaxAttentionStack,
)
from icltheory.trajectory import (
    Trajectory,
    TrajectoryFactors,
    implicit_gd,
    implicit_gd_blocks,
    implicit_gd_norms,
    implicit_update,
    implicit_update_mlp,
)
from icltheory.trajectory._recursion import (
    Learner,
    factor_recursion,
    parts_on_path,
    prepare,
    token_recursion,
)
from tests import stacks
from tests.derivatives import slope_error
from tests.raising import raises
from tests.stacks import problem

DEMO_UPDATES = ("shared", "causal", "frozen")
# L, N, n: factors (L N < n), gram (N > n), dense
FEW, MANY, BETWEEN = (2, 3, 8), (3, 9, 4), (3, 4, 6)


def factors_of(stack, H, demo_updates="shared", scale=1.0):
    """Thin factors by their own recursion, which takes over for L N < n."""
    learner, H = prepare(stack, H, demo_updates, scale)
    return TrajectoryFactors(*factor_recursion(learner, H))


@functools.partial(jax.jit, static_argnames=("demo_updates", "methods"))
def every_path(stack, H, h, scale, demo_updates, methods):
    """Trajectories, their outputs, and norms, by all methods that apply."""
    options = {"demo_updates": demo_updates, "scale": scale}
    factors = factors_of(stack, H, **options)
    paths = [implicit_gd(stack, H, method=m, **options) for m in methods]
    outputs = [path.outputs(h) for path in (*paths, factors)]
    norms = [
        implicit_gd_norms(stack, H, method=m, **options) for m in (*methods, "factors")
    ]
    left = jnp.swapaxes(factors.left, 1, 2)
    G = left @ factors.right_G
    dense = Trajectory(left @ factors.right_delta_W, G, jnp.cumsum(G, axis=0))
    return [*paths, dense], outputs, norms


@pytest.mark.parametrize("demo_updates", ["shared", "frozen"])
def test_parts_at_the_weights_of_the_recursion_are_its_parts(demo_updates):
    # the bound of a noisy path takes the parts at other weights by the same function
    stack, H, _ = problem(*BETWEEN, rho=0.4)
    W = stacks.trajectory(stack, H, demo_updates, 0.7)[2]
    before = np.concatenate([0 * W[:1], W[:-1]])
    learner = Learner(stack, demo_updates, jnp.asarray(0.7))
    for got, want in zip(
        parts_on_path(learner, H, before), token_recursion(learner, H), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.statement("Yao: Theorem 1 (identity)")
@pytest.mark.parametrize("sizes", [FEW, MANY])
@pytest.mark.parametrize(
    ("demo_updates", "methods"),
    [
        ("shared", ("dense", "gram")),
        ("causal", ("dense",)),
        ("frozen", ("dense", "gram")),
    ],
)
def test_every_path_equals_the_loops(sizes, demo_updates, methods):
    stack, H, h = problem(*sizes, rho=0.4)
    delta_W, G, W = stacks.trajectory(stack, H, demo_updates, 0.7)
    P = np.eye(sizes[2]) + np.concatenate([0 * W[:1], W])  # 1 + W_0, ..., 1 + W_L
    paths, outputs, norms = every_path(stack, H, h, 0.7, demo_updates, methods)
    for path in paths:
        for got, want in zip(jax.tree.leaves(path), (delta_W, G, W), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-12 * np.abs(want).max())
    for output in outputs:
        np.testing.assert_allclose(output, P @ np.asarray(h), atol=1e-12)
    for norm in norms:  # 1e-10 is the promise; rounding leaves about 1e-15
        for got, want in zip(jax.tree.leaves(norm), (delta_W, G, P[:-1]), strict=True):
            want = np.linalg.norm(want, axis=(1, 2))
            np.testing.assert_allclose(got, want, rtol=1e-12)
        assert float((norm.G / (norm.delta_W * norm.one_plus_W)).max()) < 1 + 1e-12


@pytest.mark.parametrize(("sizes", "method"), [(FEW, "factors"), (MANY, "gram")])
def test_norms_of_updates_above_1_are_those_of_the_loops(sizes, method):
    stack, H, _ = problem(*sizes, rho=10.0)
    delta_W, G, W = stacks.trajectory(stack, H, "shared")
    P = np.eye(sizes[2]) + np.concatenate([0 * W[:1], W[:-1]])
    assert np.abs(G[:-1]).max() > 2
    norms = implicit_gd_norms(stack, H, method=method)
    for got, want in zip(jax.tree.leaves(norms), (delta_W, G, P), strict=True):
        np.testing.assert_allclose(got, np.linalg.norm(want, axis=(1, 2)), rtol=1e-11)


@pytest.mark.parametrize(
    ("sizes", "demo_updates", "method"),
    [
        (FEW, "shared", "factors"),
        (FEW, "causal", "factors"),
        (MANY, "shared", "gram"),
        (MANY, "causal", "dense"),
        (BETWEEN, "shared", "dense"),
    ],
)
def test_auto_takes_the_cheapest_path(sizes, demo_updates, method):
    stack, H, _ = problem(*sizes, rho=0.4)

    def program(method):
        run = lambda stack, H: implicit_gd_norms(  # noqa: E731
            stack, H, demo_updates=demo_updates, method=method
        )
        return str(jax.make_jaxpr(run)(stack, H))

    others = {"factors", "dense", "gram"} - {method}
    if demo_updates == "causal":
        others -= {"gram"}
    assert program("auto") == program(method)
    assert all(program("auto") != program(other) for other in others)


@pytest.mark.parametrize("demo_updates", DEMO_UPDATES)
@pytest.mark.parametrize("run", [factors_of, implicit_gd_norms])
def test_thin_paths_form_no_square_matrix(run, demo_updates):
    L, N, n = 3, 4, 50
    stack, H, _ = problem(L, N, n, rho=0.4)
    program = str(
        jax.make_jaxpr(lambda stack, H: run(stack, H, demo_updates=demo_updates))(
            stack, H
        )
    )
    shapes = re.findall(r"f64\[([\d,]*)\] = dot_general", program)
    assert shapes
    for shape in shapes:
        assert np.prod([int(size) for size in shape.split(",")]) <= L * N * n < n * n


@pytest.mark.slow
def test_without_demonstrations_nothing_moves():
    stack, H, h = problem(3, 0, 4, rho=0.4)
    methods = ("dense", "gram")
    paths, outputs, norms = every_path(stack, H, h, 1.0, "shared", methods)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(paths))
    for output in outputs:
        np.testing.assert_array_equal(output, jnp.tile(h, (4, 1)))
    for norm in norms:
        np.testing.assert_array_equal(norm.delta_W, np.zeros(3))
        np.testing.assert_array_equal(norm.G, np.zeros(3))
        np.testing.assert_array_equal(norm.one_plus_W, np.full(3, 2.0))

    @jax.jit
    @jax.grad
    def gradient(stack):
        norms = implicit_gd_norms(stack, H, method="factors")
        return sum(leaf.sum() for leaf in jax.tree.leaves(norms))

    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient(stack)))


@pytest.mark.slow
@pytest.mark.parametrize("demo_updates", ["shared", "causal"])
def test_gradients_agree_with_finite_differences(demo_updates):
    stack, H, h = problem(*BETWEEN, rho=0.4)
    methods = ("dense", "gram") if demo_updates == "shared" else ("dense",)
    rng = np.random.default_rng(3)

    def every(stack, H):
        return every_path(stack, H, h, 1.0, demo_updates, methods)[1:]

    shapes = jax.eval_shape(every, stack, H)
    weigh = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), shapes)

    def loss(stack, H):  # every output of every path, each with its own weight
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), every(stack, H), weigh)
        return sum(jax.tree.leaves(products))

    # truncation ~ step^2, rounding ~ eps / step ~ 1e-10
    assert abs(slope_error(loss, stack, H)) < 1e-6


@functools.partial(jax.jit, static_argnames=("demo_updates", "method", "dtype"))
def errors_jit(stack, H, h, demo_updates="shared", method="auto", dtype=jnp.float32):
    """Relative errors of the recursion in ``dtype`` against the layers in float64."""
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (stack, H, h))
    stack, H, h = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), low)
    options = {"demo_updates": demo_updates}
    if method == "factors":
        trajectory = factors_of(*low[:2], **options)
    else:
        trajectory = implicit_gd(*low[:2], method=method, **options)
    mask = "demos" if demo_updates == "shared" else "causal"
    exact = stack.apply(H, h, mask).h_query[1:]
    errors = jnp.linalg.norm(trajectory.outputs(low[2])[1:] - exact, axis=1)
    return errors / jnp.linalg.norm(exact, axis=1)


@pytest.mark.parametrize("L", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_float32_recursion_stays_at_rounding_at_every_depth(L):
    problem_L = problem(L, 16, 16, rho=0.1)
    for method in ("dense", "gram", "factors"):
        errors = errors_jit(*problem_L, method=method)
        print(f"L = {L}, {method}: float32 error at most {errors.max():.1e}")
        assert errors.shape == (L,)
        # float32 has eps 1.2e-7; sums of 16 terms and 32 layers cost a few of them
        assert 0 < float(errors.max()) < 1e-6


def test_float64_recursion_and_causal_demonstrations_at_every_depth():
    problem_8 = problem(8, 16, 16, rho=0.1)
    assert float(errors_jit(*problem_8, dtype=jnp.float64).max()) < 1e-14
    assert 0 < float(errors_jit(*problem_8, demo_updates="causal").max()) < 1e-6


def test_dtype_follows_the_input():
    args = jax.tree.map(lambda x: x.astype(jnp.float32), problem(*BETWEEN, rho=0.4))

    def run(stack, H, h):
        scale = np.float64(0.5)
        return every_path(stack, H, h, scale, "shared", ("dense", "gram"))

    results = jax.eval_shape(run, *args)
    assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {jnp.dtype("float32")}


@pytest.mark.parametrize("method", ["dense", "gram", "factors"])
@pytest.mark.parametrize("scale", [1e25, 1e-12, 1e-25])
def test_norms_whose_squares_leave_the_range_of_float32(method, scale):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(3, 2, 3, 3)).astype(np.float32)
    W[0, 1] *= np.float32(1e-25)  # keeps the second layer in range
    H = rng.normal(size=(2, 3)).astype(np.float32)

    def norms(dtype):
        stack = LinearAttentionStack(*W.astype(dtype))
        options = {"scale": np.asarray(scale, dtype), "method": method}
        return implicit_gd_norms(stack, H.astype(dtype), **options)

    found, expected = norms(np.float32), norms(np.float64)
    for ours, exact in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        assert ours.dtype == np.float32
        kept = exact < np.finfo(np.float32).max
        np.testing.assert_allclose(ours[kept], exact[kept], rtol=1e-5, atol=1e-37)
    assert found.G[0] > 0


def test_bad_input_says_what_was_expected():
    stack, H, h = problem(*BETWEEN, rho=0.4)
    W = np.asarray(stack.W_V[0])
    choices = "'shared', 'causal', 'frozen', got 'none'"
    for run in (implicit_gd, factors_of, implicit_gd_norms):
        with raises("H: expected shape (N, 6), got (4, 5)"):
            run(stack, H[:, :5])
        with raises(f"demo_updates: expected one of {choices}"):
            run(stack, H, demo_updates="none")
    with raises("method: expected one of 'auto', 'dense', 'gram', got 'factors'"):
        implicit_gd(stack, H, method="factors")
    with raises("method: expected one of 'auto', 'factors', 'dense', 'gram', got ''"):
        implicit_gd_norms(stack, H, method="")
    for run in (implicit_gd, implicit_gd_norms):
        with raises("method: expected 'dense' for demo_updates 'causal', got 'gram'"):
            run(stack, H, demo_updates="causal", method="gram")
    for result in (implicit_gd(stack, H), factors_of(stack, H)):
        with raises("h_query: expected shape (6,), got (5,)"):
            result.outputs(h[:5])
    for message, args in (
        ("W_V: expected shape (n, n), got (6, 5)", (W[:, :5], W, W, H)),
        ("W_K: expected shape (6, 6), got (5, 5)", (W, W[:5, :5], W, H)),
        ("H: expected shape (N, 6), got (4, 5)", (W, W, W, H[:, :5])),
    ):
        with raises(message):
            implicit_update(*args)
    with raises("mlp: expected one of 'gated', 'linear', 'half', got 'relu'"):
        implicit_update_mlp(W, W, W, W, W, H, h, mlp="relu")
    softmax = SoftmaxAttentionStack(*jax.tree.leaves(stack), d_scale=1)
    with pytest.raises((ValueError, TypeCheckError)):  # Theorem 1 is about eq. (3)
        implicit_gd(softmax, H)
    other = MLPAttentionStack(*jax.tree.leaves(stack), stack.W_V, stack.W_V)
    with pytest.raises((ValueError, TypeCheckError)):  # its blocks are another model's
        implicit_gd_blocks(other, H, h)
