r"""The MLP of a GPT-2 block with layer norm and residual, in one launch.

What it costs at 5248 rows (64 prompts of 82 tokens), width 256 and 1024 hidden units in
bfloat16, against 790 TFLOP/s, 4.3 TB/s of memory and about 5.5 TB/s of the second-level
cache of an H200 with 132 multiprocessors:

================  =================  ===============  =================  ===========
kernel            products           memory           second level       programs
================  =================  ===============  =================  ===========
forward           5.5 GF: 7.0 us     6 MB: 1.5 us     89 MB: 16 us       82
gradient by rows  8.3 GF: 10.4 us    33 MB: 7.7 us    119 MB: 22 us      82
by weights        5.5 GF: 7.0 us     36 MB: 8.4 us    94 MB: 17 us       128
================  =================  ===============  =================  ===========

Every program reads both weights, 1 MB, so with 64 rows each the second-level cache is
the floor; 128 rows halve that, but make 41 programs, and pay from 16896 rows on. The
hidden units never reach memory forward; the gradient writes them and their gradients
once, for the product that makes the weights' gradients.

Compiled for an H200 (no time was measured), width 256 in bfloat16, 64 rows and 64
hidden units on 8 warps: forward 222 registers, none spilled, 160 KB of shared memory in
two stages; gradient 255 registers, 136 bytes spilled, 200 KB; with 32 hidden units none
are spilled and it takes 132 KB. Every product of theirs runs on the warpgroups' tensor
core instructions; tiles of 32 rows take the older ones. On 4 warps, or with 128 rows
and 64 hidden units, the forward pass spills 820 and 672 bytes. Forward and gradient are
four launches, six with the casts of two float32 weights, where XLA makes 24 of the
twin; eight models side by side are four too.
"""

from typing import Any

from jaxtyping import Array, Float

from icltheory._named_errors import named_errors
from icltheory.kernels import _residual_mlp
from icltheory.kernels._tiles import (
    Options,
    check_kernel,
    check_weights,
    tensor_core_tiles,
)
from icltheory.kernels.plan import Tile

__all__ = ["residual_mlp"]


def candidates(problem: Any) -> dict[str, list[Tile]]:
    """Candidate tiles; all but the gradient's first compile without spilling."""
    forward = [(64, 64, 64, 8, 2), (64, 64, 64, 8, 3), (64, 32, 64, 8, 3)]
    forward += [(32, 64, 64, 4, 2), (128, 32, 64, 8, 2)]
    backward = [(64, 64, 64, 8, 2), (64, 32, 64, 8, 2), (64, 32, 64, 8, 3)]
    backward += [(32, 64, 64, 8, 2)]
    return tensor_core_tiles(problem, forward, backward)


@named_errors
def residual_mlp(
    x: Float[Array, "..."],
    scale: Float[Array, "..."],
    bias: Float[Array, "..."],
    W_in: Float[Array, "..."],
    b_in: Float[Array, "..."],
    W_out: Float[Array, "..."],
    b_out: Float[Array, "..."],
    *,
    tile: Tile | None = None,
    backward: Tile | None = None,
    interpret: bool = False,
) -> Float[Array, "..."]:
    r"""Second half of a GPT-2 block: layer norm, MLP with GELU, and residual.

    .. math:: x + \mathrm{gelu}(\mathrm{LN}(x) W_{in} + b_{in}) W_{out} + b_{out}

    The twin is what ``flax.linen`` computes with LayerNorm (epsilon 1e-5), Dense and
    ``gelu(approximate=True)`` in the dtype of ``x``. The kernel rounds less: GELU and
    every sum are float32, float32 products are full, and gradients of float32 weights
    never pass through the dtype of ``x``. Its sums have a fixed order, so that equal
    inputs give equal bits.

    Args:
        x: Residual stream ``(..., width)``.
        scale: Scale of the layer norm ``(width,)``.
        bias: Bias of the layer norm ``(width,)``.
        W_in: Weights into the hidden units ``(width, hidden)``.
        b_in: Biases of the hidden units ``(hidden,)``.
        W_out: Weights out of the hidden units ``(hidden, width)``.
        b_out: Biases ``(width,)``.
        tile: Rows of a program and hidden units a step; ``None`` is the twin.
        backward: The same for the gradient, with as ``depth`` the rows a step of the
            weights' gradients, or ``None`` to leave their products to XLA; ``None`` in
            its place is the gradient of the twin.
        interpret: Run the kernel as ordinary operations, on any device.

    Returns:
        ``(..., width)``, in the dtype of ``x``.

    Raises:
        ValueError: if shapes do not agree, a width is no multiple of 16 where a tile is
            given, or a gradient's tile comes without a tile.

    Example:
        >>> import jax.numpy as jnp
        >>> x, one, zero = jnp.ones((2, 3, 4)), jnp.ones(4), jnp.zeros(4)
        >>> W = jnp.ones((4, 8))
        >>> residual_mlp(x, one, zero, W, jnp.zeros(8), W.T, zero).shape
        (2, 3, 4)

    References:
        Garg et al. 2022, Section 3 and Appendix A. Verified by
        ``tests/kernels/test_mlp.py``.
    """
    check_weights(
        x,
        scale=(scale, x.shape[-1:]),
        bias=(bias, x.shape[-1:]),
        W_in=(W_in, (*x.shape[-1:], "hidden")),
        b_in=(b_in, W_in.shape[-1:]),
        W_out=(W_out, (*W_in.shape[-1:], *x.shape[-1:])),
        b_out=(b_out, x.shape[-1:]),
    )
    check_kernel(backward, tile, width=x.shape[-1], hidden=W_in.shape[1])
    weights = (scale, bias, W_in, b_in, W_out, b_out)
    if tile is None:
        return _residual_mlp.twin(x, *weights)
    options = Options(tile, backward, interpret)
    y = _residual_mlp.run(options, x.reshape(-1, x.shape[-1]), *weights)
    return y.reshape(x.shape)
