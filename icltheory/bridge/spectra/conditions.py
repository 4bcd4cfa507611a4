"""Condition numbers of a model's matrices, compared with randomness and rounding."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from icltheory._checks import finite
from icltheory.batching import Progress, reported
from icltheory.bridge._arrays import gathered
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.spectra.rounding import rounding_noise, stored_dtype
from icltheory.bridge.spectra.systems import SingularSystems
from icltheory.layered import get_matrix
from icltheory.pruning import module_matrices, random_condition_number

__all__ = ["ConditionNumber", "condition_numbers"]


class ConditionNumber(NamedTuple):
    r"""Condition number of one matrix, with its reference values.

    Attributes:
        layer: Number of the layer.
        module: ``"attn"`` or ``"mlp"``.
        matrix: Name of the matrix.
        condition_number: :math:`s_1 / s_k`; infinite if the last value is zero.
        null: Median condition number of Gaussian matrices of that shape.
        null_ratio: The first over the second.
        shape: (out, in).
        dtype: Narrowest dtype that holds every entry, which is the checkpoint's,
            whatever it was loaded as.
        ceiling: :math:`s_1 / (2 \sigma_E \sqrt{|m - n| + 1})` with the rounding noise
            :math:`\sigma_E` of that dtype: rounding an exactly singular matrix gives
            a condition number above it, but for one square matrix in twenty.
        resolved: Whether the condition number is below it, and tells of the matrix.
        singular_values: All of them, float64.
    """

    layer: int
    module: str
    matrix: str
    condition_number: float
    null: float
    null_ratio: float
    shape: tuple[int, int]
    dtype: str
    ceiling: float
    resolved: bool
    singular_values: np.ndarray


def condition_numbers(
    model: LanguageModel,
    cache: SingularSystems | None = None,
    layers: Sequence[int] | None = None,
    module: str = "all",
    progress: Progress | None = None,
) -> tuple[ConditionNumber, ...]:
    r"""Computes the condition numbers of a model's matrices in float64 on the host.

    .. math:: \kappa(W) = s_1 / s_{\min(m, n)}

    of each whole matrix; heads are not taken apart. Most of the difference between
    tall matrices and square ones is that of random matrices: read ``null_ratio``. Cost
    O(m n min(m, n)) for each matrix.

    Args:
        model: The language model.
        cache: Where singular values are looked up and kept.
        layers: Numbers of the layers; all when left out.
        module: One matrix, such as ``"W_V"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        progress: Called as ``progress(done, total, part)`` after each matrix; see
            :mod:`icltheory.batching`.

    Returns:
        One row for each matrix, layer by layer.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder
        >>> arch = Architecture(family="gpt2", vocab_size=9, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> rows = condition_numbers(model, module="mlp")
        >>> [(row.layer, row.matrix, row.dtype, row.resolved) for row in rows][:2]
        [(0, 'W_in', 'float32', True), (0, 'W_out', 'float32', True)]

    Source: Yao et al. (2024), Figure 3.
    """
    numbers = range(model.num_layers) if layers is None else layers
    return tuple(
        _row(model, layer, spec, cache)
        for layer, spec in reported(
            [(l, spec) for l in numbers for spec in module_matrices(model, l, module)],
            progress,
            lambda pair: f"layer {pair[0]}, {pair[1].name}",
        )
    )


def _row(model, layer, spec, cache):
    W = gathered(get_matrix(model.params, spec), 0)
    finite(spec.name, W)
    if cache is None:
        s = np.linalg.svd(np.asarray(W).astype(np.float64), compute_uv=False)
    else:
        s = cache.singular_values(W)
    (m, n), null = W.shape, random_condition_number(W.shape)
    floor = 2 * rounding_noise(W) * math.sqrt(abs(m - n) + 1)
    condition = float(s[0] / s[-1]) if s[-1] > 0 else math.inf
    return ConditionNumber(
        layer=layer,
        module=spec.group,
        matrix=spec.name,
        condition_number=condition,
        null=null,
        null_ratio=condition / null,
        shape=(m, n),
        dtype=stored_dtype(W),
        ceiling=float(s[0] / floor),
        resolved=bool(s[-1] > floor),
        singular_values=s,
    )
