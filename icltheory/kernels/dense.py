r"""The projections of a GPT-2 block: norm with linear map, linear map with residual.

What they cost at 5248 rows (64 prompts of 82 tokens) and width 256 in bfloat16, the
first 768 wide, against 790 TFLOP/s, 4.3 TB/s of memory and about 5.5 TB/s of the
second-level cache of an H200; a gradient is that by rows and that by weights:

========================  ================  ================  =================
kernel                    products          memory            second level
========================  ================  ================  =================
norm, linear              2.1 GF: 2.6 us    11 MB: 2.6 us     40 MB: 7.3 us
its gradient              4.1 GF: 5.2 us    34 MB: 8.0 us     93 MB: 17 us
linear, residual          0.7 GF: 0.9 us    8 MB: 1.9 us      19 MB: 3.4 us
its gradient              1.4 GF: 1.7 us    20 MB: 4.7 us     42 MB: 7.6 us
========================  ================  ================  =================

The second level counts what tiles of 64 rows and 256 columns read again, and for the
gradients by weights tiles of 128 x 128 with the parts of the sums, written and read.

Compiled for an H200 (no time was measured): norm and linear in tiles of 64 x 256 on 8
warps take 99 registers and 104 KB of shared memory, the gradient by rows 228 and 73 KB;
linear and residual in tiles of 64 x 128 on 4 warps 128 and 72 KB, its gradient 120;
gradients by weights 96 registers and 96 KB. None spills, and all products run on the
warpgroups' tensor core instructions. Forward and gradient are four launches each, six
with the cast of a float32 weight and the copy of an array handed through, where XLA
makes 16 and 9 of the twins.
"""

from typing import Any

from jaxtyping import Array, Float

from icltheory._named_errors import named_errors
from icltheory.kernels import _linear_residual, _norm_linear
from icltheory.kernels._tiles import (
    Options,
    check_kernel,
    check_weights,
    tensor_core_tiles,
)
from icltheory.kernels.plan import Tile

__all__ = ["linear_residual", "norm_linear"]


def norm_linear_candidates(problem: Any) -> dict[str, list[Tile]]:
    """Candidate tiles, which compile for an H200 without spilling registers."""
    forward = [(128, 256, 64, 8, 2), (64, 256, 64, 8, 2), (64, 256, 64, 4, 2)]
    forward += [(64, 128, 64, 4, 2), (32, 256, 64, 4, 2)]
    backward = [(64, 64, 64, 8, 2), (64, 64, 64, 8, 3), (32, 64, 64, 4, 2)]
    return tensor_core_tiles(problem, forward, backward)


def linear_residual_candidates(problem: Any) -> dict[str, list[Tile]]:
    """Candidate tiles, which compile for an H200 without spilling registers."""
    forward = [(64, 64, 64, 4, 3), (64, 128, 64, 4, 3), (128, 128, 64, 8, 3)]
    backward = [(64, 128, 64, 4, 3), (128, 128, 64, 8, 3), (64, 256, 64, 8, 3)]
    return tensor_core_tiles(problem, forward, backward)


@named_errors
def norm_linear(
    x: Float[Array, "..."],
    scale: Float[Array, "..."],
    bias: Float[Array, "..."],
    W: Float[Array, "..."],
    b: Float[Array, "..."],
    *,
    tile: Tile | None = None,
    backward: Tile | None = None,
    through: bool = False,
    interpret: bool = False,
) -> Float[Array, "..."] | tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Layer norm and a linear map, as for queries, keys and values.

    .. math:: \mathrm{LN}(x) W + b

    The twin is what ``flax.linen`` computes with LayerNorm (epsilon 1e-5) and Dense in
    the dtype of ``x``. The kernel rounds less: sums are float32, float32 products are
    full, and gradients of float32 weights never pass through the dtype of ``x``. Its
    sums have a fixed order, so that equal inputs give equal bits.

    Args:
        x: Rows ``(..., width)``.
        scale: Scale of the layer norm ``(width,)``.
        bias: Bias of the layer norm ``(width,)``.
        W: Weights ``(width, outputs)``.
        b: Biases ``(outputs,)``.
        tile: Rows and columns of a program, and as ``depth`` the columns a step, or
            ``None`` for all at once; ``None`` in its place is the twin.
        backward: Rows of a program and columns of ``W`` a step of the gradient, with as
            ``depth`` the rows a step of the weights' gradient, or ``None`` to leave its
            product to XLA; ``None`` in its place is the gradient of the twin.
        through: Also return ``x``, for the residual path: what comes back along it is
            then added within the kernel of the gradient, not by a launch of its own.
        interpret: Run the kernel as ordinary operations, on any device.

    Returns:
        ``(..., outputs)``, in the dtype of ``x``; with ``through`` also ``x``.

    Raises:
        ValueError: if shapes do not agree, a width is no multiple of 16 where a tile is
            given, or a gradient's tile comes without a tile.

    Example:
        >>> import jax.numpy as jnp
        >>> x, one, zero = jnp.ones((2, 3, 4)), jnp.ones(4), jnp.zeros(4)
        >>> norm_linear(x, one, zero, jnp.ones((4, 12)), jnp.zeros(12)).shape
        (2, 3, 12)

    References:
        Garg et al. 2022, Section 3 and Appendix A. Verified by
        ``tests/kernels/test_dense.py``.
    """
    check_weights(
        x,
        scale=(scale, x.shape[-1:]),
        bias=(bias, x.shape[-1:]),
        W=(W, (*x.shape[-1:], "outputs")),
        b=(b, W.shape[-1:]),
    )
    check_kernel(backward, tile, width=x.shape[-1], outputs=W.shape[1])
    if tile is None:
        y = _norm_linear.twin(x, scale, bias, W, b)
        return (y, x) if through else y
    options = Options(tile, backward, interpret, through)
    y, *passed = _norm_linear.run(
        options, x.reshape(-1, x.shape[-1]), scale, bias, W, b
    )
    y = y.reshape(*x.shape[:-1], W.shape[1])
    return (y, passed[0].reshape(x.shape)) if through else y


@named_errors
def linear_residual(
    h: Float[Array, "..."],
    x: Float[Array, "..."],
    W: Float[Array, "..."],
    b: Float[Array, "..."],
    *,
    tile: Tile | None = None,
    backward: Tile | None = None,
    interpret: bool = False,
) -> Float[Array, "..."]:
    r"""A linear map added to the residual stream, as after attention heads.

    .. math:: h + x W + b

    The twin is what ``flax.linen.Dense`` computes in the dtype of ``x``, added to
    ``h``; the kernel rounds less, as :func:`norm_linear` says.

    Args:
        h: Residual stream ``(..., outputs)``, in the dtype of ``x``.
        x: Rows ``(..., inputs)``.
        W: Weights ``(inputs, outputs)``.
        b: Biases ``(outputs,)``.
        tile: Rows and columns of a program, and as ``depth`` the inputs a step, or
            ``None`` for all at once; ``None`` in its place is the twin.
        backward: Rows of a program and inputs beside them, with as ``depth`` the
            outputs a step (64 if ``None``) and the rows a step of the weights'
            gradient, or ``None`` to leave its product to XLA; ``None`` in its place is
            the gradient of the twin.
        interpret: Run the kernel as ordinary operations, on any device.

    Returns:
        ``(..., outputs)``, in the dtype of ``x``.

    Raises:
        ValueError: if shapes or dtypes do not agree, a width is no multiple of 16 where
            a tile is given, or a gradient's tile comes without a tile.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.ones((2, 3, 4))
        >>> float(linear_residual(x, x, jnp.ones((4, 4)), jnp.zeros(4))[0, 0, 0])
        5.0

    References:
        Garg et al. 2022, Section 3 and Appendix A. Verified by
        ``tests/kernels/test_dense.py``.
    """
    check_weights(
        x,
        W=(W, (*x.shape[-1:], "outputs")),
        b=(b, W.shape[-1:]),
        h=(h, (*x.shape[:-1], *W.shape[-1:])),
    )
    if h.dtype != x.dtype:
        raise ValueError(f"h: expected the dtype {x.dtype} of x, got {h.dtype}")
    check_kernel(backward, tile, inputs=x.shape[-1], outputs=W.shape[1])
    if tile is None:
        return _linear_residual.twin(h, x, W, b)
    options = Options(tile, backward, interpret)
    flat = (h.reshape(-1, h.shape[-1]), x.reshape(-1, x.shape[-1]))
    return _linear_residual.run(options, *flat, W, b).reshape(h.shape)
