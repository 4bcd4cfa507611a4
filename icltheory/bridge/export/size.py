"""Savings by clipping a module: parameters, bytes and operations."""

from fractions import Fraction
from typing import Any, NamedTuple

import jax
import numpy as np

from icltheory.bridge.model import LanguageModel
from icltheory.layered import get_matrix
from icltheory.pruning import LowRank, Method, kept_parameters, module_matrices
from icltheory.pruning.methods import kept_table
from icltheory.pruning.modules import tied_to
from icltheory.pruning.rates import as_strength

__all__ = ["MatrixSize", "SizeReport", "size_report"]


class MatrixSize(NamedTuple):
    r"""Size of one matrix, dense and in factors.

    Attributes:
        matrix: Its name.
        shape: Its (m, n).
        rank: Rank r that the rate leaves.
        dense: Numbers stored whole, m n.
        factors: Numbers stored as two factors, r (m + n).
        stored: The smaller of the two.
        break_even_rank: :math:`m n / (m + n)`, below which factors are smaller.
        break_even_rate: :math:`\min(m, n) / (m + n)`, the rate of that rank.
    """

    matrix: str
    shape: tuple[int, int]
    rank: int
    dense: int
    factors: int
    stored: int
    break_even_rank: float
    break_even_rate: float


class SizeReport(NamedTuple):
    """Savings by clipping one module, relative to the whole model.

    Attributes:
        layer: Number of the layer.
        module: Name of the module.
        strength: The rate, or the :class:`~icltheory.pruning.Rank`.
        matrices: Its matrices.
        dense: Numbers of the module stored whole.
        stored: Numbers stored, with factors where they are fewer.
        dense_bytes: Bytes of the first.
        stored_bytes: Bytes of the second.
        dense_flops: Floating-point operations of its products for one token: none of a
            table that is looked up, and of experts the share that a token uses.
        stored_flops: The same with factors where they are fewer.
        model_parameters: Numbers of the whole model, a tied head once.
        model_saved: Share of those that is saved. Clipping one end of tied embeddings
            and head unties them: the clipped matrix is stored beside the original one,
            and the share is negative.
    """

    layer: int | None
    module: str
    strength: Any
    matrices: tuple[MatrixSize, ...]
    dense: int
    stored: int
    dense_bytes: int
    stored_bytes: int
    dense_flops: int
    stored_flops: int
    model_parameters: int
    model_saved: float


def size_report(
    model: LanguageModel,
    layer: int | None,
    module: str,
    strength: Any,
    *,
    method: Method = LowRank(),
) -> SizeReport:
    r"""Counts parameters, bytes and operations of a module, dense and clipped.

    .. math:: r (m + n) < m n \iff r < \frac{m n}{m + n} \iff
              \xi > \frac{\min(m, n)}{m + n} ,

    up to the rounding of the rank: half of a square matrix is clipped for nothing. A
    product takes 2 operations for each number stored. Clipping alone saves nothing: the
    product of the factors is as large as the matrix was.

    Args:
        model: The model.
        layer: Number of the layer; ``None`` for embeddings and head.
        module: Matrix or module.
        strength: Clipping rate, or a :class:`~icltheory.pruning.Rank`.
        method: How a rate becomes a rank.

    Returns:
        The report.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder
        >>> arch = Architecture(family="gptj", vocab_size=9, width=8, num_layers=1,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> report = size_report(model, 0, "mlp", 0.5)
        >>> report.dense, report.stored, report.matrices[0].break_even_rate
        (512, 320, 0.2)

    Source: Yao et al. (2024), section 2.
    """
    specs = module_matrices(model, layer, module)
    weights = [get_matrix(model.params, spec) for spec in specs]
    kept = kept_table(method, model.params, specs, [strength])[0]
    sizes = tuple(
        _size(spec.name, W.shape, left)
        for spec, W, left in zip(specs, weights, kept, strict=True)
    )
    dense = sum(size.dense for size in sizes)
    stored = sum(size.stored for size in sizes)
    shares = [_share_of_tokens(model, layer, module, spec) for spec in specs]
    width = np.dtype(weights[0].dtype).itemsize
    total = sum(int(leaf.size) for leaf in jax.tree.leaves(model.params))
    # The original matrix stays as the other end of what was tied.
    kept = dense if tied_to(model, layer, module) else 0
    return SizeReport(
        layer=layer,
        module=module,
        strength=as_strength(strength),
        matrices=sizes,
        dense=dense,
        stored=stored,
        dense_bytes=dense * width,
        stored_bytes=stored * width,
        dense_flops=_flops(shares, [size.dense for size in sizes]),
        stored_flops=_flops(shares, [size.stored for size in sizes]),
        model_parameters=total,
        model_saved=(dense - stored - kept) / total,
    )


def _flops(shares: list[Fraction], numbers: list[int]) -> int:
    """Operations for one token; a product takes 2 for each number."""
    return int(sum(2 * share * n for share, n in zip(shares, numbers, strict=True)))


def _share_of_tokens(model, layer, module, spec) -> Fraction:
    """Share of the tokens that a matrix is multiplied with."""
    experts = model.arch.experts
    if layer is not None and spec.name.startswith("expert_"):
        return Fraction(experts.per_token, experts.num)
    if layer is None and "head" not in module.split(","):
        return Fraction(0)  # the rows of the embeddings are looked up
    heads = {one.path for one in model.end_matrices() if one.name == "head"}
    return Fraction(layer is not None or spec.path in heads)


def _size(name, shape, rank) -> MatrixSize:
    m, n = shape
    return MatrixSize(
        matrix=name,
        shape=(m, n),
        rank=rank,
        dense=m * n,
        factors=rank * (m + n),
        stored=kept_parameters(shape, rank),
        break_even_rank=m * n / (m + n),
        break_even_rate=min(m, n) / (m + n),
    )
