"""Loads published checkpoints of Garg et al. into this package's GPT-2.

A checkpoint is the state dict of linear maps ``_read_in`` and ``_read_out`` around
``_backbone``, a ``GPT2Model`` of Hugging Face. Sizes are those of the arrays.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_choice, check_positive_int
from icltheory._pytree import pytree, static_field
from icltheory._safetensors import SafetensorsFile, unwrapped
from icltheory._typing import PyTree
from icltheory.models._torch_file import read_state_dict
from icltheory.models.gpt2 import GPT2

__all__ = ["GargCheckpoint", "load_garg_checkpoint"]

_BLOCK = re.compile(r"_backbone\.h\.(\d+)\.(.+)")
# Masks of old versions, and the token table, which models with vector inputs do not
# use.
_UNUSED = re.compile(r"_backbone\.(wte\.weight|h\.\d+\.attn\.(masked_)?bias)")
_ATTENTION = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_out"}
_MLP = {"mlp.c_fc": "mlp_in", "mlp.c_proj": "mlp_out"}


@pytree
class GargCheckpoint:
    """A trained model of Garg et al.

    Attributes:
        model: The module.
        params: Its parameters; ``model.apply({"params": params}, X, y)`` predicts the
            label at every prefix.

    Source: Garg et al. 2022, Appendix A.
    """

    model: GPT2 = static_field()
    params: PyTree


class _Tensors(NamedTuple):
    """Shapes of a checkpoint's tensors, and a function that reads one."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


def load_garg_checkpoint(
    path: str | os.PathLike,
    *,
    num_heads: int | None = None,
    format: str = "safetensors",
) -> GargCheckpoint:
    r"""Loads a checkpoint of Garg et al. (dtsip/in-context-learning) into a GPT-2.

    .. math:: \hat y_k = w_{out}^\top\,\mathrm{GPT2}(W_{in} t_1 + b_{in}, \dots,
              W_{in} t_{2k+1} + b_{in})_{2k+1} + b_{out}

    for the tokens :math:`(x_1, (y_1, 0, \dots, 0), x_2, \dots)`. Width, layers,
    positions and dimension are those of the arrays; the table of word tokens and the
    masks that old versions stored are not used. Weights become float32.

    Files of PyTorch's own format are read only on request: with ``format="torch"`` and
    by ``torch.load(weights_only=True)``, which runs no code of the file. Both
    ``model_500000.pt`` and ``state.pt``, which holds the optimiser as well, are read.

    Args:
        path: The file, with the names of the published state dict.
        num_heads: Attention heads, which no array tells: 8, 4 and 2 for the published
            widths 256, 128 and 64.
        format: ``"safetensors"``, or ``"torch"`` for what ``torch.save`` wrote.

    Returns:
        The model and its parameters.

    Example:
        >>> load_garg_checkpoint("nowhere.safetensors")
        Traceback (most recent call last):
        FileNotFoundError: nowhere.safetensors: expected a file, found none

    Source: Garg et al. 2022, Section 3 and Appendix A.
    """
    check_choice("format", format, ("safetensors", "torch"))
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: expected a file, found none")
    tensors = _open_torch(file) if format == "torch" else _open_safetensors(file)
    model = _model_of(tensors, num_heads)
    expected = dict(_entries(model))
    _check_names(tensors, expected)
    params: dict[str, Any] = {}
    for name, (keys, shape) in expected.items():
        if tensors.shapes[name] != shape:
            raise ValueError(
                f"{file}: expected {name} of shape {shape}, got {tensors.shapes[name]}"
            )
        _put(params, keys, _array(tensors, name, keys))
    return GargCheckpoint(model=model, params=params)


def _open_safetensors(file: Path) -> _Tensors:
    if file.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise ValueError(
            f"{file}: expected a safetensors file, got one that looks like PyTorch's: "
            'pass format="torch" to read it with torch.load(weights_only=True)'
        )
    opened = SafetensorsFile(file)
    names = unwrapped(opened.tensors)
    shapes = {name: opened.tensors[own].shape for name, own in names.items()}
    return _Tensors(file, shapes, lambda name: opened.read(names[name]))


def _open_torch(file: Path) -> _Tensors:
    state = read_state_dict(file)
    state = {name: state[own] for name, own in unwrapped(state).items()}
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    return _Tensors(file, shapes, lambda name: state[name].float().numpy())


def _model_of(tensors: _Tensors, num_heads: int | None) -> GPT2:
    """Returns the module whose sizes match the arrays."""
    width, dim = _matrix(tensors, "_read_in.weight")
    positions, _ = _matrix(tensors, "_backbone.wpe.weight")
    found = {int(m[1]) for name in tensors.shapes if (m := _BLOCK.fullmatch(name))}
    layers = max(found, default=-1) + 1
    if not layers:
        raise ValueError(
            f"{tensors.path}: expected tensors of blocks _backbone.h.0, ..., got none "
            f"of them among {len(tensors.shapes)} tensors"
        )
    if num_heads is None:
        raise ValueError(
            f"num_heads: expected a number for width {width}, since no array tells it "
            "(published: 8 for 256, 4 for 128, 2 for 64), got None"
        )
    check_positive_int("num_heads", num_heads)
    if width % num_heads:
        raise ValueError(
            f"num_heads: expected a divisor of width {width}, got {num_heads}"
        )
    return GPT2(dim, positions, width, layers, num_heads)


def _matrix(tensors: _Tensors, name: str) -> tuple[int, int]:
    """Returns the shape of a two-dimensional tensor; raises if it is missing."""
    shape = tensors.shapes.get(name)
    if shape is None:
        raise ValueError(f"{tensors.path}: expected a tensor {name}, found none")
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{tensors.path}: expected {name} to be a matrix, got {shape}")
    return shape[0], shape[1]


def _entries(model: GPT2) -> Iterator[tuple[str, tuple[tuple[str, ...], tuple]]]:
    """Yields each tensor's name, its path in the parameters and its stored shape."""
    width = model.width
    yield "_read_in.weight", (("read_in", "kernel"), (width, model.dim))
    yield "_read_in.bias", (("read_in", "bias"), (width,))
    yield "_backbone.wpe.weight", (("positions",), (model.num_positions, width))
    outputs = {"attn_qkv": 3 * width, "mlp_in": 4 * width}
    for layer in range(model.num_layers):
        block, own = f"_backbone.h.{layer}", f"block_{layer}"
        for norm in ("ln_1", "ln_2"):
            yield from _norm(f"{block}.{norm}", (own, norm), width)
        for theirs, ours in (_ATTENTION | _MLP).items():
            rows = 4 * width if ours == "mlp_out" else width
            columns = outputs.get(ours, width)
            # Hugging Face's Conv1D keeps its weight (in, out), as Flax does.
            shape = (rows, columns)
            yield f"{block}.{theirs}.weight", ((own, ours, "kernel"), shape)
            yield f"{block}.{theirs}.bias", ((own, ours, "bias"), (columns,))
    yield from _norm("_backbone.ln_f", ("ln_f",), width)
    yield "_read_out.weight", (("read_out_head", "kernel"), (1, width))
    yield "_read_out.bias", (("read_out_head", "bias"), (1,))


def _norm(theirs: str, ours: tuple[str, ...], width: int) -> Iterator[Any]:
    yield f"{theirs}.weight", ((*ours, "scale"), (width,))
    yield f"{theirs}.bias", ((*ours, "bias"), (width,))


def _check_names(tensors: _Tensors, expected: Mapping[str, Any]) -> None:
    for name in expected:
        if name not in tensors.shapes:
            raise ValueError(f"{tensors.path}: expected a tensor {name}, found none")
    for name in tensors.shapes:
        if name not in expected and not _UNUSED.fullmatch(name):
            raise ValueError(
                f"{tensors.path}: expected the tensors of a GPT-2 between _read_in and "
                f"_read_out, got another tensor {name}"
            )


def _array(tensors: _Tensors, name: str, keys: tuple[str, ...]) -> jax.Array:
    value = tensors.read(name)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"{tensors.path}: expected floating point in {name}, got {value.dtype}"
        )
    # torch.nn.Linear keeps its weight (out, in).
    turned = value.T if name in ("_read_in.weight", "_read_out.weight") else value
    return jnp.asarray(np.array(turned, np.float32))


def _put(params: dict[str, Any], keys: tuple[str, ...], value: jax.Array) -> None:
    """Stores a leaf in nested dictionaries."""
    *parents, last = keys
    for key in parents:
        params = params.setdefault(key, {})
    params[last] = value
