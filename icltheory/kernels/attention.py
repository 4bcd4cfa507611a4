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

so that memory is the floor (and less than it, where the second-level cache still holds
the projection), then the instructions of the softmax, and products last. Tiles of 64
make 12,288 of a head's 3,403 pairs, tiles of 32 make 6,144, one of 128 makes 16,384.
"""

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icltheory._checks import check_positive_int
from icltheory._named_errors import named_errors
from icltheory.kernels._attention import (
    backward_kernel,
    forward_kernel,
    split_backward_kernel,
    together,
)
from icltheory.kernels._pallas import launch, pl
from icltheory.kernels.plan import Tile

__all__ = ["attention_weights", "causal_attention", "split_heads"]

_DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)


def candidates(problem: Any) -> dict[str, list[Tile]]:
    """Candidate tiles, which compile for an H200 without spilling registers."""
    forward = [(32, 32, 1), (32, 32, 2), (64, 64, 4), (128, 128, 4), (128, 128, 8)]
    backward = [(64, 64, 4), (64, 64, 8), (32, 32, 2), (128, 128, 8)]
    if problem.dtype == jnp.float32:
        forward = backward = [(32, 32, 4)]
    return {
        name: [Tile(rows, columns, num_warps=warps) for rows, columns, warps in sizes]
        for name, sizes in (("tile", forward), ("backward", backward))
    }


@named_errors
def split_heads(
    qkv: Float[Array, "B T packed"], num_heads: int
) -> list[Float[Array, "B T heads size"]]:
    """Splits the packed projection with layout [q|k|v][head][head size].

    Args:
        qkv: Projection of every token, three times as wide as the residual stream.
        num_heads: Heads.

    Returns:
        Queries, keys and values.

    Raises:
        ValueError: If the projection is not three times a multiple of the heads.

    References:
        Garg et al. 2022, Section 3. Verified by ``tests/kernels/test_attention.py``.
    """
    _check(qkv, num_heads, None, None)
    B, T, packed = qkv.shape
    shape = (B, T, 3 * num_heads, packed // (3 * num_heads))
    return jnp.split(qkv.reshape(shape), 3, axis=2)


@named_errors
def attention_weights(
    q: Float[Array, "B T heads size"],
    k: Float[Array, "B T heads size"],
    mask: Bool[Array, "T T"] | None = None,
) -> Float[Array, "B heads T T"]:
    r"""Softmax weights of every head, with exponential sums of at least float32.

    .. math:: P_{ij} \propto \exp(\langle q_i, k_j \rangle / \sqrt c), \quad j \le i

    Args:
        q: Queries with heads of size :math:`c`.
        k: Keys.
        mask: What each row may attend to; the causal mask where it is ``None``.

    Returns:
        Weights in the dtype of the queries.

    References:
        Garg et al. 2022, Section 3. Verified by ``tests/kernels/test_attention.py``.
    """
    tokens, size = q.shape[1], q.shape[3]
    if mask is None:
        mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    scores = jnp.einsum("bthc,bshc->bhts", q, k) / math.sqrt(size)
    # Sums of exponentials need at least float32 for any dtype of the products.
    scores = scores.astype(jnp.promote_types(q.dtype, jnp.float32))
    scores = jnp.where(mask[None, None], scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1).astype(q.dtype)


@named_errors
def causal_attention(
    qkv: Float[Array, "B T packed"],
    num_heads: int,
    *,
    tile: Tile | Literal["cudnn"] | None = None,
    backward: Tile | None = None,
    interpret: bool = False,
) -> Float[Array, "B T width"]:
    r"""Causal softmax attention of every head, with outputs concatenated.

    .. math:: o_i = \sum_{j \le i} P_{ij} v_j, \qquad
              P_{ij} \propto \exp(\langle q_i, k_j \rangle / \sqrt c)

    The kernel reads the packed projection in place, keeps the softmax in float32,
    multiplies in the input's dtype (float32 in full) and accumulates in float32. It
    saves the log-sum-exp, one number a token and head, for a backward kernel that
    writes the packed gradient, the same to the bit every time. It has no limit of
    length and is made for short ones: up to two tiles of queries (one in
    float32) one program does all of a head's gradient.

    What was seen of the compiled kernels stands in ``icltheory/kernels/_attention.py``:
    in bfloat16 tiles of 32 forward and of 64 backward issue the fewest instructions.
    Full float32 runs outside the tensor cores. No time was measured.

    Args:
        qkv: Projection of every token, laid out [q|k|v][head][head size].
        num_heads: Heads, each of size :math:`c`.
        tile: Queries (rows) and keys (columns) that a program of the kernel takes;
            ``None`` is the plain twin, ``"cudnn"`` XLA's fused attention.
        backward: The same for the gradient, with rows a multiple of columns; ``None``
            is the gradient of the twin.
        interpret: Run the kernel as ordinary operations, on any device.

    Returns:
        Outputs laid out [head][head size], in the dtype of ``qkv``.

    Raises:
        ValueError: if the projection is not three times a multiple of the heads, a tile
            fits no gradient, or the kernel does not know the dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> qkv = jnp.ones((2, 5, 3 * 16), jnp.float32)
        >>> out = causal_attention(qkv, 2)
        >>> kernel = causal_attention(qkv, 2, tile=Tile(16, 16), interpret=True)
        >>> out.shape, bool(jnp.allclose(out, kernel))
        ((2, 5, 16), True)

    References:
        Garg et al. 2022, Section 3; the online softmax of Milakov and Gimelshein 2018
        and its gradient as in Dao 2023, Section 3. Verified by
        ``tests/kernels/test_attention.py``.
    """
    _check(qkv, num_heads, tile, backward)
    if isinstance(tile, Tile):
        return _attention(qkv, num_heads, tile, backward, interpret)
    if tile == "cudnn":
        if qkv.dtype not in _DTYPES[1:]:
            raise ValueError(
                f'qkv: expected bfloat16 or float16 for "cudnn", got {qkv.dtype}'
            )
        mixed = jax.nn.dot_product_attention(
            *split_heads(qkv, num_heads), is_causal=True, implementation="cudnn"
        )
        return mixed.reshape(*qkv.shape[:2], -1)
    return _twin(qkv, num_heads)


def _twin(qkv: Array, num_heads: int) -> Array:
    q, k, v = split_heads(qkv, num_heads)
    mixed = jnp.einsum("bhts,bshc->bthc", attention_weights(q, k), v)
    return mixed.reshape(*qkv.shape[:2], -1)


def _check(qkv: Any, num_heads: int, tile: Any, backward: Any) -> None:
    check_positive_int("num_heads", num_heads)
    if qkv.ndim != 3 or qkv.shape[2] % (3 * num_heads):
        raise ValueError(
            f"qkv: expected shape (B, T, a multiple of 3 x {num_heads} heads), "
            f"got {qkv.shape}"
        )
    if tile is not None and tile != "cudnn" and not isinstance(tile, Tile):
        raise ValueError(f'tile: expected a Tile, "cudnn" or None, got {tile!r}')
    if isinstance(tile, Tile) and qkv.dtype not in _DTYPES:
        raise ValueError(
            "qkv: expected float32, bfloat16 or float16 for the kernel, "
            f"got {qkv.dtype}"
        )
    if backward is None:
        return
    if not isinstance(tile, Tile):
        raise ValueError(f"backward: expected None with {tile=}, got {backward}")
    if backward.rows % backward.columns:
        raise ValueError(
            f"backward: expected rows a multiple of the {backward.columns} columns, "
            f"got {backward.rows}"
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _attention(qkv, num_heads, tile, backward, interpret):
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
        num_stages=tile.num_stages,
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


def _attention_forward(qkv, num_heads, tile, backward, interpret):
    out, lse = _forward(qkv, num_heads, tile, interpret)
    return out, (qkv, None, None) if backward is None else (qkv, out, lse)


def _attention_backward(num_heads, tile, backward, interpret, saved, d_out):
    qkv, out, lse = saved
    if backward is None:
        return jax.vjp(lambda packed: _twin(packed, num_heads), qkv)[1](d_out)
    tiles = pl.cdiv(qkv.shape[1], backward.rows)
    whole = tiles <= together(qkv.dtype)
    (d_qkv,) = _launch(
        backward_kernel if whole else split_backward_kernel,
        qkv,
        out,
        lse,
        d_out,
        num_heads=num_heads,
        tile=backward,
        interpret=interpret,
        tiles=1 if whole else tiles,
        outputs=[(qkv.shape, qkv.dtype)],
        name="causal_attention_backward",
    )
    return (d_qkv,)


_attention.defvjp(_attention_forward, _attention_backward)
