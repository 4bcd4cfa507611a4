"""Placement of a model's weights on several devices."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from icltheory._typing import Array
from icltheory.bridge._arrays import cast, check_finite_leaf
from icltheory.bridge.model import LanguageModel

__all__ = ["Placement", "shard_model"]

_BATCH, _WEIGHTS = "batch", "weights"
# Matrices (out, in) that are split along their inputs; all others are split along their
# outputs, so that a block needs one sum after attention and one after its MLP.
_READERS = ("W_O", "W_out")


class Placement:
    r"""How weights and batches are distributed over devices.

    With n devices in a row, queries, keys, values and the input of the MLP are split
    by output, and the output of attention and of the MLP by input: device k holds

    .. math:: W_Q^{(k)}, W_K^{(k)}, W_V^{(k)}, W_{in}^{(k)}
        \in \mathbb{R}^{m / n \times d} , \qquad
        W_O^{(k)}, W_{out}^{(k)} \in \mathbb{R}^{d \times m / n} ,

    and the outputs of a block are sums over devices. Tables of tokens and the head are
    split by token. A matrix whose side n does not divide is split along the other one,
    or kept whole on every device; norms and the biases of sums are kept whole. Programs
    are compiled for one device and split by XLA.

    Args:
        devices: A sequence of devices, which share the weights; or an array
            ``(groups, n)``, whose groups hold the weights once each and share a batch.

    Source: Shoeybi et al. (2019), section 3.
    """

    def __init__(self, devices: Sequence[jax.Device] | NDArray[np.object_]):
        grid = np.array(devices, dtype=object)
        if grid.ndim not in (1, 2) or not grid.size:
            raise ValueError(
                "devices: expected a sequence, or an array of two axes, got shape "
                f"{grid.shape}"
            )
        grid = np.atleast_2d(grid)
        listed = list(grid.flat)
        if twice := [one for one in listed if listed.count(one) > 1]:
            raise ValueError(
                f"devices: expected distinct devices, got {twice[0]} twice"
            )
        auto = (AxisType.Auto, AxisType.Auto)
        self.mesh = Mesh(grid, (_BATCH, _WEIGHTS), axis_types=auto)

    @property
    def parts(self) -> int:
        """Number n of devices that share the weights."""
        return self.mesh.shape[_WEIGHTS]

    def of(self, path: Sequence[str | int], shape: Sequence[int]) -> NamedSharding:
        """Returns the sharding of the parameter leaf at a path of the tree."""
        spec: list[str | None] = [None] * len(shape)
        axis = split_axis(path, shape, self.parts)
        if axis is not None:
            spec[axis] = _WEIGHTS
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def put(self, path: Sequence[str | int], leaf: np.ndarray, dtype: Any) -> Array:
        """Casts a leaf onto its devices, each of which reads its own part of a file."""

        def part(index):
            check_finite_leaf(leaf[index])
            return cast(leaf[index], jnp.dtype(dtype))

        sharding = self.of(path, leaf.shape)
        return jax.make_array_from_callback(leaf.shape, sharding, part)


def split_axis(
    path: Sequence[str | int], shape: Sequence[int], parts: int
) -> int | None:
    """Axis along which a leaf is split into parts; None if it is replicated."""
    name = str(path[-2]) if path[-1] in ("weight", "bias") else str(path[-1])
    if len(shape) != 2 or not (path[0] in ("embed", "head") or "W_" in name):
        return None
    first = 1 if name in _READERS else 0
    return next((a for a in (first, 1 - first) if shape[a] % parts == 0), None)


def shard_model(
    model: LanguageModel, devices: Sequence[jax.Device] | NDArray[np.object_]
) -> LanguageModel:
    """Returns the model with its weights distributed over devices.

    Args:
        model: The model.
        devices: As of :class:`Placement`.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> spread = shard_model(model, jax.devices())
    """
    placement = Placement(devices)

    def put(path, leaf):
        keys: list[Any] = [getattr(key, "key", getattr(key, "idx", 0)) for key in path]
        return placement.put(keys, np.asarray(leaf), leaf.dtype)

    return model.replace(params=jax.tree_util.tree_map_with_path(put, model.params))
