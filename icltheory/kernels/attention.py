r"""Causal attention of short sequences, read from the packed projection.

What one layer costs at batch 64, 82 tokens, 8 heads of 32 in bfloat16, against 790
TFLOP/s and 4.3 TB/s of an H200: with n = 1.74 million visible pairs, B x heads x
T (T + 1) / 2, of head size c,

=========  ===========  ==================  =================  =========
pass       products     at the peak         bytes              at peak
=========  ===========  ==================  =================  =========
forward    4 c n        0.22 GF: 0.28 us    10.9 MB            2.5 us
backward   10 c n       0.56 GF: 0.71 us    21.7 MB            5.1 us
=========  ===========  ==================  =================  =========

Measured there with jax 0.11.2, value and gradient together: XLA's code 136 us, cuDNN's
85 us, the kernel 35 us, of which 18 us are forward. A training step of the published
model takes 2.55 ms with the kernel and 3.04 ms with cuDNN. In float32 the kernel was
ten times slower than XLA's code, so it is offered in half precision.
"""

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icltheory._checks import check_choice, check_positive_int
from icltheory.kernels._attention import (
    BACKWARD,
    FORWARD,
    LONGEST,
    Tile,
    backward_kernel,
    forward_kernel,
)
from icltheory.kernels._pallas import available, launch, pl

__all__ = ["Attention", "attention_weights", "causal_attention", "split_heads"]

Attention = Literal["auto", "xla", "cudnn", "pallas"]

_NAMES = ("auto", "xla", "cudnn", "pallas")
_HALF = (jnp.bfloat16, jnp.float16)
_WIDEST = 32  # largest head size at which the kernel was measured


def split_heads(
    qkv: Float[Array, "B T packed"], num_heads: int
) -> list[Float[Array, "B T heads size"]]:
    """Splits the packed projection [q|k|v][head][head size] into q, k and v."""
    _check(qkv, num_heads)
    B, T, packed = qkv.shape
    shape = (B, T, 3 * num_heads, packed // (3 * num_heads))
    return jnp.split(qkv.reshape(shape), 3, axis=2)


def attention_weights(
    q: Float[Array, "B T heads size"],
    k: Float[Array, "B T heads size"],
    mask: Bool[Array, "T T"] | None = None,
) -> Float[Array, "B heads T T"]:
    r"""Softmax weights of every head, with exponential sums of at least float32.

    .. math:: P_{ij} \propto \exp(\langle q_i, k_j \rangle / \sqrt c), \quad j \le i

    for heads of size c, in the dtype of the queries. ``mask`` says what each row may
    attend to; the causal mask where it is ``None``.
    """
    tokens, size = q.shape[1], q.shape[3]
    if mask is None:
        mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    scores = jnp.einsum("bthc,bshc->bhts", q, k) / math.sqrt(size)
    # Sums of exponentials need at least float32 for any dtype of the products.
    scores = scores.astype(jnp.promote_types(q.dtype, jnp.float32))
    scores = jnp.where(mask[None, None], scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1).astype(q.dtype)


def causal_attention(
    qkv: Float[Array, "B T packed"],
    num_heads: int,
    *,
    implementation: Attention = "auto",
    interpret: bool = False,
) -> Float[Array, "B T width"]:
    r"""Causal softmax attention of every head, with outputs concatenated.

    .. math:: o_i = \sum_{j \le i} P_{ij} v_j, \qquad
              P_{ij} \propto \exp(\langle q_i, k_j \rangle / \sqrt c)

    The kernel ``"pallas"`` reads the packed projection in place, keeps the softmax in
    float32, multiplies in the input's dtype and accumulates in float32. It saves the
    log-sum-exp, one number per token and head, for the kernel of the gradient, which
    gives the same bits every time. Outputs are laid out [head][head size], in the dtype
    of ``qkv``.

    Args:
        qkv: Projection of every token, laid out [q|k|v][head][head size].
        num_heads: Heads, each of size :math:`c`.
        implementation: ``"xla"`` is plain JAX, for every device; ``"cudnn"`` XLA's
            fused attention, ``"pallas"`` this library's kernel, both for GPUs and in
            bfloat16 or float16. ``"auto"`` takes there the kernel for at most 128
            tokens in heads of at most 32 (it was measured at 82 tokens in heads of 32)
            and cuDNN's for more; elsewhere XLA's.
        interpret: Run the kernel as ordinary operations, on any device.

    Example:
        >>> import jax.numpy as jnp
        >>> qkv = jnp.ones((2, 5, 3 * 16), jnp.bfloat16)
        >>> out = causal_attention(qkv, 2)
        >>> kernel = causal_attention(
        ...     qkv, 2, implementation="pallas", interpret=True
        ... )
        >>> out.shape, bool(jnp.allclose(out, kernel))
        ((2, 5, 16), True)

    Source: Garg et al. 2022, Section 3; the online softmax of Milakov and Gimelshein
    2018 and its gradient as in Dao 2023, Section 3.
    """
    _check(qkv, num_heads)
    check_choice("implementation", implementation, _NAMES)
    if implementation == "auto":
        implementation = _fastest(qkv, num_heads)
    if implementation == "xla":
        return _twin(qkv, num_heads)
    if qkv.dtype not in _HALF:
        raise ValueError(
            f'qkv: expected bfloat16 or float16 for "{implementation}", got {qkv.dtype}'
        )
    if implementation == "cudnn":
        mixed = jax.nn.dot_product_attention(
            *split_heads(qkv, num_heads), is_causal=True, implementation="cudnn"
        )
        return mixed.reshape(*qkv.shape[:2], -1)
    if qkv.shape[1] > LONGEST:
        raise ValueError(
            f'qkv: expected at most {LONGEST} tokens for "pallas", got {qkv.shape[1]}'
        )
    return attend(qkv, num_heads, FORWARD, BACKWARD, interpret)


def _fastest(qkv: Array, num_heads: int) -> Attention:
    """Returns the kernel near the size where it was measured to be the fastest."""
    if qkv.dtype not in _HALF or jax.default_backend() != "gpu":
        return "xla"
    narrow = qkv.shape[2] <= 3 * num_heads * _WIDEST
    fits = qkv.shape[1] <= LONGEST and narrow and available()
    return "pallas" if fits else "cudnn"


def _twin(qkv: Array, num_heads: int) -> Array:
    q, k, v = split_heads(qkv, num_heads)
    mixed = jnp.einsum("bhts,bshc->bthc", attention_weights(q, k), v)
    return mixed.reshape(*qkv.shape[:2], -1)


def _check(qkv: Any, num_heads: int) -> None:
    check_positive_int("num_heads", num_heads)
    if qkv.ndim != 3 or qkv.shape[2] % (3 * num_heads):
        raise ValueError(
            f"qkv: expected shape (B, T, a multiple of 3 x {num_heads} heads), "
            f"got {qkv.shape}"
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def attend(
    qkv: Array, num_heads: int, tile: Tile, backward: Tile, interpret: bool
) -> Array:
    """Runs the kernel with the given tiles."""
    return _forward(qkv, num_heads, tile, interpret)[0]


def _launch(kernel, *inputs, num_heads, tile, interpret, tiles, outputs, name):
    kernel = functools.partial(
        kernel, num_heads=num_heads, rows=tile.rows, columns=tile.columns
    )
    # Heads vary fastest, since neighbouring heads share memory lines.
    grid = (num_heads, inputs[0].shape[0], tiles)
    return launch(
        kernel,
        *inputs,
        grid=grid,
        outputs=outputs,
        name=name,
        interpret=interpret,
        num_warps=tile.num_warps,
    )


def _forward(qkv, num_heads, tile, interpret):
    B, T, packed = qkv.shape
    return _launch(
        forward_kernel,
        qkv,
        num_heads=num_heads,
        tile=tile,
        interpret=interpret,
        tiles=pl.cdiv(T, tile.rows),
        outputs=[((B, T, packed // 3), qkv.dtype), ((B, num_heads, T), jnp.float32)],
        name="causal_attention",
    )


def _attend_forward(qkv, num_heads, tile, backward, interpret):
    out, lse = _forward(qkv, num_heads, tile, interpret)
    return out, (qkv, out, lse)


def _attend_backward(num_heads, tile, backward, interpret, saved, d_out):
    qkv, out, lse = saved
    (d_qkv,) = _launch(
        backward_kernel,
        qkv,
        out,
        lse,
        d_out,
        num_heads=num_heads,
        tile=backward,
        interpret=interpret,
        tiles=1,
        outputs=[(qkv.shape, qkv.dtype)],
        name="causal_attention_backward",
    )
    return (d_qkv,)


attend.defvjp(_attend_forward, _attend_backward)
