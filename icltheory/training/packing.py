"""Blocks of one shape as one stack: fewer and larger launches while a chunk runs.

A transformer of 12 layers has 148 parameters, and an optimiser that walks them makes
hundreds of launches of microseconds each. In the scan over a chunk's steps the blocks
are stacks with an axis of layers, which the optimiser updates in one launch a kind;
outside it parameters keep the model's own layout.
"""

import re
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

__all__ = ["Packed", "pack", "unpack"]

_NUMBERED = re.compile(r"(.*_)(\d+)")


@jax.tree_util.register_pytree_with_keys_class
class Packed:
    """A mapping some of whose entries are stacked.

    Attributes:
        stacks: For each prefix such as ``block_`` the tree that its entries share, each
            leaf with an axis of entries.
        rest: The other entries.
        names: For each prefix the names of the entries, in the order of the axis.
        axis: Where that axis is.
    """

    def __init__(
        self,
        stacks: dict[str, PyTree],
        rest: dict[str, PyTree],
        names: tuple[tuple[str, tuple[str, ...]], ...],
        axis: int,
    ):
        self.stacks, self.rest, self.names, self.axis = stacks, rest, names, axis

    def tree_flatten_with_keys(self):
        """Children with the keys ``block_*`` and those of the mapping."""
        prefixes = [prefix for prefix, _ in self.names]
        keys = [*(f"{prefix}*" for prefix in prefixes), *sorted(self.rest)]
        values = [self.stacks[prefix] for prefix in prefixes]
        values += [self.rest[key] for key in sorted(self.rest)]
        children = [
            (jax.tree_util.DictKey(key), value)
            for key, value in zip(keys, values, strict=True)
        ]
        return children, (self.names, tuple(sorted(self.rest)), self.axis)

    @classmethod
    def tree_unflatten(cls, aux, children):
        """Inverse of the flattening."""
        names, rest, axis = aux
        values = list(children)
        stacks = {prefix: values[i] for i, (prefix, _) in enumerate(names)}
        others = dict(zip(rest, values[len(names) :], strict=True))
        return cls(stacks, others, names, axis)


def pack(tree: PyTree, axis: int = 0) -> PyTree:
    """Stacks the entries of every mapping that are numbered and alike.

    Args:
        tree: Parameters, an optimiser's state, or both; ``block_0`` and ``block_1`` of
            one structure and one shape become a stack, all else stays.
        axis: Where the stacks get their axis: the number of leading ensemble axes.

    Returns:
        The tree with :class:`Packed` mappings; :func:`unpack` undoes it.

    Example:
        >>> import jax.numpy as jnp
        >>> tree = {"block_0": jnp.zeros(3), "block_1": jnp.ones(3), "out": jnp.ones(2)}
        >>> jax.tree.map(jnp.shape, pack(tree).stacks)
        {'block_': (2, 3)}
        >>> sorted(unpack(pack(tree)))
        ['block_0', 'block_1', 'out']

    References:
        Verified by ``tests/training/test_packing.py``.
    """

    def visit(node):
        if not isinstance(node, Mapping):
            return node
        names = _alike(node)
        stacks = {}
        for prefix, members in names:
            entries = [node[name] for name in members]
            stacks[prefix] = jax.tree.map(lambda *x: jnp.stack(x, axis), *entries)
        stacked = {name for _, members in names for name in members}
        rest = {key: pack(node[key], axis) for key in node if key not in stacked}
        return Packed(stacks, rest, names, axis) if names else rest

    return jax.tree.map(visit, tree, is_leaf=lambda node: isinstance(node, Mapping))


def unpack(tree: PyTree, axis: int | None = None) -> PyTree:
    """Takes the stacks of :func:`pack` apart; a tree without any stays as it is.

    Args:
        tree: A packed tree.
        axis: Where the axis of entries is; 0 under a ``vmap`` over the ensemble axes
            that stood before it, as :func:`pack` put it unless given.

    Returns:
        The tree in the model's layout.

    Example:
        >>> unpack({"a": 1})
        {'a': 1}

    References:
        Verified by ``tests/training/test_packing.py``.
    """

    def visit(node):
        if not isinstance(node, Packed):
            return node
        out = {key: unpack(value, axis) for key, value in node.rest.items()}
        for prefix, members in node.names:
            where = node.axis if axis is None else axis
            parts = _split(node.stacks[prefix], len(members), where)
            out.update(zip(members, parts, strict=True))
        return out

    return jax.tree.map(visit, tree, is_leaf=lambda node: isinstance(node, Packed))


def _alike(node: Mapping) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Prefixes with two or more numbered entries of one structure and shape."""
    found: dict[str, list[str]] = {}
    for name in node:
        if match := _NUMBERED.fullmatch(str(name)):
            found.setdefault(match[1], []).append(name)
    groups = []
    for prefix, names in sorted(found.items()):
        # As JAX orders keys, so that an optimiser that stacks leaves keeps its order.
        names = sorted(names)
        kinds = {_kind(node[name]) for name in names}
        if len(names) > 1 and len(kinds) == 1:
            groups.append((prefix, tuple(names)))
    return tuple(groups)


def _kind(tree: PyTree) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)


def _split(stack: PyTree, count: int, axis: int) -> Sequence[PyTree]:
    """Entries of a stack; their gradients are stacked, not padded and summed."""

    def entry(stack, i):
        return jax.tree.map(
            lambda x: jax.lax.index_in_dim(x, i, axis, keepdims=False), stack
        )

    @jax.custom_vjp
    def parts(stack):
        return tuple(entry(stack, i) for i in range(count))

    def backward(_, gradients):
        return (jax.tree.map(lambda *g: jnp.stack(g, axis), *gradients),)

    parts.defvjp(lambda stack: (parts(stack), None), backward)
    return parts(stack)
