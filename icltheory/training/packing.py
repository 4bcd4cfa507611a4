"""Packs parameters into few large arrays, to reduce launches during a chunk.

A GPT-2 of 12 layers has 151 arrays of parameters, and an optimiser that walks them
makes hundreds of launches of microseconds each. In the scan over a chunk's steps the
matrices of the blocks are stacks with an axis of layers, and all else is one buffer, so
that an update takes one launch per kind of matrix and one for the rest; outside the
scan parameters keep the model's own layout.
"""

import collections
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

_NUMBERED = re.compile(r"([^.]*_)\d+(?=\.|$)")  # matches block_0 of block_0.w
_WIDEST = 11, 52  # bits of float64's exponent and mantissa


@jax.tree_util.register_pytree_with_keys_class
class Packed:
    """A mapping in few arrays.

    Attributes:
        arrays: Stacks by names such as ``block_*.attn_qkv.kernel``, buffers by names
            such as ``buffer.float32``, and what is neither by its own name.
        layout: Structure of the mapping, the name of each leaf's array, the shapes of
            the parts of each buffer, and where the axis of the stacks is.
    """

    def __init__(self, arrays: dict[str, PyTree], layout: tuple[Any, ...]):
        self.arrays, self.layout = arrays, layout

    def tree_flatten_with_keys(self):
        """Returns the children with their keys, for JAX's pytree registry."""
        names = tuple(sorted(self.arrays))
        children = [(jax.tree_util.DictKey(one), self.arrays[one]) for one in names]
        return children, (names, self.layout)

    @classmethod
    def tree_unflatten(cls, aux, children):
        """Inverse of the flattening."""
        names, layout = aux
        return cls(dict(zip(names, children, strict=True)), layout)


def hidden_matrix(path: Sequence[Any], ndim: int) -> bool:
    """Whether a parameter is a weight matrix of a block, as Muon treats it.

    It has two axes, without those of an ensemble or of a stack, and a key's name has
    ``block`` in it.

    Source: Jordan et al. 2024 (Muon).
    """
    names = [str(getattr(key, "key", key)) for key in path]
    return ndim == 2 and any("block" in name for name in names)


def pack(tree: PyTree, axis: int = 0, above: tuple[Any, ...] = ()) -> PyTree:
    """Packs every mapping with numbered entries that are alike into few arrays.

    Matrices of ``block_0`` and ``block_1``, if they have one shape, become stacks. All
    other numbers of the mapping become parts of one buffer, but for matrices of other
    blocks. An update rule means the same for both layouts if it treats numbers one by
    one, by the norm of all, or as matrices of blocks. ``axis``, where the stacks get
    theirs, is the number of leading ensemble axes; ``above`` are keys above the tree.

    Example:
        >>> import jax.numpy as jnp
        >>> block = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}
        >>> tree = {"block_0": block, "block_1": block, "out": jnp.ones((3, 1))}
        >>> [leaf.shape for leaf in jax.tree.leaves(pack(tree))]
        [(2, 2, 3), (9,)]
        >>> sorted(unpack(pack(tree)))
        ['block_0', 'block_1', 'out']
    """

    def visit(path, node):
        return _node(node, axis, (*above, *path)) if _is_mapping(node) else node

    return jax.tree_util.tree_map_with_path(visit, tree, is_leaf=_is_mapping)


def _node(node: Mapping, axis: int, above: tuple[Any, ...]) -> Any:
    # Optax masks what a rule does not see; it keeps its place in the layout.
    found, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=_is_masked)
    own = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]
    numbered = [_NUMBERED.match(name) for name in own]
    shared = [
        f"{match[1]}*{name[match.end() :]}" if match else ""
        for name, match in zip(own, numbered, strict=True)
    ]
    kinds = collections.defaultdict(list)
    for name, (_, leaf) in zip(shared, found, strict=True):
        if name:
            kind = _is_masked(leaf) or (jnp.shape(leaf), jnp.result_type(leaf))
            kinds[name].append(kind)
    alike = {name for name, all_ in kinds.items() if len(all_) > len(set(all_)) == 1}
    if not alike:
        key = jax.tree_util.DictKey
        return {name: pack(node[name], axis, (*above, key(name))) for name in node}

    def home(own, shared, path, leaf):
        real = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
        if shared in alike and not (real and leaf.ndim - axis < 2):
            return shared
        if not real or hidden_matrix((*above, *path), leaf.ndim - axis):
            return own
        return f"buffer.{leaf.dtype.name}"

    members = collections.defaultdict(list)
    homes = tuple(map(home, own, shared, *zip(*found, strict=True)))
    for name, (_, leaf) in zip(homes, found, strict=True):
        members[name].append(leaf)
    arrays, shapes = {}, {}
    for name, leaves in members.items():
        if name.startswith("buffer."):
            shapes[name] = tuple(leaf.shape[axis:] for leaf in leaves)
            arrays[name] = _join(leaves, shapes[name])
        elif len(leaves) > 1 and not _is_masked(leaves[0]):
            arrays[name] = jnp.stack(leaves, axis)
        else:
            arrays[name] = leaves[0]
    return Packed(arrays, (structure, homes, tuple(shapes.items()), axis))


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


def _mapping(node: Packed, axis: int | None) -> PyTree:
    structure, homes, shapes, own_axis = node.layout
    counts, shapes = collections.Counter(homes), dict(shapes)

    def parts(name, array):
        if _is_masked(array) or counts[name] == 1 and name not in shapes:
            return itertools.repeat(array)
        if name in shapes:
            return _cut(array, shapes[name])
        return _entries(array, own_axis if axis is None else axis)

    left = {name: iter(parts(name, array)) for name, array in node.arrays.items()}
    return jax.tree.unflatten(structure, [next(left[name]) for name in homes])


def _is_mapping(node: Any) -> bool:
    return isinstance(node, Mapping)


def _is_packed(node: Any) -> bool:
    return isinstance(node, Packed)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


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
        ends = list(itertools.accumulate(map(math.prod, shapes)))
        parts = jnp.split(buffer, ends[:-1], axis=-1)
        pairs = zip(parts, shapes, strict=True)
        return [part.reshape(*buffer.shape[:-1], *shape) for part, shape in pairs]

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
