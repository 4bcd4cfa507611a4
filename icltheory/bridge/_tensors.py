"""Tensors of a checkpoint in the Hugging Face layout, from safetensors or Flax files.

Flax's names follow torch's but for the leaves: a ``kernel`` is the transpose of torch's
``weight`` (which makes GPT-2's (out, in), since torch keeps that one (in, out)), and
``embedding`` and ``scale`` are weights. With these renamed, the table of a family
serves both kinds of files.
"""

import functools
import json
import math
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import msgpack
import numpy as np
from flax import traverse_util

from icltheory.bridge._arrays import cast
from icltheory.models._files import refuse_pointer
from icltheory.models._safetensors import Tensor, open_safetensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLAX_SINGLE, FLAX_INDEX = "flax_model.msgpack", "flax_model.msgpack.index.json"
_LEAVES = {"kernel": "weight", "embedding": "weight", "scale": "weight"}
_ARRAY = 1  # Flax's code for an array: shape, dtype and bytes
_FRONT = 1024
_CHUNKED = "__msgpack_chunked_array__"  # Flax's key for an array in chunks


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an error names the file and the line."""
    try:
        refuse_pointer(path)
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a file, found none") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: expected a file, got a folder") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: expected JSON, got {error.msg}"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected JSON in UTF-8, got {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _shard_files(index: Path) -> dict[str, Path]:
    """Returns the file of each tensor of a sharded checkpoint, from its index."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{index}: expected a weight_map, got {table!r}")
    for name, shard in table.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ValueError(
                f"{index}: expected a file of this folder for {name}, got {shard!r}"
            )
        if not index.with_name(shard).is_file():
            raise FileNotFoundError(
                f"{index.with_name(shard)}: expected a file, which {index.name} lists, "
                "found none"
            )
    return {name: index.with_name(shard) for name, shard in table.items()}


def _sharded(folder: Path, single: str, index: str) -> bool:
    return (folder / index).is_file() and not (folder / single).is_file()


class Tensors(NamedTuple):
    """The tensors of a checkpoint by name, in PyTorch's names and layout.

    Attributes:
        where: The file that lists them, for messages.
        found: The tensors.
    """

    where: Path
    found: dict[str, Tensor]


def safetensors_of(folder: Path) -> Tensors:
    """Returns the tensors of a checkpoint in one or several safetensors files."""
    if not _sharded(folder, SINGLE, INDEX):
        return Tensors(folder / SINGLE, open_safetensors(folder / SINGLE))
    table = _shard_files(folder / INDEX)
    opened = {path: open_safetensors(path) for path in dict.fromkeys(table.values())}
    found = {n: tensor for tensors in opened.values() for n, tensor in tensors.items()}
    for name, path in table.items():
        if name not in opened[path]:
            raise ValueError(f"{path}: expected tensor {name}, found none")
        # Of a tensor in several files, the one named by the index is used.
        found[name] = opened[path][name]
    return Tensors(folder / INDEX, found)


def flax_of(folder: Path, dtype: np.dtype | None) -> Tensors:
    """Returns the tensors of a Flax checkpoint in one or several files.

    Files are parsed at once, and every array is cast to ``dtype`` while its file is
    parsed. A tensor that is released is removed from memory, so that the tree shrinks
    as the model grows.
    """
    if not _sharded(folder, FLAX_SINGLE, FLAX_INDEX):
        where = folder / FLAX_SINGLE
        return Tensors(where, _flax_file(where, dtype))
    table, found = _shard_files(folder / FLAX_INDEX), {}
    for file in dict.fromkeys(table.values()):
        found |= _flax_file(file, dtype)
    for path, file in table.items():
        if (name := _renamed(path)) not in found:
            raise ValueError(f"{file}: expected tensor {name}, found none")
    return Tensors(folder / FLAX_INDEX, found)


def _flax_file(file: Path, dtype: np.dtype | None) -> dict[str, Tensor]:
    tree = _restore(file, dtype)
    # The tree is nested once more if a train state was saved.
    tree = tree["params"] if set(tree) == {"params"} else tree
    arrays = {}
    leaves = traverse_util.flatten_dict(
        tree, is_leaf=lambda _, value: _CHUNKED in value
    )
    for keys, leaf in leaves.items():
        path = "/".join(map(str, keys))
        array = _joined(leaf) if isinstance(leaf, dict) else leaf
        if not isinstance(array, np.ndarray):
            raise ValueError(
                f"{file}: expected an array at {path}, got {type(leaf).__name__}"
            )
        arrays[_renamed(path)] = array.T if path.endswith("kernel") else array
    return {
        name: Tensor(
            array.shape,
            array.dtype,
            read=functools.partial(arrays.__getitem__, name),
            release=functools.partial(arrays.pop, name),
            file=file,
        )
        for name, array in arrays.items()
    }


def _renamed(path: str) -> str:
    """Converts a leaf's path to PyTorch's name."""
    *modules, last = path.split("/")
    return ".".join([*modules, _LEAVES.get(last, last)])


def _restore(path: Path, dtype: np.dtype | None) -> dict[str, Any]:
    """Returns the tree in a mapped file, each array in ``dtype`` once it is parsed.

    ``flax.serialization.msgpack_restore`` would hold the file, its arrays and the model
    at once.
    """

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
        floating = jnp.issubdtype(kind, jnp.floating)
        return cast(array, dtype or kind) if floating else array

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


def _joined(value):
    """Joins the numbered chunks of an array."""
    chunks, shape = value.get("chunks"), value.get("shape")
    if not chunks or not shape:
        return None
    flat = np.concatenate([chunks[str(i)] for i in range(len(chunks))])
    return flat.reshape([int(shape[str(i)]) for i in range(len(shape))])
