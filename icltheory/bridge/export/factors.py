"""Stores low-rank matrices of a checkpoint as two factors, and restores them.

A checkpoint with factors has ``"model_type": "icltheory_factorised"``, so that no other
program takes it for a dense one, fills what it does not find with random numbers and
goes on. Its ``config.json`` says more under ``"icltheory"``::

    {"model_type": "llama",
     "factors": {"model.layers.3.mlp.up_proj.weight": [20]}}

The tensor NAME of the dense checkpoint holds one matrix or several, in (out, in) form.
Under ``"factors"`` is the rank of each, or null for one that is stored whole. The
factors of a single matrix W = A B are ``NAME.A``, (out, r), and ``NAME.B``, (r, in); of
several, ``NAME.0.A``, ``NAME.0.B`` and so on, and a whole one among them is ``NAME.1``.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory.bridge._safetensors import SafetensorsFolder
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families import Entry, entries_of
from icltheory.bridge.spectra import Exact, rounding_noise

__all__ = ["FactoredFolder", "take_factors"]

FACTORISED = "icltheory_factorised"
# Relative size of the rounding errors that clipping in float32 leaves.
_SLACK = 8 * float(np.finfo(np.float32).eps)


def factorise(W: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors of a low-rank matrix in its dtype, or None if they are not smaller.

    The rank counts the singular values that stand out of the rounding of the entries,
    whose largest singular value is about the noise times (sqrt(m) + sqrt(n)).
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
    return {**config, "model_type": FACTORISED, "icltheory": table}


def take_factors(
    config: Mapping[str, Any], source: Any = "config.json"
) -> tuple[dict[str, Any], dict[str, list[int | None]]]:
    """Returns the dense checkpoint's config and the tensors stored as factors.

    Args:
        config: The config as the file has it.
        source: The file, for messages.

    Returns:
        The config and the ranks by tensor; as it came and none, for a dense checkpoint.

    Example:
        >>> table = {"model_type": "gptj", "factors": {"a.weight": [2]}}
        >>> take_factors({"model_type": "icltheory_factorised", "icltheory": table})
        ({'model_type': 'gptj'}, {'a.weight': [2]})
        >>> take_factors({"model_type": "gptj"})
        ({'model_type': 'gptj'}, {})
    """
    if config.get("model_type") != FACTORISED:
        return dict(config), {}
    table = config.get("icltheory")
    table = table if isinstance(table, dict) else {}
    ranks = table.get("factors")
    if not isinstance(ranks, dict) or not all(map(_are_ranks, ranks.values())):
        raise ValueError(
            f"{source}: icltheory: expected a model_type and lists of ranks, "
            f"got {table!r}"
        )
    plain = {k: v for k, v in config.items() if k != "icltheory"}
    return {**plain, "model_type": table.get("model_type")}, ranks


def _are_ranks(value) -> bool:
    return isinstance(value, list) and all(
        rank is None or (type(rank) is int and rank > 0) for rank in value
    )


class FactoredFolder(SafetensorsFolder):
    """Reads a checkpoint with factors as a dense checkpoint.

    Products are formed in float32 and rounded to the dtype of the factors.

    Args:
        folder: The checkpoint.
        arch: Its architecture.
        ranks: The ranks by tensor, of :func:`take_factors`.
    """

    def __init__(self, folder: Path, arch: Architecture, ranks: Mapping[str, list]):
        super().__init__(folder)
        entries = {entry.name: entry for entry in entries_of(arch)}
        stored, self._ranks = self.names, ranks
        self._entries: dict[str, Entry] = {}
        pieces: set[str] = set()
        for name in ranks:
            if name not in entries or len(ranks[name]) != len(entries[name].paths):
                raise ValueError(f"{self.where}: expected no factors of {name}")
            self._entries[name] = entries[name]
            for piece, shape in self._pieces(name):
                self._check(piece, shape, stored)
                pieces.add(piece)
        self.names = frozenset((set(stored) - pieces) | set(ranks))

    def file(self, name: str) -> Path:
        """Returns the file that holds a tensor, or its first piece."""
        if name not in self._ranks:
            return super().file(name)
        return super().file(self._pieces(name)[0][0])

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor in the dense checkpoint."""
        entry = self._entries.get(name)
        return super().shape(name) if entry is None else entry.shape

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of a tensor, or of its first piece."""
        if name not in self._ranks:
            return super().dtype(name)
        return super().dtype(self._pieces(name)[0][0])

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor of the dense checkpoint."""
        if name not in self._ranks:
            return super().read(name)
        ranks = self._ranks[name]
        parts = zip(part_names(name, len(ranks)), ranks, strict=True)
        leaves = [self._leaf(part, rank) for part, rank in parts]
        return self._entries[name].join(leaves, np)

    peek = read

    def release(self, name: str) -> None:
        """Releases the memory pages of a tensor or of its pieces."""
        pieces = [p for p, _ in self._pieces(name)] if name in self._ranks else [name]
        for piece in pieces:
            super().release(piece)

    def _leaf(self, part, rank):
        if rank is None:
            return super().read(part)
        A, B = super().read(f"{part}.A"), super().read(f"{part}.B")
        wide = jnp.promote_types(A.dtype, jnp.float32)
        return (A.astype(wide) @ B.astype(wide)).astype(A.dtype)

    def _pieces(self, name):
        """Returns the stored pieces of one tensor with their shapes."""
        shapes, ranks = self._entries[name].shapes, self._ranks[name]
        found = []
        for part, shape, rank in zip(
            part_names(name, len(ranks)), shapes, ranks, strict=True
        ):
            if rank is None:
                found.append((part, shape))
            else:
                found.append((f"{part}.A", (shape[0], rank)))
                found.append((f"{part}.B", (rank, shape[1])))
        return found

    def _check(self, piece, shape, stored):
        if piece not in stored:
            raise ValueError(f"{self.where}: expected tensor {piece}, found none")
        got = super().shape(piece)
        if got != tuple(shape):
            raise ValueError(
                f"{super().file(piece)}: {piece}: expected shape {tuple(shape)}, "
                f"got {got}"
            )
