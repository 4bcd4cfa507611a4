"""Cost of a model, also without reading its weights, and what pruning saves."""

import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_choice, check_nonnegative_int, check_positive_int
from icltheory.bridge._tensors import INDEX, SINGLE
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.checkpoint import DTYPES, matched, opened, own_dtype
from icltheory.bridge.families import entries_of
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.sharding import split_axis
from icltheory.layered import get_matrix
from icltheory.pruning import LowRank, Method, kept_parameters, module_matrices
from icltheory.pruning.methods import kept_table
from icltheory.pruning.modules import tied_to

__all__ = [
    "MatrixSize",
    "ModelCost",
    "SizeReport",
    "fits",
    "free_memory",
    "model_cost",
    "size_report",
]


class ModelCost(NamedTuple):
    """Size of a model, and its operations per token.

    Attributes:
        dtype: Dtype of the weights, keys and values.
        parameters: Numbers of the whole model, a tied head once.
        device_bytes: Bytes of weights that one device holds.
        matrices: Shape (out, in) of every matrix of a layer, by name.
        layer_flops: Floating-point operations of a token in one layer.
        cache_bytes: Bytes of the keys and values of a token in all layers.
    """

    dtype: str
    parameters: int
    num_bytes: int
    device_bytes: int
    matrices: dict[str, tuple[int, int]]
    layer_flops: int
    cache_bytes: int


def model_cost(
    model: Architecture | str | os.PathLike,
    dtype: str | None = None,
    *,
    context: int = 0,
    devices: int = 1,
) -> ModelCost:
    r"""Counts parameters, bytes and operations of an architecture or a checkpoint.

    .. math:: \text{operations of a token in a layer:} \quad
        2 \sum_{W} m_W n_W + 4\, c\, h\, d_h

    over all matrices of the layer, for c tokens that it attends to, h heads and head
    width :math:`d_h`. Norms, softmax, rotations, activations and biases are left out.
    Of a mixture all experts count, since all are applied.

    Of a checkpoint only ``config.json`` and the headers of the safetensors files are
    read, and checked as :func:`~icltheory.bridge.load_checkpoint` does: a tensor that
    is missing, unknown or of another shape raises. Besides the weights a pass needs
    memory for activations, and loading for the largest tensor once more.

    Args:
        model: The architecture, such as ``read_architecture`` makes of a config, or the
            folder of a checkpoint in the Hugging Face layout.
        dtype: Dtype of weights, keys and values; unless given that in which
            ``load_checkpoint`` loads the checkpoint, float16 for an architecture.
        context: Tokens that a token attends to, on average.
        devices: Number of devices that share the weights, split as by
            :class:`~icltheory.bridge.sharding.Placement`: norms, most biases and sides
            that the number does not divide are whole on every device.

    Example:
        >>> from icltheory.bridge.families import read_architecture
        >>> cost = model_cost(read_architecture({"model_type": "gptj"}), devices=8)
        >>> f"{cost.parameters:,} parameters, {cost.device_bytes / 1e9:.2f} GB each"
        '6,050,882,784 parameters, 1.51 GB each'

    Source: Kaplan et al. (2020), Table 1.
    """
    check_nonnegative_int("context", context)
    check_positive_int("devices", devices)
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    known = isinstance(model, Architecture)
    arch, own = (model, "float16") if known else _stored(Path(model))
    kind = dtype or own
    width = jnp.dtype(kind).itemsize
    shapes = {
        path: shape
        for entry in entries_of(arch)
        for path, shape in zip(entry.paths, entry.shapes, strict=True)
    }
    parameters = held = 0
    for path, shape in shapes.items():
        whole = split_axis(path, shape, devices) is None
        parameters += math.prod(shape)
        held += math.prod(shape) // (1 if whole else devices)
    matrices = {
        ".".join(map(str, path[3:-1])): (shape[0], shape[1])
        for path, shape in shapes.items()
        if path[:2] == ("layers", 0) and len(shape) == 2
    }
    products = sum(m * n for m, n in matrices.values())
    return ModelCost(
        dtype=kind,
        parameters=parameters,
        num_bytes=parameters * width,
        device_bytes=held * width,
        matrices=matrices,
        layer_flops=2 * products + 4 * context * arch.num_heads * arch.head_dim,
        cache_bytes=2 * arch.num_layers * arch.num_kv_heads * arch.head_dim * width,
    )


def fits(device_bytes: float | int, devices: int = 1) -> bool | None:
    """Whether so many bytes on each device are free here; ``None`` if unknown.

    The devices of a CPU share its memory.
    """
    free = free_memory()
    shared = devices if jax.default_backend() == "cpu" else 1
    return None if free is None else device_bytes * shared <= free


def free_memory() -> int | None:
    """Free bytes of the first device; for a CPU, available system memory.

    ``None`` where neither the device nor the system says.

    Example:
        >>> free = free_memory()
        >>> free is None or free > 0
        True
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return None
    table = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    kilobytes = table.get("MemAvailable", "").split()
    return 1024 * int(kilobytes[0]) if kilobytes else None


def _stored(folder: Path) -> tuple[Architecture, str]:
    """Reads the architecture and dtype of a checkpoint; checks names and shapes."""
    if not any((folder / name).is_file() for name in (SINGLE, INDEX)):
        raise FileNotFoundError(
            f"{folder}: expected {SINGLE} or {INDEX}, to read the headers of the "
            "tensors, found neither"
        )
    config, arch, tensors = opened(folder)
    stored = {tensors.found[name].dtype for _, (name, *_) in matched(arch, tensors)}
    return arch, own_dtype(config, stored).name


class MatrixSize(NamedTuple):
    """Size of a matrix (m, n), stored whole or as two factors of rank r."""

    matrix: str
    shape: tuple[int, ...]
    rank: int

    @property
    def dense(self) -> int:
        """Numbers stored whole, m n."""
        return math.prod(self.shape)

    @property
    def factors(self) -> int:
        """Numbers stored as two factors, r (m + n)."""
        return self.rank * sum(self.shape)

    @property
    def stored(self) -> int:
        """The smaller of the two."""
        return kept_parameters(self.shape, self.rank)

    @property
    def break_even_rate(self) -> float:
        """The rate above which factors are smaller, min(m, n) / (m + n)."""
        return min(self.shape) / sum(self.shape)


class SizeReport(NamedTuple):
    """Savings by clipping one module, relative to the whole model.

    Attributes:
        dense: Numbers of the module stored whole.
        stored: Numbers stored, with factors where they are fewer.
        dense_flops: Floating-point operations of its products for one token: none of a
            table that is looked up, and of experts the share that a token uses.
        model_parameters: Numbers of the whole model, a tied head once.
        model_saved: Share of those that is saved. Clipping one end of tied embeddings
            and head unties them: the clipped matrix is stored beside the original one,
            and the share is negative.
    """

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

    up to the rounding of the rank: a square matrix becomes smaller only at rates above
    one half. A product takes 2 operations for each number stored. Clipping alone saves
    nothing: the product of the factors is as large as the matrix was.

    Outside of the layers, for embeddings and head, ``layer`` is ``None``; ``method``
    says how a rate becomes a rank.

    Example:
        >>> from icltheory.bridge import Decoder
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
        MatrixSize(spec.name, W.shape, left)
        for spec, W, left in zip(specs, weights, kept, strict=True)
    )
    dense, stored = sum(s.dense for s in sizes), sum(s.stored for s in sizes)
    shares = [_share_of_tokens(model, layer, module, spec) for spec in specs]
    pairs = list(zip(shares, sizes, strict=True))
    width = np.dtype(weights[0].dtype).itemsize
    total = sum(int(leaf.size) for leaf in jax.tree.leaves(model.params))
    # The original matrix stays as the other end of what was tied.
    beside = dense if tied_to(model, layer, module) else 0
    return SizeReport(
        matrices=sizes,
        dense=dense,
        stored=stored,
        dense_bytes=dense * width,
        stored_bytes=stored * width,
        dense_flops=int(2 * sum(share * size.dense for share, size in pairs)),
        stored_flops=int(2 * sum(share * size.stored for share, size in pairs)),
        model_parameters=total,
        model_saved=(dense - stored - beside) / total,
    )


def _share_of_tokens(model, layer, module, spec) -> Fraction:
    """Share of the tokens that a matrix is multiplied with."""
    experts = model.arch.experts
    if layer is not None and spec.name.startswith("expert_"):
        return Fraction(experts.per_token, experts.num)
    if layer is None and "head" not in module.split(","):
        return Fraction(0)  # the rows of the embeddings are looked up
    heads = {one.path for one in model.end_matrices() if one.name == "head"}
    return Fraction(layer is not None or spec.path in heads)
