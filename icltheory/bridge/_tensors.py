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
_FLAX_SINGLE, _FLAX_INDEX = "flax_model.msgpack", "flax_model.msgpack.index.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
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


class Tensors(NamedTuple):
    """The tensors of a checkpoint by name, in PyTorch's names and layout.

    Messages name the file that lists them, ``where``.
    """

    where: Path
    found: dict[str, Tensor]


def tensors_of(folder: Path) -> Tensors:
    """Returns the tensors of a checkpoint in one or several files.

    Files of Flax are parsed at once. A tensor that is released is removed from memory,
    so that the tree shrinks as the model grows.
    """
    kinds = (
        (SINGLE, INDEX, open_safetensors, str),
        (_FLAX_SINGLE, _FLAX_INDEX, _flax_file, _renamed),
    )
    for single, index, read, renamed in kinds:
        if (folder / single).is_file():
            return Tensors(folder / single, read(folder / single))
        if (folder / index).is_file():
            table = _shard_files(folder / index)
            opened = {file: read(file) for file in dict.fromkeys(table.values())}
            found = {n: t for tensors in opened.values() for n, t in tensors.items()}
            for name, file in ((renamed(stored), f) for stored, f in table.items()):
                if name not in opened[file]:
                    raise ValueError(f"{file}: expected tensor {name}, found none")
                # Of a tensor in several files, the one named by the index is used.
                found[name] = opened[file][name]
            return Tensors(folder / index, found)
    wanted = f"{SINGLE}, {INDEX} or {_FLAX_SINGLE}"
    for path in sorted(p for pattern in _PICKLED for p in folder.glob(pattern)):
        raise ValueError(
            f"{path}: expected {wanted}, got a pickled file, which could run any "
            "program; convert it to safetensors"
        )
    raise FileNotFoundError(f"{folder}: expected {wanted}, found none")


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
