"""Every calculator multiplies exactly on every device, and half precision is widened.

A GPU would take TF32 for float32 products. What that does to the numbers is emulated
here, by rounding the operands of the products in the jaxpr of a function.
"""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import linalg, noise, pruning, trajectory
from icltheory._core import exact_products
from icltheory.attention import LinearAttentionStack
from icltheory.regression import predictors
from tests import products, theory_cases

CASES = theory_cases.cases()
# Public functions that are no calculators: they read or choose, return models or text,
# or run or train a model, whose precision is the caller's.
OTHERS = {
    "pruning": {
        *("by_layer", "choose_layers", "choose_rate", "corrected_selection", "search"),
        *("kept_parameters", "module_matrices", "module_spectra", "prune_model"),
        *("random_condition_number", "rank_for_rate", "sweep", "sweep_grid"),
    },
    "patterns": {
        *("all_tasks", "circulant_tasks", "covers", "error", "prune_neurons"),
        *("scores", "task_ratio", "train"),
    },
    "induction": {"find_heads", "head_scores"},
    "chain_of_thought": {"prompt_loss", "train_attention"},
    "regression.pretraining": {"leading_excess"},
    "regression.shifts": {"garg_shifts"},
}
PACKAGES = [
    *("attention", "trajectory", "noise", "bounds", "linalg", "constructions"),
    *("regression.gaps", "regression.landscape", "regression.transfer"),
    *("regression.depth", "regression.flow_limits", "regression.features"),
    *("regression.balanced_features", "regression.flows", "regression.kernels"),
    *OTHERS,
]


def cast(tree, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, dtype)), tree)


@pytest.fixture
def as_a_gpu_would():
    """JAX's own default, under which a GPU shortens float32."""
    with jax.default_matmul_precision("default"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_product_asks_for_the_highest_precision(name, as_a_gpu_would):
    case = CASES[name]
    found = products.products(case.function, *cast(case.arrays, jnp.float32))
    assert all(products.asks_for_highest(eqn) for eqn in found)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_is_a_calculator_or_known_to_be_none(package):
    module = importlib.import_module(f"icltheory.{package}")
    functions = {s for s in module.__all__ if inspect.isfunction(getattr(module, s))}
    marked = {s for s in functions if hasattr(getattr(module, s), "calculator")}
    assert functions - marked == OTHERS.get(package, set())


@pytest.mark.parametrize(
    "function",
    [
        lambda W: linalg.low_rank_approximation(W, 2).sum(),
        lambda W: pruning.frobenius_split(W, 2).kept,
        lambda W: trajectory.implicit_gd_norms(
            LinearAttentionStack(W[None], W[None], W[None]), W
        ).G.sum(),
    ],
    ids=["low_rank_approximation", "frobenius_split", "implicit_gd_norms"],
)
def test_derivatives_ask_for_it_too(function, as_a_gpu_would):
    # jit first: a rule of custom_jvp is then traced after the function returned
    slope = jax.grad(jax.jit(function))
    found = products.products(slope, jnp.eye(3, dtype=jnp.float32) + 0.1)
    assert found
    assert all(products.asks_for_highest(eqn) for eqn in found)


def test_the_mark_is_what_asks_for_it(as_a_gpu_would):
    W = jnp.eye(2, dtype=jnp.float32)
    for function, expected in ((exact_products(jnp.dot), True), (jnp.dot, False)):
        (product,) = products.products(function, W, W)
        assert products.asks_for_highest(product) == expected


@pytest.mark.slow
def test_what_tf32_would_do(as_a_gpu_would):
    """Bare functions lose three digits; marked ones lose none."""
    weights, H = cast(theory_cases.stack_and_tokens(2, 8, 3), jnp.float32)

    def both(weights, H, gd):
        stack, h = LinearAttentionStack(*weights), jnp.ones(3, jnp.float32)
        return gd(stack, H / 4, method="dense").W[-1] @ h + h

    def bare(weights, H):
        return both(weights, H, inspect.unwrap(trajectory.implicit_gd))

    def marked(weights, H):
        return exact_products(both)(weights, H, trajectory.implicit_gd)

    with jax.enable_x64(True):
        exact = np.asarray(jax.jit(marked)(*cast((weights, H), jnp.float64)))
    size = np.max(np.abs(exact))
    errors = {
        name: np.max(np.abs(products.rounded(f, bits)(weights, H) - exact)) / size
        for name, f, bits in (
            ("bare_tf32", bare, products.TF32),
            ("bare_bf16", bare, products.BF16),
            ("marked_tf32", marked, products.TF32),
        )
    }
    assert errors["marked_tf32"] < 1e-6
    assert errors["bare_tf32"] > 1e-5
    assert errors["bare_bf16"] > 4 * errors["bare_tf32"]


def test_rounding_reaches_every_loop_and_branch(as_a_gpu_would):
    A = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)

    def program(A):
        def step(state, _):
            return state @ A, jnp.sum(state)

        state, sums = jax.lax.scan(step, A, length=2)
        state = jax.lax.fori_loop(0, 2, lambda i, s: jax.jit(jnp.matmul)(s, A), state)
        state = jax.lax.while_loop(
            lambda s: s[1] < 2, lambda s: (s[0] @ A, s[1] + 1), (state, 0)
        )[0]
        return jax.lax.cond(A[0, 0] > 9, lambda: state, lambda: A @ state), sums

    def short(x):
        """To 11 significant bits, ties to even, by arithmetic on exponents."""
        mantissa, exponent = np.frexp(x.astype(np.float64))
        return np.ldexp(np.round(np.ldexp(mantissa, 11)), exponent - 11)

    expected, sums = A, []
    for count in range(6):
        if count < 2:
            sums.append(expected.sum())
        expected = (short(expected) @ short(A)).astype(np.float32)
    expected = (short(A) @ short(expected)).astype(np.float32)
    got, got_sums = products.rounded(program, products.TF32)(A)
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * size)
    np.testing.assert_allclose(got_sums, sums, rtol=1e-5)
    assert np.max(np.abs(program(A)[0] - expected)) > 1e-4 * size
    np.testing.assert_array_equal(products.loosened(program)(A)[0], program(A)[0])


def halves():
    weights, H = theory_cases.stack_and_tokens(2, 12, 3, 4)
    X = H[..., :2]

    def of(function):
        return lambda weights, H: function(LinearAttentionStack(*weights), H)

    return {
        "implicit_gd_norms": (of(trajectory.implicit_gd_norms), (weights, H[0] / 4)),
        "noise_spectrum": (
            of(lambda stack, H: noise.noise_spectrum(stack, H, 5, method="rows").trace),
            (weights, H[0] / 4),
        ),
        "update_upper_bound": (
            pruning.update_upper_bound,
            (*(W[0] for W in weights), H[0]),
        ),
        "ridge": (
            jax.vmap(predictors.Ridge(1.0).predict),
            (X, H[..., 2], X[:, 0]),
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", halves())
def test_half_precision_is_read_and_computed_in_float32(name):
    function, arrays = halves()[name]
    low = cast(arrays, jnp.bfloat16)
    compute = jax.jit(function)
    got = jax.tree.leaves(compute(*low))
    want = jax.tree.leaves(compute(*cast(low, jnp.float64)))
    for a, b in zip(got, want, strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=2e-5)
