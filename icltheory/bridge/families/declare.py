"""Declarations of families, and how their checkpoints store matrices."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture

__all__ = ["Entry", "Family", "Stored"]


@dataclasses.dataclass(frozen=True)
class Stored:
    """A module of a checkpoint, and the parameters that it holds.

    Attributes:
        name: Its name within the layer, such as ``"attn.c_attn"``; with ``{expert}`` in
            it and in the parts, one module for each expert.
        parts: Where its matrices belong in the layer, such as ``"attn.W_Q"``; several
            stand one under another in (out, in) form.
        transposed: Whether matrices are stored (in, out).
        by_head: Whether the parts alternate head by head.
    """

    name: str
    parts: tuple[str, ...]
    transposed: bool = False
    by_head: bool = False


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of decoders.

    Attributes:
        name: ``model_type`` in the config.
        architecture: Reads the config.
        prefix: What stands before every name but the head's; absent in checkpoints of
            the bare decoder.
        embed: Name of the token table.
        final_norm: Name of the last norm.
        head: Name of the head.
        layer: Name of a layer, with ``{}`` for its number.
        modules: The modules of a layer.
        positions: Name of the position table, if there is one.
        other_heads: Names that other versions gave the head.
        skipped: Patterns of names, behind the prefix, that hold no weights: tables
            that old versions saved and that are computed here.
    """

    name: str
    architecture: Callable[[Config], Architecture]
    prefix: str
    embed: str
    final_norm: str
    head: str
    layer: str
    modules: tuple[Stored, ...]
    positions: str | None = None
    other_heads: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


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
        """Splits a stored tensor into its leaves, (out, in), as views.

        Args:
            tensor: The stored tensor, a NumPy array.

        Returns:
            One array for each path.
        """
        tensor = tensor.T if self.transposed else tensor
        if self.by_head:
            rest = tensor.shape[1:]
            heads = tensor.reshape(self.by_head, len(self.paths), -1, *rest)
            return [
                heads[:, part].reshape(shape) for part, shape in enumerate(self.shapes)
            ]
        ends = [
            sum(s[0] for s in self.shapes[: i + 1]) for i in range(len(self.shapes))
        ]
        return [
            tensor[end - shape[0] : end]
            for end, shape in zip(ends, self.shapes, strict=True)
        ]

    def join(self, leaves: Sequence[Any], numpy: Any) -> Any:
        """Joins leaves to the stored tensor, the inverse of :meth:`split`.

        Args:
            leaves: One array for each path.
            numpy: ``numpy`` or ``jax.numpy``.

        Returns:
            The tensor as the checkpoint keeps it.
        """
        if self.by_head:
            rest = self.shapes[0][1:]
            parts = [leaf.reshape(self.by_head, -1, *rest) for leaf in leaves]
            tensor = numpy.stack(parts, axis=1).reshape(-1, *rest)
        else:
            tensor = leaves[0] if len(leaves) == 1 else numpy.concatenate(leaves)
        return tensor.T if self.transposed else tensor
