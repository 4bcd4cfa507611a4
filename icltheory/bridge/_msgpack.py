"""Reads Flax checkpoints of Hugging Face, ``flax_model.msgpack``.

Names follow torch's but for the leaves: a ``kernel`` is the transpose of torch's
``weight`` (which makes GPT-2's (out, in), since torch keeps that one (in, out)), and
``embedding`` and ``scale`` are weights. With these renamed, the table of a family
serves both kinds of files.

``flax.serialization.msgpack_restore`` holds the file, its arrays and the model at once.
Here the file is mapped, and an array takes the model's dtype as it is parsed.
"""

import math
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import msgpack
import numpy as np
from flax import traverse_util

from icltheory._files import refuse_pointer
from icltheory.bridge._arrays import cast
from icltheory.bridge._config import shard_files

SINGLE = "flax_model.msgpack"
INDEX = "flax_model.msgpack.index.json"
_LEAVES = {"kernel": "weight", "embedding": "weight", "scale": "weight"}
_ARRAY = 1  # Flax's code for an array: shape, dtype and bytes
_FRONT = 1024
_CHUNKED = "__msgpack_chunked_array__"  # Flax's key for an array in chunks


class FlaxTree:
    """The tensors of a Flax checkpoint, in PyTorch's names and layout.

    The tree is in one file, or in several that an index names by the path of each leaf.
    Of several files each is parsed when the first of its tensors is asked for. A tensor
    is let go when it is read, so that the tree shrinks as the model grows.
    """

    def __init__(self, folder: Path, dtype: np.dtype | None):
        self._dtype = dtype
        self._tensors: dict[str, np.ndarray] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        if (folder / INDEX).is_file() and not (folder / SINGLE).is_file():
            self.where = folder / INDEX
            files = shard_files(self.where)
            self._files = {_renamed(path): file for path, file in files.items()}
        else:
            self.where = folder / SINGLE
            self._files = dict.fromkeys(self._parse(self.where), self.where)
        self.names = frozenset(self._files)

    def _parse(self, file: Path) -> Iterable[str]:
        """Parses a file, stores its tensors, and returns their names."""
        tree = _restore(file, self._dtype)
        # The tree is nested once more if a train state was saved.
        tree = tree["params"] if set(tree) == {"params"} else tree
        found = {}
        for keys, leaf in traverse_util.flatten_dict(tree, is_leaf=_is_chunked).items():
            path = "/".join(map(str, keys))
            array = _joined(leaf) if isinstance(leaf, dict) else leaf
            if not isinstance(array, np.ndarray):
                raise ValueError(
                    f"{file}: expected an array at {path}, got {type(leaf).__name__}"
                )
            found[_renamed(path)] = array.T if path.endswith("kernel") else array
        self._tensors |= found
        self._shapes |= {name: array.shape for name, array in found.items()}
        return found

    def _find(self, name: str) -> None:
        if name not in self._shapes and name not in self._parse(self._files[name]):
            raise ValueError(f"{self._files[name]}: expected tensor {name}, found none")

    def file(self, name: str) -> Path:
        """Returns the file that holds a tensor."""
        return self._files[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        self._find(name)
        return self._shapes[name]

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of a tensor."""
        self._find(name)
        return self._tensors[name].dtype

    def peek(self, name: str) -> np.ndarray:
        """Returns a tensor and keeps it in memory."""
        self._find(name)
        return self._tensors[name]

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor and removes it from memory."""
        self._find(name)
        return self._tensors.pop(name)

    def release(self, name: str) -> None:
        """Does nothing, since a tensor is removed when it is read."""


def _renamed(path: str) -> str:
    """Converts a leaf's path to PyTorch's name."""
    *modules, last = path.split("/")
    return ".".join([*modules, _LEAVES.get(last, last)])


def _restore(path: Path, dtype: np.dtype | None) -> dict[str, Any]:
    def array_of(code, data):
        if code != _ARRAY:
            return msgpack.ExtType(code, data)
        # Shape and dtype come first, and only they are copied for unpacking.
        front = msgpack.Unpacker(raw=True)
        front.feed(data[:_FRONT])
        front.read_array_header()
        shape, kind = tuple(front.unpack()), jnp.dtype(front.unpack().decode())
        start = len(data) - math.prod(shape) * kind.itemsize
        array = np.frombuffer(data, kind, offset=start).reshape(shape)
        return (
            cast(array, dtype or kind) if jnp.issubdtype(kind, jnp.floating) else array
        )

    if not path.stat().st_size:
        raise ValueError(f"{path}: expected a tree of arrays, got an empty file")
    refuse_pointer(path)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        tree = msgpack.unpackb(mapped, ext_hook=array_of, raw=False)
    except Exception as error:  # the parser raises many kinds for damaged files
        raise ValueError(f"{path}: expected a tree of arrays, got {error!r}") from error
    finally:
        mapped.close()
    if not isinstance(tree, dict):
        raise ValueError(
            f"{path}: expected a tree of arrays, got {type(tree).__name__}"
        )
    return tree


def _is_chunked(path, value):
    return _CHUNKED in value


def _joined(value):
    """Joins the numbered chunks of an array."""
    chunks, shape = value.get("chunks"), value.get("shape")
    if not chunks or not shape:
        return None
    flat = np.concatenate([chunks[str(i)] for i in range(len(chunks))])
    return flat.reshape([int(shape[str(i)]) for i in range(len(shape))])
