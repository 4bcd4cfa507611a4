"""Frozen dataclasses that are pytrees and check their fields at construction."""

import dataclasses
import functools
from typing import TypeVar, dataclass_transform

import jax

from icltheory._arguments import has_arrays, is_sequence, real_numbers, stacked
from icltheory._calculators import Noting, any_traced, poisoned
from icltheory._records import equal, show

T = TypeVar("T")


def static_field(**kwargs):
    """Declares a dataclass field that is part of the tree structure, not a leaf."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static_field,))
def pytree(cls: type[T]) -> type[T]:
    """Makes ``cls`` a frozen dataclass and a pytree.

    Rebuilding from leaves skips ``__init__`` and ``__post_init__``. Checks written
    there therefore run once, on what the user passed, and never on the batched or
    placeholder leaves that ``vmap``, ``scan`` or ``tree_map`` put into the tree. Where
    a field is traced and a check of its value fails, the numbers become NaN.

    ``repr`` is one short line, and ``==`` compares arrays by their entries.
    """
    own = set(vars(cls))
    if "__post_init__" in vars(cls):
        check = vars(cls)["__post_init__"]
        cls.__post_init__ = _reading(check)  # pyrefly: ignore[missing-attribute]
    cls = dataclasses.dataclass(frozen=True)(cls)
    # They are set after the dataclass has generated a hash, which jit needs of classes
    # with only static fields.
    for name, method in (("__repr__", show), ("__eq__", equal)):
        if name not in own:
            setattr(cls, name, method)
    fields = dataclasses.fields(cls)  # pyrefly: ignore[bad-argument-type]
    static = tuple(f.name for f in fields if f.metadata.get("static", False))
    data = tuple(f.name for f in fields if f.name not in static)

    def flatten_with_keys(node):
        children = [(jax.tree_util.GetAttrKey(n), getattr(node, n)) for n in data]
        return children, tuple(getattr(node, n) for n in static)

    def flatten(node):
        return [getattr(node, n) for n in data], tuple(getattr(node, n) for n in static)

    def unflatten(aux, children):
        node = object.__new__(cls)
        for name, value in zip(data + static, (*children, *aux), strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _reading(check):
    """Wraps a field check to convert fields first; traced failures become NaN."""

    @functools.wraps(check)
    def checked(node, *initial):
        annotations = {f.name: f.type for f in dataclasses.fields(node)}
        for name, value in list(vars(node).items()):
            if is_sequence(value) and has_arrays(annotations[name]):
                value = stacked(name, value)
            object.__setattr__(node, name, real_numbers(name, value))
        if not any_traced(list(vars(node).values())):
            check(node, *initial)
            return
        with Noting(list(vars(node).values())) as notes:
            check(node, *initial)
        for name, value in poisoned(dict(vars(node)), notes).items():
            object.__setattr__(node, name, value)

    return checked
