"""Loads checkpoints: a folder in the Hugging Face layout, or a name on the hub."""

import difflib
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from numpy.typing import NDArray

from icltheory._checks import check_choice
from icltheory._typing import PyTree
from icltheory.bridge._gguf import GGUFFile, GGUFTokenizer, find_gguf
from icltheory.bridge._tensors import Tensors, read_json, tensors_of
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.factors import join_factors, take_factors
from icltheory.bridge.families import FAMILIES, Entry, entries_of, read_architecture
from icltheory.bridge.model import LanguageModel, trust_weights
from icltheory.bridge.sharding import Placement, to_device
from icltheory.bridge.tokenizer import Tokenizer
from icltheory.models._safetensors import unwrapped

DTYPES = ("float32", "bfloat16", "float16")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB = ["*.json", "model.safetensors", "model-*.safetensors"]
_HUB_FLAX = ["flax_model.msgpack", "flax_model-*.msgpack"]


def load_checkpoint(
    path_or_name: str | os.PathLike,
    dtype: str | None = None,
    *,
    revision: str | None = None,
    devices: Sequence[jax.Device] | NDArray[np.object_] | None = None,
) -> LanguageModel:
    """Loads a language model from a Hugging Face folder, the hub, or a GGUF file.

    Read are ``config.json`` and ``model.safetensors`` in one file or, with its index,
    in several; where there is neither, ``flax_model.msgpack``, in one file or several;
    and ``tokenizer.json``, if there is one. Families: GPT-J, GPT-2, OPT, LLaMA 1 to 3,
    Mistral, Ministral, Mixtral, Qwen 2 and 3, Qwen 3 MoE, Phi, Phi 3, GPT-NeoX, Gemma 1
    to 3 (text), OLMo 2, StableLM, StarCoder 2. Files of other formats, which would have
    to be unpickled, are refused. What a training program puts before all names
    (``module.``, ``_orig_mod.``, ``base_model.model.``, ``language_model.``) is
    ignored.

    A path that ends in ``.gguf``, or a folder with one such file and no other weights,
    is read by the package ``gguf``, config and tokenizer from its metadata:
    architectures llama, qwen2, qwen3 and gemma3. Quantised weights are dequantised;
    this does not restore what rounding lost.

    Weights are read one by one into the default device's memory, so that the process
    holds little more than the model. A tied head is kept once.

    Args:
        path_or_name: The folder, a name such as ``"EleutherAI/gpt-j-6b"``, or the path
            of a GGUF file.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``, for weights and products;
            norms, softmax and logits are in float32 in any case. Unless given, that of
            ``config.json`` or, where it names none, of the file; float32 for a file
            with several or others, such as quantised ones. A warning names weights
            that are cast so.
        revision: Branch, tag or commit on the hub.
        devices: Devices that share the weights, of this process or of all of
            ``jax.distributed``, as of :class:`~icltheory.bridge.sharding.Placement`;
            each reads its own part from the file. The default device unless given.

    Example:
        >>> import tempfile
        >>> load_checkpoint(tempfile.mkdtemp())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FileNotFoundError: .../config.json: expected a file, found none

    Source: Yao et al. (2024), section 2.
    """
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    kind = None if dtype is None else jnp.dtype(dtype)
    if (file := find_gguf(Path(path_or_name))) is not None:
        gguf, source = GGUFFile(file), str(path_or_name)
        config, arch, tensors = gguf.config, gguf.arch, Tensors(file, gguf.found)
        tokenizer = gguf.field("tokenizer.ggml.tokens") and GGUFTokenizer(gguf)
    else:
        folder, source = _locate(path_or_name, revision)
        config, arch, tensors = opened(folder)
        known = (folder / "tokenizer.json").is_file()
        tokenizer = Tokenizer(folder, config) if known else None
    params = _read_params(arch, tensors, devices, kind, config)
    model = LanguageModel(Decoder(arch), params, tokenizer, config, source)
    trust_weights(model)  # each weight has been checked
    return model


def _locate(path_or_name: str | os.PathLike, revision: str | None) -> tuple[Path, str]:
    """Returns the folder of a checkpoint and its name; on the hub with its commit."""
    path, name = Path(path_or_name), str(path_or_name)
    if path.is_dir():
        return path, str(path)
    if path.exists() or not _HUB_NAME.fullmatch(name) or name.startswith("."):
        raise FileNotFoundError(
            f"{name}: expected the folder of a checkpoint or a name on the hub"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ImportError(
            f"{name}: no such folder, and names on the hub need "
            "`pip install icltheory[llm]`"
        ) from None
    try:
        for patterns in (_HUB, _HUB_FLAX):
            how = {"revision": revision, "allow_patterns": patterns}
            folder = Path(snapshot_download(name, **how))
            if list(folder.glob("model*.safetensors")):
                break
    except Exception as error:  # any error of the hub means that it is not available
        said = (str(error).splitlines() or [type(error).__name__])[0]
        said = said.removeprefix("Got: ")
        raise FileNotFoundError(
            f"{name}: expected a folder or a name on the hub, got {said}"
        ) from error
    return folder, f"{name}@{folder.name}"


def opened(folder: Path) -> tuple[dict[str, Any], Architecture, Tensors]:
    """Returns the config, architecture and tensors of a dense checkpoint or factors."""
    path = folder / "config.json"
    config, ranks = take_factors(read_json(path), path)
    arch, tensors = read_architecture(config, path), tensors_of(folder)
    return config, arch, join_factors(tensors, arch, ranks) if ranks else tensors


def own_dtype(config: Mapping[str, Any], stored: Iterable[np.dtype]) -> np.dtype:
    """Returns the dtype of a checkpoint, given its config and those of its tensors."""
    said = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    known = {said} if said in DTYPES else {kind.name for kind in stored}
    one = len(known) == 1 and known <= {*DTYPES}
    return jnp.dtype(known.pop() if one else "float32")


def _read_params(
    arch: Architecture, tensors: Tensors, devices, dtype, config
) -> PyTree:
    """Reads the parameter tree leaf by leaf."""
    found = matched(arch, tensors)
    for name, other in ((name, o) for _, (name, *others) in found for o in others):
        if not np.array_equal(tensors.found[name].read(), tensors.found[other].read()):
            raise ValueError(
                f"{tensors.where}: expected {other} to equal {name}, since "
                "tie_word_embeddings is true, got different values"
            )
    stored = (tensors.found[names[0]].dtype for _, names in found)
    kind, kinds = dtype or own_dtype(config, stored), set()
    placement, leaves = None if devices is None else Placement(devices), {}

    def put(path, leaf):
        if placement is not None:
            return placement.put(path, leaf, kind)
        return to_device(leaf, kind)

    for entry, (name, *others) in found:
        tensor = tensors.found[name]
        array = tensor.read()
        kinds.add(array.dtype.name)
        parts = zip(entry.paths, entry.split(array), strict=True)
        try:
            leaves |= {path: put(path, leaf) for path, leaf in parts}
        except ValueError as error:
            raise ValueError(f"{tensor.file}: {name}: {error}") from None
        for each in (name, *others):
            tensors.found[each].release()
    if dtype is None and kinds != {kind.name}:
        cast = ", ".join(sorted(kinds - {kind.name}))
        warnings.warn(
            f"{tensors.where}: weights in {cast} are read in {kind.name}; pass dtype= "
            "for another",
            UserWarning,
            stacklevel=4,
        )
    tree = {"head": {}, **traverse_util.unflatten_dict(leaves)}
    layers = tuple(tree["layers"][layer] for layer in range(arch.num_layers))
    return {**tree, "layers": layers}


def matched(
    arch: Architecture, tensors: Tensors
) -> list[tuple[Entry, tuple[str, ...]]]:
    """Matches every entry with its stored names, without reading a tensor.

    Only a tied matrix may have several names. A tensor that is missing, unknown or of
    another shape raises.
    """
    family = FAMILIES[arch.family]
    stored = unwrapped(tensors.found)
    left = set(stored)
    bare = not any(name.startswith(family.prefix) for name in stored)
    prefix = "" if bare else family.prefix
    entries = {entry.name: entry for entry in entries_of(arch, prefix)}
    embed = f"{prefix}{family.embed}.weight"
    heads = [f"{head}.weight" for head in (family.head, *family.other_heads)]
    found, missing = [], []
    for name, entry in entries.items():
        names = [name]
        if name == embed and arch.tied:
            names += heads
        elif name == heads[0]:
            names = heads
        present = [n for n in names if n in left]
        left.difference_update(present)
        if present:
            found.append((entry, tuple(stored[n] for n in present)))
        else:
            missing.append(name)
    skipped = re.compile("|".join(family.skipped))
    extra = [stored[n] for n in left if not skipped.fullmatch(n.removeprefix(prefix))]
    if missing:
        # Those that are most like it come first.
        like = difflib.get_close_matches(missing[0], extra, len(extra) or 1, cutoff=0)
        got = f", got {_listed(like)}" if like else ""
        raise ValueError(f"{tensors.where}: expected tensor {_listed(missing)}{got}")
    if extra:
        got = _listed(sorted(extra))
        raise ValueError(f"{tensors.where}: did not expect tensor {got}")
    for entry, (name, *_) in found:
        tensor = tensors.found[name]
        if tensor.shape != entry.shape:
            said = f"expected shape {entry.shape}, got {tensor.shape}"
            raise ValueError(f"{tensor.file}: {name}: {said}")
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
