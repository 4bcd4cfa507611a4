"""Loads published checkpoints of Garg et al. into this package's GPT-2.

A checkpoint is the state dict of linear maps ``_read_in`` and ``_read_out`` around
``_backbone``, a ``GPT2Model`` of Hugging Face. Sizes are those of the arrays.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_choice, check_positive_int, wrong
from icltheory._core import Record
from icltheory._typing import PyTree
from icltheory.models._files import refuse_pointer
from icltheory.models._safetensors import open_safetensors, unwrapped
from icltheory.models.gpt2 import GPT2

_BLOCK = re.compile(r"_backbone\.h\.(\d+)\.")
# Masks of old versions, and the token table, which models with vector inputs do not
# use.
_UNUSED = re.compile(r"_backbone\.(wte\.weight|h\.\d+\.attn\.(masked_)?bias)")
_THEIRS = {
    "read_in": "_read_in",
    "read_out_head": "_read_out",
    "positions": "_backbone.wpe.weight",
    "ln_f": "_backbone.ln_f",
    "attn_qkv": "attn.c_attn",
    "attn_out": "attn.c_proj",
    "mlp_in": "mlp.c_fc",
    "mlp_out": "mlp.c_proj",
    "kernel": "weight",
    "scale": "weight",
}
# torch.nn.Linear keeps its weight (out, in). Hugging Face's Conv1D keeps it (in, out),
# as Flax does.
_TURNED = ("_read_in.weight", "_read_out.weight")


class GargCheckpoint(Record):
    """A trained model of Garg et al. and its parameters.

    ``model.apply({"params": params}, X, y)`` predicts the label at every prefix.

    Source: Garg et al. 2022, Appendix A.
    """

    model: GPT2 = eqx.field(static=True)
    params: PyTree


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
    positions and dimension are those of the arrays, whose names are those of the
    published state dict. Weights become float32.

    Args:
        num_heads: Attention heads, which no array tells: 8, 4 and 2 for the published
            widths 256, 128 and 64.
        format: ``"safetensors"``, or ``"torch"`` for what ``torch.save`` wrote:
            ``model_500000.pt`` or ``state.pt``, which holds the optimiser as well. They
            are read by ``torch.load(weights_only=True)``, which runs no code.

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
    opened = _open_torch(file) if format == "torch" else _open_safetensors(file)
    tensors = {name: opened[own] for name, own in unwrapped(opened).items()}
    model = _model_of(file, tensors, num_heads)
    X = jnp.zeros((1, 1, model.dim))
    tree = jax.eval_shape(model.init, jax.random.key(0), X, X[..., 0])["params"]
    expected = _stored(tree)
    leaves = [_read(file, tensors, *one) for one in expected.items()]
    for name in tensors:
        if name not in expected and not _UNUSED.fullmatch(name):
            raise ValueError(
                f"{file}: expected the tensors of a GPT-2 between _read_in and "
                f"_read_out, got another tensor {name}"
            )
    params = jax.tree.unflatten(jax.tree.structure(tree), leaves)
    return GargCheckpoint(model=model, params=params)


def _open_safetensors(file: Path) -> Mapping[str, Any]:
    if file.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise ValueError(
            f"{file}: expected a safetensors file, got one that looks like PyTorch's: "
            'pass format="torch" to read it with torch.load(weights_only=True)'
        )
    return open_safetensors(file)


def _open_torch(file: Path) -> Mapping[str, Any]:
    """Reads the tensors of a ``torch.save`` file without running its code."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            f'{file}: format="torch" needs PyTorch: pip install torch, or convert the '
            "file to safetensors"
        ) from None
    refuse_pointer(file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{file}: expected a state dict, got {line}") from None
    if isinstance(state, dict):  # a training state holds the optimiser as well
        state = state.get("model_state_dict", state)
    if not isinstance(state, dict) or not all(map(torch.is_tensor, state.values())):
        raise ValueError(
            f"{file}: expected a state dict of tensors, got {type(state).__name__}"
        )
    return {name: value.float().numpy() for name, value in state.items()}


def _model_of(file: Path, tensors: Mapping[str, Any], num_heads: int | None) -> GPT2:
    """Returns the module whose sizes match the arrays."""
    width, dim = _matrix(file, tensors, "_read_in.weight")
    positions, _ = _matrix(file, tensors, "_backbone.wpe.weight")
    blocks = [int(m[1]) for name in tensors if (m := _BLOCK.match(name))]
    if not blocks:
        raise ValueError(
            f"{file}: expected tensors of blocks _backbone.h.0, ..., got none "
            f"of them among {len(tensors)} tensors"
        )
    if num_heads is None:
        raise ValueError(
            f"num_heads: expected a number for width {width}, since no array tells it "
            "(published: 8 for 256, 4 for 128, 2 for 64), got None"
        )
    check_positive_int("num_heads", num_heads)
    if width % num_heads:
        raise wrong("num_heads", f"a divisor of width {width}", num_heads)
    return GPT2(dim, positions, width, max(blocks) + 1, num_heads)


def _matrix(file: Path, tensors: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Returns the shape of a two-dimensional tensor; raises if it is missing."""
    if name not in tensors:
        raise ValueError(f"{file}: expected a tensor {name}, found none")
    shape = tensors[name].shape
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{file}: expected {name} to be a matrix, got {shape}")
    return shape


def _stored(params: PyTree) -> dict[str, tuple[int, ...]]:
    """Returns name and shape of the tensor that each parameter is stored as."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(params):
        keys = [entry.key.replace("block_", "_backbone.h.") for entry in path]
        name = ".".join(_THEIRS.get(key, key) for key in keys)
        found[name] = leaf.shape[::-1] if name in _TURNED else leaf.shape
    return found


def _read(file: Path, tensors: Mapping[str, Any], name: str, shape: tuple) -> jax.Array:
    """Returns a parameter from the tensor of that name and shape."""
    if name not in tensors:
        raise ValueError(f"{file}: expected a tensor {name}, found none")
    if tensors[name].shape != shape:
        got = tensors[name].shape
        raise ValueError(f"{file}: expected {name} of shape {shape}, got {got}")
    value = np.asarray(tensors[name])
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"{file}: expected floating point in {name}, got {value.dtype}"
        )
    return jnp.asarray(np.array(value.T if name in _TURNED else value, np.float32))
