"""Leaves of parameter trees by their paths."""

import functools
import operator
from typing import Any


def leaf_at(tree: Any, path: tuple[str | int, ...]) -> Any:
    """Returns what lies on a path of keys."""
    return functools.reduce(operator.getitem, path, tree)


def set_leaf(tree: dict[Any, Any], path: tuple[str | int, ...], leaf: Any) -> None:
    """Sets a leaf of nested dictionaries, and makes those on the path."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = leaf
