"""What keeps the time and the memory of large models small, and changes no number."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge._blocks import product
from icltheory.models._safetensors import open_safetensors, write_safetensors
from icltheory.pruning import LowRank


@pytest.mark.parametrize("rows", [(5,), (2, 3)])
def test_products_of_bfloat16_are_sums_in_float32_of_what_is_not_converted(rows):
    rng = np.random.default_rng(0)
    x, W = (
        jnp.asarray(rng.normal(size=shape), jnp.bfloat16)
        for shape in ((*rows, 48), (32, 48))
    )
    program = jax.jit(lambda x, W: product("...i,oi->...o", x, W)).lower(x, W)
    assert "xbf16>, tensor<32x48xbf16>) -> " in program.as_text()
    found = product("...i,oi->...o", x, W)
    assert found.dtype == jnp.bfloat16
    exact = np.asarray(x, np.float64) @ np.asarray(W, np.float64).T
    # One rounding to 8 bits, of a sum whose own error is 2^-16 of it.
    np.testing.assert_allclose(
        np.asarray(found, np.float64), exact, rtol=2.0**-8, atol=2.0**-16 * 48
    )


def test_products_of_other_dtypes_are_as_they_were():
    x, W = np.ones((2, 3)), np.ones((4, 3), np.float32)
    for kind in (jnp.float16, jnp.float32, jnp.float64):
        a, b = jnp.asarray(x, kind), jnp.asarray(W)
        found = product("...i,oi->...o", a, b)
        assert found.dtype == jnp.promote_types(kind, jnp.float32)


def held_of(path):
    """KiB of a mapped file in this process's memory, as Linux counts them."""
    text = Path("/proc/self/smaps").read_text()
    (part,) = (p for p in text.split("VmFlags:") if str(path) in p)
    return int(part.split("Rss:")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux only")
def test_what_was_read_is_taken_out_of_memory_and_can_be_read_again(tmp_path):
    arrays = {str(n): np.full((512, 1024), n, np.float32) for n in (1, 2)}
    path = tmp_path / "two.safetensors"
    write_safetensors(path, arrays)
    file = open_safetensors(path)
    view = file["1"].read()
    assert view.sum() == view.size
    assert held_of(path) >= 2048
    file["1"].release()
    assert held_of(path) < 1024  # the system may have read ahead
    np.testing.assert_array_equal(view, arrays["1"])
    np.testing.assert_array_equal(file["2"].read(), arrays["2"])


@pytest.mark.parametrize("rank", [3, 256, 257, 299])
def test_a_product_of_the_first_vectors_is_that_of_all(rank):
    """Those beyond the rank are 0 in the product of all, and so change no digit."""
    W = jnp.asarray(np.random.default_rng(0).normal(size=(300, 310)))
    cut = LowRank().by_size(W)
    whole = jax.jit(cut)(rank)  # a traced rank has one program for all
    np.testing.assert_allclose(cut(rank), whole, rtol=0, atol=1e-12)
    assert np.linalg.matrix_rank(np.asarray(cut(rank)), tol=1e-9) == rank
