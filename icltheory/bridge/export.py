"""Writes a language model as a folder in the Hugging Face layout."""

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from icltheory._checks import check_positive_int, wrong
from icltheory.bridge._gguf import GGUFTokenizer
from icltheory.bridge._tensors import INDEX, SINGLE
from icltheory.bridge.factors import factorise, mark_factors, part_names
from icltheory.bridge.families import Entry, entries_of, read_architecture
from icltheory.bridge.model import LanguageModel, check_weights
from icltheory.bridge.sharding import leaf_at, on_host, spans_processes
from icltheory.models._files import named_file
from icltheory.models._safetensors import Tensor, write_safetensors
from icltheory.pruning import module_matrices

_COPIED = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json"),
    *("merges.txt", "added_tokens.json", "special_tokens_map.json"),
    *("generation_config.json", "chat_template.jinja", "chat_template.json"),
)


def save_checkpoint(
    model: LanguageModel,
    folder: str | os.PathLike,
    *,
    factorised: Iterable[tuple[int | None, str]] | None = None,
    shard_bytes: int = 5 * 10**9,
    overwrite: bool = False,
) -> Path:
    r"""Writes a checkpoint with whole matrices or, where smaller, two factors.

    A dense checkpoint has the names and layout of the model's family and is read by
    every program that reads Hugging Face folders; :func:`~icltheory.bridge.
    load_checkpoint` gives back the same bits. In the modules that ``factorised`` names,
    every matrix (m, n) of a rank r with

    .. math:: r\, (m + n) < m\, n

    is stored as W = A B, equal to rounding; icltheory alone reads such a folder. The
    tokenizer's files are copied. Everything is written beside ``folder`` and renamed.
    Where the devices of several processes share the model, all of them call it, and
    the first one writes.

    Args:
        model: The model, with the config of the checkpoint that it came from.
        factorised: Pairs of a layer and a module, such as ``(26, "mlp")``, or
            ``(None, "head")`` outside of the layers; none if left out.
        shard_bytes: Size above which the tensors go into several files.
        overwrite: Whether an existing folder is replaced with all it holds; of a link
            the folder that it leads to, and the link stays.

    Example:
        >>> import jax, tempfile
        >>> from icltheory.bridge import Decoder, prune_model
        >>> config = {"model_type": "gptj", "vocab_size": 9, "n_embd": 16, "n_head": 2,
        ...     "n_layer": 2, "n_positions": 8, "rotary_dim": 4}
        >>> decoder = Decoder(read_architecture(config))
        >>> params = decoder.init(jax.random.key(0))
        >>> model = LanguageModel(decoder, params, config=config)
        >>> clipped = prune_model(model, "1:mlp:0.75")
        >>> path = save_checkpoint(clipped, tempfile.mkdtemp(), factorised=[(1, "mlp")])
        >>> sorted(file.name for file in path.iterdir())
        ['config.json', 'model.safetensors']
    """
    folder = Path(folder)
    if folder.name in ("", ".."):
        wanted = "a path that ends in the name of a folder"
        raise ValueError(f"folder: expected {wanted}, got {folder}")
    check_positive_int("shard_bytes", shard_bytes)
    config = _config(model)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder}: expected a folder or nothing, found a file")
    if folder.exists() and not overwrite and any(folder.iterdir()):
        raise FileExistsError(
            f"{folder}: expected an empty folder or nothing, found files in it; pass "
            "overwrite=True to replace it"
        )
    check_weights(model)
    paths = _paths(model, factorised or ())
    tensors, ranks = {}, {}
    for entry in entries_of(model.arch):
        tensors |= _tensors(model.params, entry, paths, ranks)
    config = mark_factors(config, ranks) if ranks else config
    shared = spans_processes(model.params)
    if shared and jax.process_index() > 0:
        for tensor in tensors.values():
            tensor.read()  # this process holds a part of every tensor
    else:
        _write(folder, model, config, tensors, shard_bytes)
    if shared:
        multihost_utils.sync_global_devices("save_checkpoint")
    return folder


def _write(
    folder: Path,
    model: LanguageModel,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    shard_bytes: int,
) -> None:
    """Writes all files into a temporary folder and renames it."""
    if folder.is_symlink():
        folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.writing.{os.getpid()}")
    aside.mkdir()
    try:
        with named_file(folder):
            _write_tensors(aside, tensors, shard_bytes)
            _copy_tokenizer(model, aside)
            _write_json(aside / "config.json", config)
            _put_in_place(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _config(model: LanguageModel) -> dict[str, Any]:
    """Returns the model's config with the current dtype of its weights."""
    if not model.config:
        raise ValueError(
            "config: expected the config of a checkpoint, got an empty one; pass "
            "config= to LanguageModel"
        )
    described = read_architecture(model.config, model.source or "config")
    if described != model.arch:
        names = [field.name for field in dataclasses.fields(described)]
        other = [n for n in names if getattr(described, n) != getattr(model.arch, n)]
        raise ValueError(
            "config: expected a config of the model's architecture, got one with "
            f"another {', '.join(other)}"
        )
    keys = [key for key in ("dtype", "torch_dtype") if key in model.config]
    kind = model.params["embed"]["tokens"].dtype.name
    return {**model.config, **dict.fromkeys(keys or ["torch_dtype"], kind)}


def _paths(model, pairs) -> set[tuple]:
    found = set()
    for pair in pairs:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise wrong("factorised", "pairs of a layer and a module", pair)
        found |= {spec.path for spec in module_matrices(model, *pair)}
    return found


def _tensors(params, entry: Entry, paths, ranks) -> dict[str, Tensor]:
    """Returns an entry's tensor, or its pieces if factors are smaller."""
    leaves = [leaf_at(params, path) for path in entry.paths]
    factors = [
        factorise(on_host(leaf)) if path in paths else None
        for leaf, path in zip(leaves, entry.paths, strict=True)
    ]
    if not any(factors):

        def joined():
            return entry.join([on_host(leaf) for leaf in leaves])

        return {entry.name: Tensor(entry.shape, np.dtype(leaves[0].dtype), joined)}
    ranks[entry.name] = [pair and pair[0].shape[1] for pair in factors]
    names, found = part_names(entry.name, len(leaves)), {}
    for name, leaf, pair in zip(names, leaves, factors, strict=True):
        if pair is None:
            found[name] = leaf
        else:
            found[f"{name}.A"], found[f"{name}.B"] = pair
    return {
        name: Tensor(leaf.shape, np.dtype(leaf.dtype), functools.partial(on_host, leaf))
        for name, leaf in found.items()
    }


def _write_tensors(folder: Path, tensors: Mapping[str, Tensor], limit: int) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if shards[-1] and _size(shards[-1]) + tensor.nbytes > limit:
            shards.append({})
        shards[-1][name] = tensor
    if len(shards) == 1:
        write_safetensors(folder / SINGLE, tensors)
        return
    table: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(folder / file, shard)
        table |= dict.fromkeys(shard, file)
    metadata = {"total_size": _size(tensors)}
    _write_json(folder / INDEX, {"metadata": metadata, "weight_map": table})


def _size(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _copy_tokenizer(model: LanguageModel, target: Path) -> None:
    try:
        source = getattr(model.tokenizer, "folder", None)
    except FileNotFoundError:
        source = model.source
    if isinstance(model._tokenizer, GGUFTokenizer):
        model._tokenizer._backend.save(str(target / _COPIED[0]))
    for name in _COPIED:
        if source and (Path(source) / name).is_file():
            shutil.copyfile(Path(source) / name, target / name)


def _put_in_place(aside: Path, folder: Path) -> None:
    """Renames the new folder, then removes the old one."""
    if not folder.exists():
        aside.rename(folder)
        return
    old = folder.with_name(f".{folder.name}.replaced.{os.getpid()}")
    folder.rename(old)
    aside.rename(folder)
    shutil.rmtree(old)
