"""Packs parameters into few large arrays, to reduce launches during a chunk.

A GPT-2 of 12 layers has 151 arrays of parameters, and an optimiser that walks them
makes hundreds of launches of microseconds each. In the scan over a chunk's steps the
matrices of the blocks are stacks with an axis of layers, and all else is one buffer, so
that an update takes one launch a kind of matrix and one for the rest; outside the scan
parameters keep the model's own layout.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from icltheory.training._parts import entries, join, parts

__all__ = ["Packed", "hidden_matrix", "pack", "unpack"]

_NUMBERED = re.compile(r"(.*_)(\d+)")


class _Piece(NamedTuple):
    """Placeholder for an array that is part of a buffer.

    Attributes:
        dtype: Name of the buffer.
        places: Which of its parts; several for the entries of a stack.
    """

    dtype: str
    places: tuple[int, ...]


# A placeholder has no leaves in a tree, so functions mapped over the tree see only the
# buffer.
jax.tree_util.register_pytree_node(
    _Piece, lambda piece: ((), tuple(piece)), lambda aux, _: _Piece(*aux)
)


@jax.tree_util.register_pytree_with_keys_class
class Packed:
    """A mapping with some of its entries stacked.

    Attributes:
        stacks: For each prefix such as ``block_`` the tree that its entries share, each
            matrix with an axis of entries.
        rest: The other entries.
        buffers: For each dtype the numbers of all that is no matrix of a block.
        names: For each prefix the names of the entries, in the order of the axis.
        shapes: For each dtype the shapes of the parts of its buffer.
        axis: Where that axis is.
    """

    def __init__(
        self,
        stacks: dict[str, PyTree],
        rest: dict[str, PyTree],
        buffers: dict[str, PyTree],
        names: tuple[tuple[str, tuple[str, ...]], ...],
        shapes: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...],
        axis: int,
    ):
        self.stacks, self.rest, self.buffers = stacks, rest, buffers
        self.names, self.shapes, self.axis = names, shapes, axis

    def tree_flatten_with_keys(self):
        """Returns the children with their keys, for JAX's pytree registry."""
        prefixes = [prefix for prefix, _ in self.names]
        keys = [*(f"{prefix}*" for prefix in prefixes), *sorted(self.rest)]
        values = [self.stacks[prefix] for prefix in prefixes]
        values += [self.rest[key] for key in sorted(self.rest)]
        children = [
            (jax.tree_util.DictKey(key), value)
            for key, value in zip(keys, values, strict=True)
        ]
        children.append((jax.tree_util.GetAttrKey("buffers"), self.buffers))
        return children, (self.names, tuple(sorted(self.rest)), self.shapes, self.axis)

    @classmethod
    def tree_unflatten(cls, aux, children):
        """Inverse of the flattening."""
        names, rest, shapes, axis = aux
        *values, buffers = children
        stacks = {prefix: values[i] for i, (prefix, _) in enumerate(names)}
        others = dict(zip(rest, values[len(names) :], strict=True))
        return cls(stacks, others, buffers, names, shapes, axis)


def hidden_matrix(path: Sequence[Any], ndim: int) -> bool:
    """Whether a parameter is a weight matrix of a block, as Muon treats it.

    Args:
        path: Keys that lead to it.
        ndim: Axes, without those of an ensemble or of a stack.

    Returns:
        Whether it has two, and a key's name has ``block`` in it.

    Source: Jordan et al. 2024 (Muon).
    """
    names = [str(getattr(key, "key", key)) for key in path]
    return ndim == 2 and any("block" in name for name in names)


def pack(tree: PyTree, axis: int = 0) -> PyTree:
    """Packs numbered entries of equal structure in every mapping into few arrays.

    Matrices of ``block_0`` and ``block_1``, if these have one structure and shape,
    become stacks. All other numbers of the mapping become parts of one buffer, but for
    matrices of other blocks. An update rule means the same for both layouts if it
    treats numbers one by one, by the norm of all, or as matrices of blocks.

    Args:
        tree: Parameters, an optimiser's state, or both.
        axis: Where the stacks get their axis: the number of leading ensemble axes.

    Returns:
        The tree with :class:`Packed` mappings; :func:`unpack` undoes it.

    Example:
        >>> import jax.numpy as jnp
        >>> block = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}
        >>> tree = {"block_0": block, "block_1": block, "out": jnp.ones((3, 1))}
        >>> [leaf.shape for leaf in jax.tree.leaves(pack(tree))]
        [(2, 2, 3), (9,)]
        >>> sorted(unpack(pack(tree)))
        ['block_0', 'block_1', 'out']
    """
    return _pack(tree, axis, ())


def _pack(tree: PyTree, axis: int, above: tuple[Any, ...]) -> PyTree:
    def visit(path, node):
        return _node(node, axis, (*above, *path)) if _is_mapping(node) else node

    return jax.tree_util.tree_map_with_path(visit, tree, is_leaf=_is_mapping)


def _node(node: Mapping, axis: int, above: tuple[Any, ...]) -> Any:
    names = _alike(node)
    stacked = {name for _, members in names for name in members}
    rest = {
        key: _pack(node[key], axis, (*above, jax.tree_util.DictKey(key)))
        for key in node
        if key not in stacked
    }
    if not names:
        return rest
    taken = _Taken(axis)

    def stack(*arrays):
        small = _is_real(arrays[0]) and jnp.ndim(arrays[0]) - axis < 2
        return taken.add(*arrays) if small else jnp.stack(arrays, axis)

    def single(path, leaf):
        if _is_packed(leaf) or not _is_real(leaf):
            return leaf
        hidden = hidden_matrix((*above, *path), leaf.ndim - axis)
        return leaf if hidden else taken.add(leaf)

    stacks = {
        prefix: jax.tree.map(stack, *(node[name] for name in members))
        for prefix, members in names
    }
    rest = jax.tree_util.tree_map_with_path(single, rest, is_leaf=_is_packed)
    return Packed(stacks, rest, taken.buffers(), names, taken.shapes(), axis)


class _Taken:
    """Collects arrays that become buffers, by dtype."""

    def __init__(self, axis: int):
        self.axis, self.arrays = axis, {}

    def add(self, *arrays: Array) -> _Piece:
        """Adds arrays of one dtype and returns their placeholders."""
        kind = arrays[0].dtype.name
        mine = self.arrays.setdefault(kind, [])
        mine.extend(arrays)
        return _Piece(kind, tuple(range(len(mine) - len(arrays), len(mine))))

    def shapes(self) -> tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]:
        """Shapes without the ensemble axes."""
        return tuple(
            (kind, tuple(x.shape[self.axis :] for x in mine))
            for kind, mine in self.arrays.items()
        )

    def buffers(self) -> dict[str, Array]:
        """Returns the joined arrays of each dtype."""
        return {kind: join(self.arrays[kind], each) for kind, each in self.shapes()}


def unpack(tree: PyTree, axis: int | None = None) -> PyTree:
    """Unpacks the result of :func:`pack`; other trees stay unchanged.

    Args:
        tree: A packed tree.
        axis: Where the axis of entries is; 0 under a ``vmap`` over the ensemble axes
            that stood before it, as :func:`pack` put it unless given.

    Returns:
        The tree in the model's layout.

    Example:
        >>> unpack({"a": 1})
        {'a': 1}
    """
    return jax.tree.map(
        lambda node: _mapping(node, axis) if _is_packed(node) else node,
        tree,
        is_leaf=_is_packed,
    )


def _mapping(node: Packed, axis: int | None) -> dict[str, PyTree]:
    cut = {kind: parts(node.buffers[kind], shapes) for kind, shapes in node.shapes}

    def single(leaf):
        return cut[leaf.dtype][leaf.places[0]] if _is_piece(leaf) else leaf

    def several(leaf):
        if _is_piece(leaf):
            return [cut[leaf.dtype][place] for place in leaf.places]
        return entries(leaf, node.axis if axis is None else axis)

    out = jax.tree.map(single, unpack(node.rest, axis), is_leaf=_is_piece)
    for prefix, members in node.names:
        leaves, structure = jax.tree.flatten(node.stacks[prefix], is_leaf=_is_piece)
        columns = [several(leaf) for leaf in leaves]
        for i, name in enumerate(members):
            out[name] = jax.tree.unflatten(structure, [column[i] for column in columns])
    return out


def _is_mapping(node: Any) -> bool:
    return isinstance(node, Mapping)


def _is_packed(node: Any) -> bool:
    return isinstance(node, Packed)


def _is_piece(node: Any) -> bool:
    return isinstance(node, _Piece)


def _is_real(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _alike(node: Mapping) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Prefixes with at least two numbered entries of equal structure and shape."""
    found: dict[str, list[str]] = {}
    for name in node:
        if match := _NUMBERED.fullmatch(str(name)):
            found.setdefault(match[1], []).append(name)
    groups = []
    for prefix, names in sorted(found.items()):
        # Names are sorted as JAX sorts keys, so that an optimiser that stacks leaves
        # keeps its order.
        names = sorted(names)
        kinds = {_kind(node[name]) for name in names}
        if len(names) > 1 and len(kinds) == 1:
            groups.append((prefix, tuple(names)))
    return tuple(groups)


def _kind(tree: PyTree) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)
