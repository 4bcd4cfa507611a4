"""Writes a language model as a folder in the Hugging Face layout."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from icltheory._checks import check_positive_int
from icltheory._files import named_file
from icltheory._safetensors import write_safetensors
from icltheory.bridge._arrays import on_host, spans_processes
from icltheory.bridge._gguf import GGUFTokenizer
from icltheory.bridge._paths import leaf_at
from icltheory.bridge._safetensors import INDEX, SINGLE
from icltheory.bridge.export.factors import factorise, mark_factors, part_names
from icltheory.bridge.families import Entry, entries_of, read_architecture
from icltheory.bridge.model import LanguageModel, check_weights
from icltheory.pruning import module_matrices

__all__ = ["save_checkpoint"]

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
    every matrix whose rank r is found to satisfy

    .. math:: r\, (m + n) < m\, n

    is stored as W = A B, equal to rounding; icltheory alone reads such a folder. The
    tokenizer's files are copied. Everything is written beside ``folder`` and renamed.
    Where the devices of several processes share the model, all of them call it, and
    the first one writes.

    Args:
        model: The model, with the config of the checkpoint that it came from.
        folder: Where to write.
        factorised: Pairs of a layer and a module, such as ``(26, "mlp")``, or
            ``(None, "head")`` outside of the layers; none if left out.
        shard_bytes: Size above which the tensors go into several files.
        overwrite: Whether a folder that is there, with all it holds, is replaced; of a
            link the folder that it leads to, and the link stays.

    Returns:
        The folder.

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
        raise ValueError(
            f"folder: expected a path that ends in the name of a folder, got {folder}"
        )
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
    tensors, ranks = [], {}
    for entry in entries_of(model.arch):
        tensors += _tensors(model.params, entry, paths, ranks)
    config = mark_factors(config, ranks) if ranks else config
    shared = spans_processes(model.params)
    if shared and jax.process_index() > 0:
        for tensor in tensors:
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
    tensors: Sequence["_Tensor"],
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


class _Tensor(NamedTuple):
    """One tensor to write, computed when it is read."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


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
            raise ValueError(
                f"factorised: expected pairs of a layer and a module, got {pair!r}"
            )
        found |= {spec.path for spec in module_matrices(model, *pair)}
    return found


def _tensors(params, entry: Entry, paths, ranks) -> list[_Tensor]:
    """Returns an entry's tensor, or its pieces if factors are smaller."""
    leaves = [leaf_at(params, path) for path in entry.paths]
    factors = [
        factorise(on_host(leaf)) if path in paths else None
        for leaf, path in zip(leaves, entry.paths, strict=True)
    ]
    if not any(factors):
        kind = np.dtype(leaves[0].dtype)
        return [_Tensor(entry.name, entry.shape, kind, lambda: _joined(entry, leaves))]
    ranks[entry.name] = [pair and pair[0].shape[1] for pair in factors]
    found = []
    names = part_names(entry.name, len(leaves))
    for name, leaf, pair in zip(names, leaves, factors, strict=True):
        pieces = {name: leaf} if pair is None else {f"{name}.A": pair[0]}
        if pair is not None:
            pieces[f"{name}.B"] = pair[1]
        found += [_stored(name, array) for name, array in pieces.items()]
    return found


def _joined(entry, leaves):
    return entry.join([on_host(leaf) for leaf in leaves], np)


def _stored(name, array) -> _Tensor:
    return _Tensor(name, array.shape, np.dtype(array.dtype), lambda: on_host(array))


def _write_tensors(folder: Path, tensors: Sequence[_Tensor], limit: int) -> None:
    shards: list[list[_Tensor]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(t.size for t in shards[-1]) + tensor.size > limit:
            shards.append([])
        shards[-1].append(tensor)
    if len(shards) == 1:
        _write_file(folder / SINGLE, tensors)
        return
    table: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_file(folder / name, shard)
        table |= {tensor.name: name for tensor in shard}
    total = {"total_size": sum(tensor.size for tensor in tensors)}
    _write_json(folder / INDEX, {"metadata": total, "weight_map": table})


def _write_file(path: Path, tensors: Sequence[_Tensor]) -> None:
    by_name = {tensor.name: tensor for tensor in tensors}
    header = [(t.name, t.shape, t.dtype) for t in tensors]
    write_safetensors(path, header, lambda name: by_name[name].read())


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
