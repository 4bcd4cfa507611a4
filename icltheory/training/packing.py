"""Packs parameters into few large arrays, to reduce launches during a chunk.

A GPT-2 of 12 layers has 151 arrays of parameters, and an optimiser that walks them
makes hundreds of launches of microseconds each. In the scan over a chunk's steps the
matrices of the blocks are stacks with an axis of layers, and all else is one buffer, so
that an update takes one launch per kind of matrix and one for the rest; outside the
scan parameters keep the model's own layout.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

__all__ = ["Packed", "hidden_matrix", "pack", "unpack"]

_NUMBERED = re.compile(r"(.*_)(\d+)")
_WIDEST = 11, 52  # bits of float64's exponent and mantissa


class _Piece(NamedTuple):
    """Placeholder for arrays that are parts ``places`` of the buffer of a dtype."""

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
        layout: For each prefix the names of its entries in the order of the axis, for
            each dtype the shapes of the parts of its buffer, and where that axis is.
    """

    def __init__(
        self,
        stacks: dict[str, PyTree],
        rest: dict[str, PyTree],
        buffers: dict[str, PyTree],
        layout: tuple[Any, ...],
    ):
        self.stacks, self.rest, self.buffers = stacks, rest, buffers
        self.layout = layout

    def tree_flatten_with_keys(self):
        """Returns the children with their keys, for JAX's pytree registry."""
        children = [(f"{prefix}*", tree) for prefix, tree in self.stacks.items()]
        children += [(name, self.rest[name]) for name in sorted(self.rest)]
        children.append(("buffers", self.buffers))
        keyed = [(jax.tree_util.DictKey(name), child) for name, child in children]
        return keyed, (tuple(self.stacks), tuple(sorted(self.rest)), self.layout)

    @classmethod
    def tree_unflatten(cls, aux, children):
        """Inverse of the flattening."""
        prefixes, names, layout = aux
        *values, buffers = children
        stacks = dict(zip(prefixes, values, strict=False))
        rest = dict(zip(names, values[len(prefixes) :], strict=True))
        return cls(stacks, rest, buffers, layout)


def hidden_matrix(path: Sequence[Any], ndim: int) -> bool:
    """Whether a parameter is a weight matrix of a block, as Muon treats it.

    It has two axes, without those of an ensemble or of a stack, and a key's name has
    ``block`` in it.

    Source: Jordan et al. 2024 (Muon).
    """
    names = [str(getattr(key, "key", key)) for key in path]
    return ndim == 2 and any("block" in name for name in names)


def pack(tree: PyTree, axis: int = 0) -> PyTree:
    """Packs numbered entries of equal structure in every mapping into few arrays.

    Matrices of ``block_0`` and ``block_1``, if these have one structure and shape,
    become stacks. All other numbers of the mapping become parts of one buffer, but for
    matrices of other blocks. An update rule means the same for both layouts if it
    treats numbers one by one, by the norm of all, or as matrices of blocks. ``axis``,
    where the stacks get theirs, is the number of leading ensemble axes.

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
    groups = _alike(node)
    stacked = {name for names in groups.values() for name in names}
    rest = {
        key: _pack(node[key], axis, (*above, jax.tree_util.DictKey(key)))
        for key in node
        if key not in stacked
    }
    if not groups:
        return rest
    taken: dict[str, list[Array]] = {}

    def piece(*arrays):
        kind = arrays[0].dtype.name
        mine = taken.setdefault(kind, [])
        mine.extend(arrays)
        return _Piece(kind, tuple(range(len(mine) - len(arrays), len(mine))))

    def stack(*arrays):
        small = _is_real(arrays[0]) and jnp.ndim(arrays[0]) - axis < 2
        return piece(*arrays) if small else jnp.stack(arrays, axis)

    def single(path, leaf):
        if _is_packed(leaf) or not _is_real(leaf):
            return leaf
        hidden = hidden_matrix((*above, *path), leaf.ndim - axis)
        return leaf if hidden else piece(leaf)

    stacks = {
        prefix: jax.tree.map(stack, *(node[name] for name in names))
        for prefix, names in groups.items()
    }
    rest = jax.tree_util.tree_map_with_path(single, rest, is_leaf=_is_packed)
    shapes = {kind: [x.shape[axis:] for x in mine] for kind, mine in taken.items()}
    buffers = {kind: _join(taken[kind], each) for kind, each in shapes.items()}
    parts = tuple((kind, tuple(each)) for kind, each in shapes.items())
    return Packed(stacks, rest, buffers, (tuple(groups.items()), parts, axis))


def _alike(node: Mapping) -> dict[str, tuple[str, ...]]:
    """Prefixes with at least two numbered entries of equal structure and shape."""
    found: dict[str, list[str]] = {}
    # Names are sorted as JAX sorts keys, so that an optimiser that stacks leaves keeps
    # its order.
    for name in sorted(map(str, node)):
        if match := _NUMBERED.fullmatch(name):
            found.setdefault(match[1], []).append(name)
    return {
        prefix: tuple(names)
        for prefix, names in sorted(found.items())
        if len(names) > 1 and len({_kind(node[name]) for name in names}) == 1
    }


def _kind(tree: PyTree) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)


def unpack(tree: PyTree, axis: int | None = None) -> PyTree:
    """Unpacks the result of :func:`pack`; other trees stay unchanged.

    ``axis`` says where the axis of entries is: 0 under a ``vmap`` over the ensemble
    axes that stood before it; as :func:`pack` put it unless given.

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
    groups, parts, own_axis = node.layout
    cut = {kind: _cut(node.buffers[kind], shapes) for kind, shapes in parts}

    def single(leaf):
        return cut[leaf.dtype][leaf.places[0]] if _is_piece(leaf) else leaf

    def several(leaf):
        if _is_piece(leaf):
            return [cut[leaf.dtype][place] for place in leaf.places]
        return _entries(leaf, own_axis if axis is None else axis)

    out = jax.tree.map(single, unpack(node.rest, axis), is_leaf=_is_piece)
    for prefix, names in groups:
        leaves, structure = jax.tree.flatten(node.stacks[prefix], is_leaf=_is_piece)
        columns = [several(leaf) for leaf in leaves]
        for i, name in enumerate(names):
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


def _join(arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Array:
    """Joins arrays with leading ensemble axes into one buffer."""
    flat = [
        x.reshape(*x.shape[: x.ndim - len(shape)], math.prod(shape))
        for x, shape in zip(arrays, shapes, strict=True)
    ]
    return jnp.concatenate(flat, axis=-1)


def _cut(buffer: Array, shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
    """Splits a buffer, the inverse of :func:`_join`."""

    def cut(buffer):
        out, start = [], 0
        for shape in shapes:
            end = start + math.prod(shape)
            part = jax.lax.slice_in_dim(buffer, start, end, axis=-1)
            out.append(part.reshape(*buffer.shape[:-1], *shape))
            start = end
        return out

    return _apart(buffer, cut, lambda gradients: _join(gradients, shapes))


def _entries(stack: Array, axis: int) -> Sequence[Array]:
    """Returns the entries of a stack, the inverse of ``jnp.stack``."""

    def cut(stack):
        count = stack.shape[axis]
        return [jax.lax.index_in_dim(stack, i, axis, False) for i in range(count)]

    return _apart(stack, cut, lambda gradients: jnp.stack(gradients, axis))


def _apart(array: Array, cut: Callable, back: Callable) -> Sequence[Array]:
    """Splits an array so that all parts of one shape need one launch.

    XLA makes a launch of each bare slice that a kernel reads. Slices of what it has
    computed it fuses, and rounding to float64's bits, which changes nothing, counts.
    Gradients of the parts would be padded and summed; they are put together instead.
    """

    @jax.custom_vjp
    def pieces(array):
        return tuple(cut(jax.lax.reduce_precision(array, *_WIDEST)))

    pieces.defvjp(lambda array: (pieces(array), None), lambda _, g: (back(g),))
    return pieces(array)
