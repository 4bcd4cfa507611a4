"""Writes a language model as a Hugging Face folder, and counts what pruning saves."""

import dataclasses
import functools
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from icltheory._checks import check_positive_int
from icltheory._files import named_file
from icltheory._safetensors import Tensor, write_safetensors
from icltheory.bridge._gguf import GGUFTokenizer
from icltheory.bridge._tensors import INDEX, SINGLE
from icltheory.bridge.factors import factorise, mark_factors, part_names
from icltheory.bridge.families import Entry, entries_of, read_architecture
from icltheory.bridge.model import LanguageModel, check_weights
from icltheory.bridge.sharding import leaf_at, on_host, spans_processes
from icltheory.layered import get_matrix
from icltheory.pruning import LowRank, Method, kept_parameters, module_matrices
from icltheory.pruning.methods import kept_table
from icltheory.pruning.modules import tied_to

__all__ = ["MatrixSize", "SizeReport", "save_checkpoint", "size_report"]

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
        folder: Where to write.
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
            raise ValueError(
                f"factorised: expected pairs of a layer and a module, got {pair!r}"
            )
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
            return entry.join([on_host(leaf) for leaf in leaves], np)

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
    def break_even_rank(self) -> float:
        """The rank m n / (m + n), below which factors are smaller."""
        return self.dense / sum(self.shape)

    @property
    def break_even_rate(self) -> float:
        """The rate of that rank, min(m, n) / (m + n)."""
        return min(self.shape) / sum(self.shape)


class SizeReport(NamedTuple):
    """Savings by clipping one module, relative to the whole model.

    Attributes:
        matrices: Its matrices.
        dense: Numbers of the module stored whole.
        stored: Numbers stored, with factors where they are fewer.
        dense_bytes: Bytes of the first.
        stored_bytes: Bytes of the second.
        dense_flops: Floating-point operations of its products for one token: none of a
            table that is looked up, and of experts the share that a token uses.
        stored_flops: The same with factors where they are fewer.
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

    Args:
        model: The model.
        layer: Number of the layer; ``None`` for embeddings and head.
        module: Matrix or module.
        strength: Clipping rate, or a :class:`~icltheory.pruning.Rank`.
        method: How a rate becomes a rank.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder
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
    dense, stored = (sum(getattr(s, n) for s in sizes) for n in ("dense", "stored"))
    shares = [_share_of_tokens(model, layer, module, spec) for spec in specs]
    # A product takes 2 operations for each number.
    flops = [
        int(sum(2 * p * getattr(s, n) for p, s in zip(shares, sizes, strict=True)))
        for n in ("dense", "stored")
    ]
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
        dense_flops=flops[0],
        stored_flops=flops[1],
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
