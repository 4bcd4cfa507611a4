"""Tensors of a checkpoint in the Hugging Face layout, from safetensors or Flax files.

Flax's names follow torch's but for the leaves: a ``kernel`` is the transpose of torch's
``weight`` (which makes GPT-2's (out, in), since torch keeps that one (in, out)), and
``embedding`` and ``scale`` are weights. With these renamed, the table of a family
serves both kinds of files.
"""

import functools
import json
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax import serialization, traverse_util

from icltheory._checks import wrong
from icltheory.models._files import refuse_pointer
from icltheory.models._safetensors import Tensor, open_safetensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLAX_SINGLE, FLAX_INDEX = "flax_model.msgpack", "flax_model.msgpack.index.json"
_LEAVES = {"kernel": "weight", "embedding": "weight", "scale": "weight"}


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
        said = f"line {error.lineno}: expected JSON, got {error.msg}"
        raise ValueError(f"{path}, {said}") from None
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
            raise wrong(str(index), f"a file of this folder for {name}", shard)
        if not (path := index.with_name(shard)).is_file():
            wanted = f"a file, which {index.name} lists"
            raise FileNotFoundError(f"{path}: expected {wanted}, found none")
    return {name: index.with_name(shard) for name, shard in table.items()}


def _sharded(folder: Path, single: str, index: str) -> bool:
    return (folder / index).is_file() and not (folder / single).is_file()


class Tensors(NamedTuple):
    """The tensors of a checkpoint by name, in PyTorch's names and layout.

    Messages name the file that lists them, ``where``.
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


def flax_of(folder: Path) -> Tensors:
    """Returns the tensors of a Flax checkpoint in one or several files.

    Files are parsed at once. A tensor that is released is removed from memory, so that
    the tree shrinks as the model grows.
    """
    if not _sharded(folder, FLAX_SINGLE, FLAX_INDEX):
        where = folder / FLAX_SINGLE
        return Tensors(where, _flax_file(where))
    table, found = _shard_files(folder / FLAX_INDEX), {}
    for file in dict.fromkeys(table.values()):
        found |= _flax_file(file)
    for path, file in table.items():
        if (name := _renamed(path)) not in found:
            raise ValueError(f"{file}: expected tensor {name}, found none")
    return Tensors(folder / FLAX_INDEX, found)


def _flax_file(file: Path) -> dict[str, Tensor]:
    tree, arrays = _restore(file), {}
    # The tree is nested once more if a train state was saved.
    tree = tree["params"] if set(tree) == {"params"} else tree
    for path, leaf in traverse_util.flatten_dict(tree, sep="/").items():
        if not isinstance(leaf, np.ndarray):
            got = type(leaf).__name__
            raise ValueError(f"{file}: expected an array at {path}, got {got}")
        arrays[_renamed(path)] = leaf.T if path.endswith("kernel") else leaf
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


def _restore(path: Path) -> dict[str, Any]:
    if not path.stat().st_size:
        raise ValueError(f"{path}: expected a tree of arrays, got an empty file")
    refuse_pointer(path)
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            tree = serialization.msgpack_restore(mapped)  # pyrefly: ignore
    except Exception as error:  # the parser raises many kinds for damaged files
        raise ValueError(f"{path}: expected a tree of arrays, got {error!r}") from error
    if not isinstance(tree, dict):
        got = type(tree).__name__
        raise ValueError(f"{path}: expected a tree of arrays, got {got}")
    return tree
