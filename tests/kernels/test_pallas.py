"""Rows beyond an array's end read as zero and are not written."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from icltheory.kernels import _pallas

X = np.arange(15, dtype=np.float32).reshape(5, 3) + 1


def run(kernel, grid, *outputs):
    return _pallas.launch(
        kernel,
        jnp.asarray(X),
        grid=grid,
        outputs=outputs,
        name="test",
        interpret=not _pallas.available(),
    )


def test_rows_and_columns_beyond_the_end_are_masked():
    def kernel(x, copy, sums):
        rows = _pallas.Rows(pl.program_id(0) * 4, 4, 5)
        columns = jnp.arange(4, dtype=jnp.int32)
        tile = rows.load(x, columns, real=columns < 3)
        rows.store(copy, columns, 2 * tile, real=columns < 3)
        rows.store(sums, None, tile.sum(axis=1))

    copy, sums = run(kernel, (2,), ((5, 3), jnp.float32), ((5,), jnp.float32))
    np.testing.assert_array_equal(copy, 2 * X)
    np.testing.assert_array_equal(sums, X.sum(axis=1))


def test_compiling_asks_for_no_names_of_a_stack_trace():
    """They took most of the time of compiling a kernel where LLVM is installed."""
    assert os.environ["LLVM_DISABLE_SYMBOLIZATION"]


def test_padding_reads_as_zero():
    def kernel(x, out):
        rows = _pallas.Rows(3, 4, 5)
        columns = jnp.arange(4, dtype=jnp.int32)
        out[...] = rows.load(x, columns, real=columns < 3)

    (out,) = run(kernel, (1,), ((4, 4), jnp.float32))
    np.testing.assert_array_equal(out, np.pad(X[3:], ((0, 2), (0, 1))))


def test_indices_stay_narrow_where_x64_is_on():
    assert jnp.arange(2).dtype == jnp.int64
    assert _pallas.Rows(jnp.int32(3), 4, 5).index.dtype == jnp.int32


@pytest.mark.parametrize(("size", "tile"), [(1, 16), (16, 16), (17, 32), (82, 128)])
def test_tiles_hold_what_they_should(size, tile):
    assert _pallas.power_of_two(size) == tile


def test_products_accumulate_in_float32():
    ones = jnp.ones((1, 4096), jnp.bfloat16)  # bfloat16 counts in ones up to 256
    product = _pallas.dot(ones, ones.T)
    assert product.dtype == jnp.float32
    assert product[0, 0] == 4096
    a = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    a = jnp.asarray(a)
    with jax.default_matmul_precision("bfloat16"):
        product = _pallas.dot(a, a.T)
    wide = np.asarray(a, np.float64)
    bound = 64 * 2.0**-24 * np.abs(wide) @ np.abs(wide).T  # 64 terms, each rounded
    assert np.all(np.abs(product - wide @ wide.T) <= bound)


@pytest.mark.slow
def test_a_cpu_compiles_no_kernel():
    assert _pallas.available() == (jax.default_backend() == "gpu")
