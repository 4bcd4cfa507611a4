"""Stores low-rank matrices of a checkpoint as two factors, and restores them.

A checkpoint with factors has ``"model_type": "icltheory_factorised"``, so that no other
program takes it for a dense one and fills what it does not find with random numbers.
Its ``config.json`` says more under ``"icltheory"``::

    {"model_type": "llama",
     "factors": {"model.layers.3.mlp.up_proj.weight": [20]}}

The tensor NAME of the dense checkpoint holds one matrix or several, in (out, in) form.
Under ``"factors"`` is the rank of each, or null for one that is stored whole. The
factors of a single matrix W = A B are ``NAME.A``, (out, r), and ``NAME.B``, (r, in); of
several, ``NAME.0.A``, ``NAME.0.B`` and so on, and a whole one among them is ``NAME.1``.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory.bridge._tensors import Tensors
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families import Entry, entries_of
from icltheory.bridge.spectra import Exact, rounding_noise
from icltheory.models._safetensors import Tensor

_FACTORISED = "icltheory_factorised"
# Relative size of the rounding errors that clipping in float32 leaves.
_SLACK = 8 * float(np.finfo(np.float32).eps)


def factorise(W: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors of a low-rank matrix in its dtype, or None if they are not smaller.

    The rank counts the singular values above the rounding noise of the entries, whose
    largest singular value is about the noise times (sqrt(m) + sqrt(n)).
    """
    m, n = W.shape
    U, s, Vt = Exact("float64")(W)
    spread = rounding_noise(W, W.dtype.name) * (math.sqrt(m) + math.sqrt(n))
    rank = max(int(np.sum(s > max(2 * spread, _SLACK * s[0]))), 1)
    if rank * (m + n) >= m * n:
        return None
    root = np.sqrt(s[:rank])
    A, B = U[:, :rank] * root[None], root[:, None] * Vt[:rank]
    return A.astype(W.dtype), B.astype(W.dtype)


def part_names(name: str, count: int) -> list[str]:
    """Names under which the matrices of a tensor are stored separately."""
    return [name] if count == 1 else [f"{name}.{i}" for i in range(count)]


def mark_factors(
    config: Mapping[str, Any], ranks: Mapping[str, list]
) -> dict[str, Any]:
    """Returns the config of a checkpoint with factors."""
    table = {"model_type": config["model_type"], "factors": dict(ranks)}
    return {**config, "model_type": _FACTORISED, "icltheory": table}


def take_factors(
    config: Mapping[str, Any], source: Any = "config.json"
) -> tuple[dict[str, Any], dict[str, list[int | None]]]:
    """Returns the dense checkpoint's config and the ranks of the tensors in factors.

    For a dense checkpoint these are its own config and no ranks.

    Example:
        >>> table = {"model_type": "gptj", "factors": {"a.weight": [2]}}
        >>> take_factors({"model_type": "icltheory_factorised", "icltheory": table})
        ({'model_type': 'gptj'}, {'a.weight': [2]})
        >>> take_factors({"model_type": "gptj"})
        ({'model_type': 'gptj'}, {})
    """
    if config.get("model_type") != _FACTORISED:
        return dict(config), {}
    table = config.get("icltheory")
    table = table if isinstance(table, dict) else {}
    ranks = table.get("factors")
    if not isinstance(ranks, dict) or not all(map(_are_ranks, ranks.values())):
        said = f"expected a model_type and lists of ranks, got {table!r}"
        raise ValueError(f"{source}: icltheory: {said}")
    plain = {k: v for k, v in config.items() if k != "icltheory"}
    return {**plain, "model_type": table.get("model_type")}, ranks


def _are_ranks(value) -> bool:
    return isinstance(value, list) and all(
        rank is None or (type(rank) is int and rank > 0) for rank in value
    )


def join_factors(
    tensors: Tensors, arch: Architecture, ranks: Mapping[str, list]
) -> Tensors:
    """Returns the tensors of the dense checkpoint of one with factors.

    Products are formed in float32 and rounded to the dtype of the factors.
    """
    entries = {entry.name: entry for entry in entries_of(arch)}
    found = dict(tensors.found)

    def take(piece, shape):
        if piece not in found:
            raise ValueError(f"{tensors.where}: expected tensor {piece}, found none")
        tensor = found.pop(piece)
        if tensor.shape != shape:
            said = f"expected shape {shape}, got {tensor.shape}"
            raise ValueError(f"{tensor.file}: {piece}: {said}")
        return tensor

    def matrix(part, shape, rank):
        if rank is None:
            return [take(part, shape)]
        m, n = shape
        return [take(f"{part}.A", (m, rank)), take(f"{part}.B", (rank, n))]

    for name, own in ranks.items():
        if name not in entries or len(own) != len(entries[name].paths):
            raise ValueError(f"{tensors.where}: expected no factors of {name}")
        entry = entries[name]
        parts = zip(part_names(name, len(own)), entry.shapes, own, strict=True)
        found[name] = _joined(entry, [matrix(*part) for part in parts])
    return Tensors(tensors.where, found)


def _joined(entry: Entry, matrices: list[list[Tensor]]) -> Tensor:
    """Returns the tensor of an entry whose matrices are whole or two factors."""
    pieces = [piece for matrix in matrices for piece in matrix]

    def read():
        return entry.join([_product(*matrix) for matrix in matrices])

    def release():
        for piece in pieces:
            piece.release()

    return Tensor(entry.shape, pieces[0].dtype, read, release, pieces[0].file)


def _product(first: Tensor, second: Tensor | None = None) -> np.ndarray:
    if second is None:
        return first.read()
    wide = jnp.promote_types(first.dtype, jnp.float32)
    A, B = first.read(), second.read()
    return (A.astype(wide) @ B.astype(wide)).astype(A.dtype)
