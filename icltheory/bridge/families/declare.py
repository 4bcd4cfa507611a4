"""Declarations of families, and how their checkpoints store matrices."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families.config import Config

__all__ = ["Entry", "Family"]


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of decoders.

    Attributes:
        name: ``model_type`` in the config.
        fields: Reads the fields of the architecture that have numbers in the config.
        modules: The modules of a layer by their names in a checkpoint, such as
            ``"attn.c_attn"``, with the parameters that each holds, such as
            ``"attn.W_Q attn.W_K attn.W_V"``, stacked in (out, in) form. With
            ``{expert}`` in both, one module for each expert.
        embed: Name of the token table.
        final_norm: Name of the last norm.
        layer: Name of a layer, with ``{}`` for its number.
        prefix: What stands before every name but the head's; absent in checkpoints of
            the bare decoder.
        head: Name of the head.
        other_heads: Names that other versions gave the head.
        positions: Name of the position table, if there is one.
        skipped: Patterns of names, behind the prefix, that hold no weights: tables
            that old versions saved and that are computed here.
        transposed: Whether matrices of layers are stored (in, out).
        by_head: Whether matrices in one module alternate head by head.
        defaults: What an absent entry of the config means.
        fixed: Fields of the architecture that no config changes.
        flags: Fields of the architecture and the entry of the config that sets each.
        refused: Entries with the only value that is implemented.
    """

    name: str
    fields: Callable[[Config], dict[str, Any]]
    modules: Mapping[str, str]
    embed: str
    final_norm: str
    layer: str
    prefix: str
    head: str = "lm_head"
    other_heads: tuple[str, ...] = ()
    positions: str | None = None
    skipped: tuple[str, ...] = ()
    transposed: bool = False
    by_head: bool = False
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def architecture(self, values: Mapping[str, Any]) -> Architecture:
        """Returns the architecture that a config of this family describes."""
        config = Config(values, self.defaults)
        for name, only in self.refused.items():
            config.refuse(name, unless=only)
        flags: dict[str, Any] = {
            field: config.flag(name) for field, name in self.flags.items()
        }
        fields = self.fields(config)
        return Architecture(family=self.name, **self.fixed, **flags, **fields)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint.

    Attributes:
        name: Its full name.
        paths: Leaves of the parameter tree that it holds.
        shapes: Their shapes.
        transposed: Whether it is stored (in, out).
        by_head: Number of heads by which its parts alternate; 0 if they do not.
    """

    name: str
    paths: tuple[tuple[str | int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    transposed: bool = False
    by_head: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored tensor."""
        rows = sum(shape[0] for shape in self.shapes)
        shape = (rows, *self.shapes[0][1:])
        return shape[::-1] if self.transposed else shape

    def split(self, tensor: Any) -> list[Any]:
        """Splits a stored NumPy array into its leaves, (out, in), as views."""
        tensor = tensor.T if self.transposed else tensor
        if self.by_head:
            rest = tensor.shape[1:]
            heads = tensor.reshape(self.by_head, len(self.paths), -1, *rest)
            return [heads[:, i].reshape(shape) for i, shape in enumerate(self.shapes)]
        leaves, start = [], 0
        for shape in self.shapes:
            leaves.append(tensor[start : start + shape[0]])
            start += shape[0]
        return leaves

    def join(self, leaves: Sequence[Any], numpy: Any) -> Any:
        """Joins leaves to the stored tensor, by ``numpy`` or ``jax.numpy``."""
        if self.by_head:
            rest = self.shapes[0][1:]
            parts = [leaf.reshape(self.by_head, -1, *rest) for leaf in leaves]
            tensor = numpy.stack(parts, axis=1).reshape(-1, *rest)
        else:
            tensor = leaves[0] if len(leaves) == 1 else numpy.concatenate(leaves)
        return tensor.T if self.transposed else tensor
