"""Cost of a decoder without reading weights: parameters, bytes and operations."""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from icltheory._checks import check_choice, check_nonnegative_int, check_positive_int
from icltheory.bridge._tensors import INDEX, SINGLE, Tensors, read_json, safetensors_of
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.checkpoint import DTYPES, matched, own_dtype
from icltheory.bridge.factors import join_factors, take_factors
from icltheory.bridge.families import entries_of, read_architecture
from icltheory.bridge.sharding import split_axis

__all__ = [
    "CheckpointCost",
    "ModelCost",
    "checkpoint_cost",
    "device_bytes",
    "free_memory",
    "model_cost",
]


class ModelCost(NamedTuple):
    """Size of a model, and its operations per token.

    Attributes:
        parameters: Numbers of the whole model, a tied head once.
        num_bytes: Bytes of its weights.
        matrices: Shape (out, in) of every named matrix of a layer, by name.
        layer_flops: Floating-point operations of a token in one layer.
        head_flops: Operations of the whole vocabulary's logits for a token.
        cache_bytes: Bytes of the keys and values of a token in all layers.
    """

    parameters: int
    num_bytes: int
    matrices: dict[str, tuple[int, int]]
    layer_flops: int
    head_flops: int
    cache_bytes: int

    def svd_flops(self, name: str) -> int:
        r"""Operations for the singular values of a matrix, without vectors.

        About :math:`4 m n^2 - \tfrac43 n^3` for :math:`m \ge n` (Golub and Van Loan).

        Args:
            name: Name of the matrix.

        Returns:
            The count.
        """
        n, m = sorted(self.matrices[name])
        return 4 * m * n**2 - 4 * n**3 // 3


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

    Example:
        >>> from icltheory.bridge.families import read_architecture
        >>> cost = model_cost(read_architecture({"model_type": "gptj"}))
        >>> f"{cost.parameters:,} parameters, {cost.num_bytes / 1e9:.1f} GB"
        '6,050,882,784 parameters, 12.1 GB'

    Source: Golub and Van Loan (2013), Figure 8.6.1; Kaplan et al. (2020), Table 1.
    """
    check_nonnegative_int("context", context)
    size = _width(dtype)
    shapes = {
        path: shape
        for entry in entries_of(arch)
        for path, shape in zip(entry.paths, entry.shapes, strict=True)
    }
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


def device_bytes(arch: Architecture, dtype: str = "float16", devices: int = 1) -> int:
    """Bytes of weights on one of several devices.

    Attention heads, columns of the MLP and the tables of tokens are split, as
    :class:`~icltheory.bridge.sharding.Placement` does; norms, most biases and sides
    that the number does not divide are whole on every device.

    Args:
        arch: The architecture.
        dtype: Of the weights.
        devices: Number of devices that share the weights.

    Returns:
        The bytes.

    Example:
        >>> arch = read_architecture({"model_type": "gptj"})
        >>> [round(device_bytes(arch, devices=n) / 1e9, 2) for n in (1, 8)]
        [12.1, 1.51]
    """
    check_positive_int("devices", devices)
    width, total = _width(dtype), 0
    for entry in entries_of(arch):
        for path, shape in zip(entry.paths, entry.shapes, strict=True):
            split = split_axis(path, shape, devices) is not None
            total += math.prod(shape) // (devices if split else 1)
    return total * width


def _width(dtype: Any) -> int:
    """Returns the bytes of a number."""
    try:
        return jnp.dtype(dtype).itemsize
    except TypeError:
        raise ValueError(f"dtype: expected the name of one, got {dtype!r}") from None


class CheckpointCost(NamedTuple):
    """Memory and size for loading a checkpoint.

    Attributes:
        arch: The architecture.
        parameters: Numbers of the whole model, a tied head once.
        file_dtype: Dtype of the weights in the file, or a list of several.
        dtype: Dtype in which they are loaded.
        num_bytes: Bytes of the weights once loaded.
        devices: Devices that share them.
        device_bytes: Bytes of weights that one device holds.
        needed: Bytes that have to be free where ``free`` was looked up: those of one
            device, or of all if they are parts of one CPU.
        free: Free bytes of this machine, see :func:`free_memory`; ``None`` if unknown.
    """

    arch: Architecture
    parameters: int
    file_dtype: str
    dtype: str
    num_bytes: int
    devices: int
    device_bytes: int
    needed: int
    free: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the weights fit in the free memory; ``None`` if it is unknown."""
        return None if self.free is None else self.needed <= self.free


def checkpoint_cost(
    folder: str | os.PathLike, dtype: str | None = None, *, devices: int = 1
) -> CheckpointCost:
    """Computes what loading a checkpoint requires, without reading weights.

    Read are ``config.json`` and the headers of the safetensors files, which are checked
    as :func:`~icltheory.bridge.load_checkpoint` does: a tensor that is missing, unknown
    or of another shape is reported here already. Besides the weights a pass needs room
    for activations, and loading for the largest tensor once more.

    Args:
        folder: The checkpoint in the Hugging Face layout.
        dtype: Dtype to load in; that of ``load_checkpoint`` unless given.
        devices: Number of devices that share the weights.

    Returns:
        The bytes, in all and on each device, and what is free here.

    Example:
        >>> import tempfile
        >>> checkpoint_cost(tempfile.mkdtemp())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FileNotFoundError: .../config.json: expected a file, found none
    """
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    check_positive_int("devices", devices)
    config, arch, tensors = _headers(Path(folder))
    found = matched(arch, tensors)
    stored = {tensors.found[name].dtype for _, (name, *_) in found}
    kind = own_dtype(config, stored).name if dtype is None else dtype
    own = device_bytes(arch, kind, devices)
    cost = model_cost(arch, kind)
    return CheckpointCost(
        arch=arch,
        parameters=cost.parameters,
        file_dtype=", ".join(sorted(kind.name for kind in stored)),
        dtype=kind,
        num_bytes=cost.num_bytes,
        devices=devices,
        device_bytes=own,
        needed=own * devices if jax.default_backend() == "cpu" else own,
        free=free_memory(),
    )


def free_memory() -> int | None:
    """Free bytes of the default device; for a CPU, available system memory.

    Returns:
        The bytes; ``None`` where neither the device nor the system says.

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


def _headers(folder: Path) -> tuple[dict[str, Any], Architecture, Tensors]:
    """Reads the config, the architecture and the tensors' names, shapes and dtypes."""
    path = folder / "config.json"
    config, ranks = take_factors(read_json(path), path)
    arch = read_architecture(config, path)
    if not any((folder / name).is_file() for name in (SINGLE, INDEX)):
        raise FileNotFoundError(
            f"{folder}: expected {SINGLE} or {INDEX}, to read the headers of the "
            "tensors, found neither"
        )
    tensors = safetensors_of(folder)
    return config, arch, join_factors(tensors, arch, ranks) if ranks else tensors
