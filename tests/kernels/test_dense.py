"""The projections' kernels, interpreted, against their twins, flax and float64 loops.

Tolerances are in units of the dtype's eps, of the largest entry. A rounding moves an
entry by eps / 2. In bfloat16 the twin rounds the norm, the product, the sum with the
bias, and on the way back the gradient of each: up to 4 eps, where the kernel rounds
half of them. In float32 both round every partial sum, at random: 16 eps.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.kernels.dense import (
    linear_residual,
    linear_residual_candidates,
    norm_linear,
    norm_linear_candidates,
)
from icltheory.kernels.plan import Tile
from icltheory.kernels.tuning import Problem
from tests.kernels.comparison import (
    BF16,
    F32,
    F64,
    arrays,
    assert_lowers_for_cuda,
    cotangent,
    distance,
    gradients_of_blocks,
    kernel,
    norm_oracle,
    pulled,
)
from tests.kernels.lowering import LOWERING

ROUNDINGS = {F32: 16, BF16: 4}
SMALL = kernel(tile=Tile(16, 16, 16), backward=Tile(16, 16, 16))
# Rows no multiple of a tile, widths no power of two, and the products of the weights'
# gradients either in the kernel or by XLA.
LARGE = kernel(tile=Tile(16, 32, 16), backward=Tile(32, 32, 16))
CASES = [
    (F32, 41, 32, 48, Tile(32, 16), Tile(16, 16)),
    pytest.param(
        BF16,
        82,
        64,
        192,
        Tile(32, 64, 32),
        Tile(32, 64, 32),
        marks=pytest.mark.slow,
    ),
]


def norm_case(dtype, rows, width, outputs, weights=F32):
    shapes = {"x": (rows, width), "scale": (width,), "bias": (width,)}
    shapes |= {"W": (width, outputs), "b": (outputs,)}
    return arrays(shapes, dtype, weights=F64 if dtype == F64 else weights)


def residual_case(dtype, rows, inputs, outputs, weights=F32):
    shapes = {"h": (rows, outputs), "x": (rows, inputs), "W": (inputs, outputs)}
    shapes |= {"b": (outputs,)}
    return arrays(shapes, dtype, weights=F64 if dtype == F64 else weights)


SUBJECTS = [(norm_linear, norm_case), (linear_residual, residual_case)]
each = pytest.mark.parametrize(
    ("function", "case"), SUBJECTS, ids=["norm_linear", "linear_residual"]
)


@pytest.mark.slow
@each
@pytest.mark.parametrize(("dtype", "R", "width", "out", "tile", "backward"), CASES)
def test_kernel_is_its_twin(function, case, dtype, R, width, out, tile, backward):
    args = case(dtype, R, width, out)
    d = cotangent(function, args)
    got = pulled(function, kernel(tile=tile, backward=backward), args, d)
    want = pulled(function, (), args, d)
    assert [g.dtype for g in got] == [w.dtype for w in want]
    assert distance(got, want) <= ROUNDINGS[dtype] * float(jnp.finfo(dtype).eps)
    if dtype == BF16:  # float32 weights: their gradients were never rounded to it
        exact = pulled(function, (), [a.astype(F32) for a in args], d.astype(F32))
        weights = slice(-2, None)
        errors = [distance(each[weights], exact[weights]) for each in (got, want)]
        assert errors[0] < errors[1]


@pytest.mark.slow
def test_norm_linear_is_the_float64_loop():
    args = norm_case(F64, 37, 48, 96)
    d = cotangent(norm_linear, args)
    x, scale, bias, W, b = map(np.asarray, args)
    norm, pull = norm_oracle(x, scale, bias)
    y = np.array([[sum(n * w) + c for w, c in zip(W.T, b, strict=True)] for n in norm])
    back = np.asarray(d)
    dW = sum(np.outer(n, r) for n, r in zip(norm, back, strict=True))
    want = [y, *pull(back @ W.T), dW, back.sum(0)]
    for choice in ((), LARGE):
        assert distance(pulled(norm_linear, choice, args, d), want) < 1e-12


@pytest.mark.slow
def test_linear_residual_is_the_float64_loop():
    args = residual_case(F64, 37, 48, 96)
    d = cotangent(linear_residual, args)
    h, x, W, b = map(np.asarray, args)
    y = np.array([g + [r @ w for w in W.T] + b for g, r in zip(h, x, strict=True)])
    back = np.asarray(d)
    dW = sum(np.outer(r, g) for r, g in zip(x, back, strict=True))
    want = [y, back, back @ W.T, dW, back.sum(0)]
    for choice in ((), LARGE):
        assert distance(pulled(linear_residual, choice, args, d), want) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param(F32, marks=pytest.mark.slow), BF16])
def test_twins_are_flax_bit_for_bit(dtype):
    x, scale, bias, W, b = norm_case(dtype, 21, 24, 36)
    norm = nn.LayerNorm(epsilon=1e-5, dtype=dtype)
    y = norm.apply({"params": {"scale": scale, "bias": bias}}, x)
    params = {"params": {"kernel": W, "bias": b}}
    y = nn.Dense(36, dtype=dtype).apply(params, y)
    np.testing.assert_array_equal(norm_linear(x, scale, bias, W, b), y)
    h = jnp.asarray(np.random.default_rng(3).standard_normal(y.shape).astype(dtype))
    y = h + nn.Dense(36, dtype=dtype).apply(params, x)
    np.testing.assert_array_equal(linear_residual(h, x, W, b), y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backward", [Tile(16, 16, 16), pytest.param(None, marks=pytest.mark.slow)]
)
def test_input_handed_through_takes_the_residual_gradient_along(backward):
    args = norm_case(F64, 20, 16, 16)

    def both(choice):
        def loss(*args):
            y, x = norm_linear(*args, through=True, **dict(choice))
            return jnp.sum(jnp.sin(y)) + jnp.sum(jnp.cos(3 * x))

        return jax.jit(jax.grad(loss, argnums=range(5)))(*args)

    choice = kernel(tile=Tile(16, 16), backward=backward)
    assert distance(both(choice), both(())) < 1e-12


@pytest.mark.slow
@each
def test_models_batch_and_blocks_repeat(function, case):
    args, inputs = case(F64, 18, 16, 16), 2 if function is linear_residual else 1
    got, want = (gradients_of_blocks(function, args, c, inputs) for c in (SMALL, ()))
    assert distance(got, want) < 1e-11


@each
def test_rows_depend_on_themselves_alone(function, case):
    args = case(F32, 20, 16, 16)
    batch = 2 if function is linear_residual else 1
    run = jax.jit(functools.partial(function, **dict(SMALL)))
    alone = [a[17:18] for a in args[:batch]] + args[batch:]
    np.testing.assert_array_equal(run(*alone), run(*args)[17:18])


@LOWERING
@each
def test_candidates_lower_for_cuda(function, case):
    problem = Problem(2, 41, 128, 4, BF16)
    found = {
        norm_linear: norm_linear_candidates,
        linear_residual: linear_residual_candidates,
    }[function](problem)
    assert_lowers_for_cuda(function, found, case(BF16, 82, 128, 128))


def test_bad_input_is_refused():
    x, scale, bias, W, b = norm_case(F32, 4, 24, 32)
    with pytest.raises(ValueError, match="W: expected shape"):
        norm_linear(x, scale, bias, W.T, b)
    with pytest.raises(ValueError, match="width: expected a multiple of 16"):
        norm_linear(x, scale, bias, W, b, tile=Tile(16, 16))
    with pytest.raises(ValueError, match="backward: expected None"):
        norm_linear(x, scale, bias, W, b, backward=Tile(16, 16))
    with pytest.raises(ValueError, match="h: expected the dtype"):
        linear_residual(x.astype(BF16), x, W[:, :24], b[:24])
    with pytest.raises(ValueError, match="h: expected shape"):
        linear_residual(x, x, W, b)
