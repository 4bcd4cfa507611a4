"""Causal attention: the kernel against its twin and a NumPy oracle.

Tolerances. A rounding of the dtype moves an entry by at most eps / 2 of itself, and the
kernel rounds what it multiplies (weights, slopes) and what it returns: 2 eps of the
largest entry bounds float16 and bfloat16. In float32 sums of up to 130 products round
too, on average the root of their number times: 16 eps.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.kernels import attention, causal_attention, split_heads
from icltheory.kernels._attention import BACKWARD, FORWARD, LONGEST, Tile
from icltheory.kernels._pallas import available
from icltheory.kernels.attention import attend
from tests.kernels.lowering import LOWERING, lowered_for_gpu

HEADS = 2
F32, BF16, F16 = jnp.float32, jnp.bfloat16, jnp.float16
ROUNDINGS = {F32: 16, BF16: 2, F16: 2}
# On a GPU the kernel is compiled; elsewhere it runs as ordinary operations.
INTERPRET = not available()
SMALL = Tile(16, 16, 4), Tile(16, 16, 4)


def oracle(qkv, heads, d_out):
    """Output and packed gradient, row by row in float64."""
    qkv, d_out = np.asarray(qkv, np.float64), np.asarray(d_out, np.float64)
    B, T, packed = qkv.shape
    width, c = packed // 3, packed // 3 // heads
    out, grad = np.zeros((B, T, width)), np.zeros_like(qkv)
    for b, h in np.ndindex(B, heads):
        at = [slice(p * width + h * c, p * width + (h + 1) * c) for p in range(3)]
        q, k, v = (qkv[b][:, a] for a in at)
        for i in range(T):
            s = k[: i + 1] @ q[i] / c**0.5
            P = np.exp(s - s.max())
            P /= P.sum()
            out[b, i, at[0]] = P @ v[: i + 1]
            d_o = d_out[b, i, at[0]]
            d_P = v[: i + 1] @ d_o
            d_s = P * (d_P - P @ d_P) / c**0.5
            grad[b, i, at[0]] = d_s @ k[: i + 1]
            grad[b, : i + 1, at[1]] += d_s[:, None] * q[i]
            grad[b, : i + 1, at[2]] += P[:, None] * d_o
    return out, grad


@functools.cache
def problem(T, size, dtype, B=2):
    width = HEADS * size
    rng = np.random.default_rng(T)
    qkv = 1.5 * rng.standard_normal((B, T, 3 * width))
    d_out = rng.standard_normal((B, T, width))
    return jnp.asarray(qkv.astype(dtype)), jnp.asarray(d_out.astype(dtype))


@functools.partial(jax.jit, static_argnames=("tiles", "interpret"))
def both(qkv, d_out, tiles=None, interpret=INTERPRET):
    """Value and gradient of the kernel with its tiles, or of plain JAX without."""

    def run(qkv):
        if tiles is None:
            return causal_attention(qkv, HEADS, implementation="xla")
        return attend(qkv, HEADS, *tiles, interpret)

    value, pull = jax.vjp(run, qkv)
    return value, *pull(d_out)


def assert_near(results, wanted, dtype, times=1):
    for a, b in zip(results, wanted, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        allowed = times * ROUNDINGS[dtype] * float(jnp.finfo(dtype).eps)
        assert np.abs(a - b).max() <= allowed * np.abs(b).max()


CASES = [  # T, head size, tiles of the value and of the gradient
    (7, 8, (16, 16), (16, 16)),  # heads narrower than a tensor core
    (41, 24, (16, 32), (64, 16)),  # no power of two
    (1, 16, (16, 16), (16, 16)),
    (16, 32, (16, 32), (16, 16)),
    (82, 32, FORWARD[:2], BACKWARD[:2]),
    (128, 64, (128, 32), (64, 32)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("T", "size", "tile", "backward"), CASES)
def test_kernel_equals_the_oracle_in_float32(T, size, tile, backward):
    qkv, d_out = problem(T, size, F32, B=1 if T > 100 else 2)
    results = both(qkv, d_out, (Tile(*tile, 4), Tile(*backward, 4)))
    assert [r.dtype for r in results] == [F32, F32]
    assert_near(results, oracle(qkv, HEADS, d_out), F32)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "T"), [(F16, 41), (BF16, 82)])
def test_kernel_in_half_precision_equals_oracle_and_twin(dtype, T):
    qkv, d_out = problem(T, 32, dtype)
    results = both(qkv, d_out, (FORWARD, BACKWARD))
    assert [r.dtype for r in results] == [dtype, dtype]
    assert_near(results, oracle(qkv, HEADS, d_out), dtype)
    assert_near(results, both(qkv, d_out), dtype, times=2)


def test_twin_equals_the_oracle_in_float64():
    qkv, d_out = problem(41, 24, jnp.float64)
    for a, b in zip(both(qkv, d_out), oracle(qkv, HEADS, d_out), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


@pytest.mark.slow
def test_large_scores_neither_overflow_nor_vanish():
    qkv, d_out = problem(41, 24, F32)
    scale = np.where(np.arange(qkv.shape[2]) < 96, 30.0, 1.0)[None, None]
    qkv = jnp.asarray((np.asarray(qkv) * scale).astype(np.float32))
    results = both(qkv, d_out, (Tile(16, 32, 4), Tile(64, 16, 4)))
    # A score near 2000 is itself known to about 1e-4, whatever computes it.
    for a, b in zip(results, oracle(qkv, HEADS, d_out), strict=True):
        assert np.abs(np.asarray(a) - b).max() <= 2e-3 * np.abs(b).max()


@pytest.mark.slow
def test_no_output_depends_on_a_later_token():
    qkv, d_out = problem(41, 24, F32)
    tiles = Tile(16, 32, 4), Tile(64, 16, 4)
    later = np.array(qkv)
    later[:, 20:] += 7.0
    changed = both(jnp.asarray(later), d_out, tiles)[0]
    np.testing.assert_array_equal(both(qkv, d_out, tiles)[0][:, :20], changed[:, :20])


@pytest.mark.slow
def test_models_side_by_side_equal_each_alone():
    qkv, d_out = problem(7, 8, F32, B=4)
    pairs = [leaf.reshape(2, 2, *leaf.shape[1:]) for leaf in (qkv, d_out)]
    together = jax.vmap(functools.partial(both, tiles=SMALL))(*pairs)
    for a, b in zip(together, both(qkv, d_out, SMALL), strict=True):
        np.testing.assert_array_equal(a.reshape(b.shape), b)


@pytest.mark.slow
def test_gradient_passes_scan_and_checkpoint():
    qkv, d_out = problem(7, 8, F32)

    def kernel(h):
        return attend(h, HEADS, *SMALL, INTERPRET)

    def twin(h):
        return causal_attention(h, HEADS, implementation="xla")

    def loss(packed, run):
        def layer(h, _):
            out = run(h)
            return jnp.concatenate([out, h[..., :32]], axis=-1), None

        return jnp.sum(jax.lax.scan(layer, packed, length=2)[0][..., :16] * d_out)

    grad = jax.jit(jax.grad(loss), static_argnums=1)
    results = grad(qkv, jax.checkpoint(kernel))
    assert_near([results], [grad(qkv, twin)], F32, times=2)


@LOWERING
@pytest.mark.parametrize("dtype", [BF16, F16, F32])
def test_the_kernel_lowers_for_a_gpu(dtype):
    widths = (3 * HEADS * 32, HEADS * 32)
    arrays = [jax.ShapeDtypeStruct((2, 82, width), dtype) for width in widths]
    run = functools.partial(both, tiles=(FORWARD, BACKWARD), interpret=False)
    assert "causal_attention_backward" in lowered_for_gpu(run, *arrays)


@pytest.mark.slow
@LOWERING
def test_models_side_by_side_lower_for_a_gpu():
    qkv, d_out = problem(41, 32, BF16, B=4)
    pairs = [leaf.reshape(2, 2, *leaf.shape[1:]) for leaf in (qkv, d_out)]
    run = functools.partial(both, tiles=SMALL, interpret=False)
    assert "causal_attention_backward" in lowered_for_gpu(jax.vmap(run), *pairs)


@pytest.mark.parametrize(
    ("dtype", "tokens", "size", "chosen"),
    [
        (BF16, LONGEST, 32, "pallas"),
        (F16, 82, 16, "pallas"),
        (BF16, LONGEST + 1, 32, "cudnn"),
        (BF16, 82, 64, "cudnn"),
        (F32, 82, 32, "xla"),
    ],
)
def test_auto_takes_the_kernel_up_to_128_tokens_in_heads_of_32(
    monkeypatch, dtype, tokens, size, chosen
):
    """Longer prompts and wider heads are cuDNN's; float32 and CPUs are XLA's."""
    qkv = jnp.zeros((2, tokens, 3 * HEADS * size), dtype)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert attention._fastest(qkv, HEADS) == "xla"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert attention._fastest(qkv, HEADS) == chosen


@pytest.mark.parametrize(
    ("shape", "dtype", "choice", "message"),
    [
        (
            (1, 3, 25),
            F32,
            "xla",
            r"qkv: expected shape .* 3 x 2 heads\), got \(1, 3, 25\)",
        ),
        ((3, 24), F32, "xla", "qkv: expected shape"),
        ((1, 3, 24), F32, "pallas", 'bfloat16 or float16 for "pallas", got float32'),
        ((1, 3, 24), F32, "cudnn", 'bfloat16 or float16 for "cudnn", got float32'),
        ((1, 3, 24), F32, "flash", "implementation: expected one of"),
        ((1, 129, 24), BF16, "pallas", "at most 128 tokens for .pallas., got 129"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(shape, dtype, choice, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(causal_attention)(
            jnp.ones(shape, dtype), 2, implementation=choice
        )


def test_split_heads_reads_the_packed_layout():
    qkv = jnp.arange(24.0)[None, None]
    q, k, v = split_heads(qkv, 2)
    assert q.shape == (1, 1, 2, 4)
    np.testing.assert_array_equal(k[0, 0, 1], [12, 13, 14, 15])
    np.testing.assert_array_equal(v[0, 0, 0], [16, 17, 18, 19])
    with pytest.raises(ValueError, match=r"^qkv: expected shape \(B, T, a multiple of"):
        split_heads(qkv, 3)
