"""The MLP's kernel, interpreted, against its twin, flax and float64 loops.

Tolerances are in units of the dtype's eps, of the largest entry, as in ``test_dense``:
in bfloat16 the twin rounds the norm, both products, both sums with a bias, GELU, the
residual, and on the way back as often, eps / 2 each and most of them in a sum of many:
6 eps. In float32 both round every partial sum, at random: 16 eps.
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.kernels._norm import gelu_and_slope
from icltheory.kernels.mlp import candidates, residual_mlp
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

ROUNDINGS = {F32: 16, BF16: 6}
SMALL = kernel(tile=Tile(16, 16), backward=Tile(16, 16, 16))


def case(dtype, rows, width, hidden, weights=F32):
    shapes = {"x": (rows, width), "scale": (width,), "bias": (width,)}
    shapes |= {"W_in": (width, hidden), "b_in": (hidden,)}
    shapes |= {"W_out": (hidden, width), "b_out": (width,)}
    return arrays(shapes, dtype, weights=F64 if dtype == F64 else weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "rows", "width", "hidden", "tile", "backward"),
    [
        (F32, 41, 32, 64, Tile(32, 32), Tile(16, 64)),
        pytest.param(
            BF16,
            82,
            64,
            256,
            Tile(32, 64),
            Tile(32, 64, 32),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kernel_is_its_twin(dtype, rows, width, hidden, tile, backward):
    args = case(dtype, rows, width, hidden)
    d = cotangent(residual_mlp, args)
    got = pulled(residual_mlp, kernel(tile=tile, backward=backward), args, d)
    want = pulled(residual_mlp, (), args, d)
    assert [g.dtype for g in got] == [w.dtype for w in want]
    assert distance(got, want) <= ROUNDINGS[dtype] * float(jnp.finfo(dtype).eps)
    if dtype == BF16:  # the kernel rounds less
        exact = pulled(residual_mlp, (), [a.astype(F32) for a in args], d.astype(F32))
        for one, other, true in zip(got, want, exact, strict=True):
            assert distance([one], [true]) < 1.1 * distance([other], [true])


@pytest.mark.slow
def test_kernel_and_twin_are_the_float64_loop():
    args = case(F64, 37, 48, 96)
    d = cotangent(residual_mlp, args)
    x, scale, bias, W_in, b_in, W_out, b_out = map(np.asarray, args)
    norm, pull = norm_oracle(x, scale, bias)
    u = norm @ W_in + b_in
    inner = np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)
    a = 0.5 * u * (1 + np.tanh(inner))
    slope = 0.5 * (1 + np.tanh(inner)) + 0.5 * u / np.cosh(inner) ** 2 * np.sqrt(
        2 / np.pi
    ) * (1 + 3 * 0.044715 * u**2)
    g = np.asarray(d)
    du = (g @ W_out.T) * slope
    dx, dscale, dbias = pull(du @ W_in.T)
    want = [x + a @ W_out + b_out, g + dx, dscale, dbias]
    want += [norm.T @ du, du.sum(0), a.T @ g, g.sum(0)]
    large = kernel(tile=Tile(16, 32), backward=Tile(32, 32, 16))
    for choice in ((), large):
        got = pulled(residual_mlp, choice, args, d)
        assert distance(got, want) < 1e-12
        again = pulled(residual_mlp, choice, args, d)
        for one, other in zip(got, again, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param(F32, marks=pytest.mark.slow), BF16])
def test_twin_is_flax_bit_for_bit(dtype):
    x, scale, bias, W_in, b_in, W_out, b_out = args = case(dtype, 21, 24, 40)
    norm = nn.LayerNorm(epsilon=1e-5, dtype=dtype)
    y = norm.apply({"params": {"scale": scale, "bias": bias}}, x)
    y = nn.Dense(40, dtype=dtype).apply({"params": {"kernel": W_in, "bias": b_in}}, y)
    y = nn.gelu(y, approximate=True)
    params = {"params": {"kernel": W_out, "bias": b_out}}
    y = x + nn.Dense(24, dtype=dtype).apply(params, y)
    np.testing.assert_array_equal(residual_mlp(*args), y)


def test_gelu_keeps_its_ends():
    """Far out GELU is the identity or nothing, and no exponential becomes a NaN."""
    u = jnp.array([-1e6, -50.0, 50.0, 1e6], F32)
    values, slopes = gelu_and_slope(u)
    np.testing.assert_array_equal(values, jnp.where(u > 0, u, 0.0))
    np.testing.assert_array_equal(slopes, jnp.where(u > 0, 1.0, 0.0))


@pytest.mark.slow
def test_models_batch_and_blocks_repeat():
    args = case(F64, 18, 16, 32)
    got, want = (gradients_of_blocks(residual_mlp, args, c) for c in (SMALL, ()))
    assert distance(got, want) < 1e-11


@pytest.mark.slow
@LOWERING
def test_candidates_lower_for_cuda():
    found = candidates(Problem(2, 41, 128, 4, BF16))
    assert_lowers_for_cuda(residual_mlp, found, case(BF16, 82, 128, 512))


def test_bad_input_is_refused():
    args = case(F32, 4, 24, 40)
    with pytest.raises(ValueError, match="W_out: expected shape"):
        residual_mlp(*args[:5], args[5].T, args[6])
    with pytest.raises(ValueError, match="width: expected a multiple of 16"):
        residual_mlp(*args, tile=Tile(16, 16))
    with pytest.raises(ValueError, match="backward: expected None"):
        residual_mlp(*args, backward=Tile(16, 16))
