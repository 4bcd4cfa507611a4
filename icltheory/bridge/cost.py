"""What a decoder takes, from its architecture alone: numbers, bytes and operations."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from icltheory._checks import check_nonnegative_int
from icltheory._named_errors import named_errors
from icltheory._public import shown
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families import entries_of

__all__ = ["ModelCost", "model_cost"]


class ModelCost(NamedTuple):
    """Size of a model and of its work on a token.

    Attributes:
        parameters: Numbers of the whole model, a tied head once.
        num_bytes: Bytes of its weights.
        matrices: Shape (out, in) of every named matrix of a layer, by name.
        layer_flops: Floating-point operations of a token in one layer.
        head_flops: Operations of the whole vocabulary's logits for a token.
        cache_bytes: Bytes of the keys and values of a token in all layers.

    References:
        Verified by ``tests/bridge/test_cost.py``.
    """

    parameters: int
    num_bytes: int
    matrices: dict[str, tuple[int, int]]
    layer_flops: int
    head_flops: int
    cache_bytes: int

    def svd_flops(self, name: str) -> int:
        r"""Operations of the singular values of a matrix, without its vectors.

        About :math:`4 m n^2 - \tfrac43 n^3` for :math:`m \ge n` (Golub and Van Loan).

        Args:
            name: Name of the matrix.

        Returns:
            The count.
        """
        n, m = sorted(self.matrices[name])
        return 4 * m * n**2 - 4 * n**3 // 3


@named_errors
def model_cost(
    arch: Architecture, dtype: str = "float16", context: int = 0
) -> ModelCost:
    r"""Counts parameters, bytes and operations of a decoder; no weight is needed.

    .. math:: \text{a token in a layer:} \quad
        2 \sum_{W} m_W n_W + 4\, c\, h\, d_h

    over all matrices of the layer, for c tokens that it attends to, h heads and head
    width :math:`d_h`. Norms, softmax, rotations and activations are left out, and so
    are biases. Of a mixture of experts all experts count, since all are applied.

    Args:
        arch: The architecture, such as ``read_architecture`` makes of a config.
        dtype: Of weights and of keys and values.
        context: Tokens that a token attends to, on average.

    Returns:
        The counts.

    Raises:
        ValueError: If ``context`` is negative.

    Example:
        >>> from icltheory.bridge.families import read_architecture
        >>> cost = model_cost(read_architecture({"model_type": "gptj"}))
        >>> f"{cost.parameters:,} parameters, {cost.num_bytes / 1e9:.1f} GB"
        '6,050,882,784 parameters, 12.1 GB'

    References:
        Golub and Van Loan (2013), Figure 8.6.1; Kaplan et al. (2020), Table 1.
        Verified by ``tests/bridge/test_cost.py``.
    """
    check_nonnegative_int("context", context)
    shapes = {
        path: shape
        for entry in entries_of(arch)
        for path, shape in zip(entry.paths, entry.shapes, strict=True)
    }
    size = jnp.dtype(dtype).itemsize
    parameters = sum(math.prod(shape) for shape in shapes.values())
    first = [
        (path[2:-1], shape)
        for path, shape in shapes.items()
        if path[:2] == ("layers", 0)
    ]
    matrices = {
        ".".join(str(key) for key in inside[1:]): (shape[0], shape[1])
        for inside, shape in first
        if len(shape) == 2
    }
    products = sum(m * n for m, n in matrices.values())
    attention = 4 * context * arch.num_heads * arch.head_dim
    kept = 2 * arch.num_layers * arch.num_kv_heads * arch.head_dim
    return ModelCost(
        parameters=parameters,
        num_bytes=parameters * size,
        matrices=matrices,
        layer_flops=2 * products + attention,
        head_flops=2 * arch.vocab_size * arch.width,
        cache_bytes=kept * size,
    )


__dir__ = shown(__name__)
