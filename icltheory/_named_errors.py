"""Error messages that name the wrong argument, for functions without ``calculator``.

Such a function takes models, paths, functions and records, and fails somewhere inside
on one of another kind. Marked with :func:`named_errors` it is called as it is; where it
fails, its arguments are compared with their annotations, and the first that does not
fit is named.
"""

import collections.abc
import functools
import inspect
import typing
from collections.abc import Callable
from types import UnionType
from typing import Literal, ParamSpec, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from icltheory._arguments import (
    INTEGERS,
    has_arrays,
    holds_numbers,
    is_array_type,
    is_sequence,
    real_numbers,
    shown,
    word_of,
)

P = ParamSpec("P")
R = TypeVar("R")

_FAILURES = AttributeError, IndexError, KeyError, TypeError, ValueError
_SEVERAL = collections.abc.Iterable, collections.abc.Sequence, list, tuple


def named_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a public function whose errors name the argument that does not fit.

    Complex numbers are refused before the call where an annotation means real ones.
    """
    signature = inspect.signature(function)
    annotations = {n: p.annotation for n, p in signature.parameters.items()}
    arrays = {name for name, kind in annotations.items() if _means_numbers(kind)}

    @functools.wraps(function)
    def marked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # names what is missing
        given = bound.arguments
        for name in arrays & given.keys():
            read = real_numbers(name, given[name])
            given[name] = given[name] if is_sequence(given[name]) else read
        try:
            with jax.numpy_dtype_promotion("standard"):
                return function(*bound.args, **bound.kwargs)
        except _FAILURES as error:
            if _is_clear(error, given):
                raise
            for name, value in given.items():
                if not _fits(value, annotations[name]):
                    refusal = _refusal(name, value, annotations[name])
                    raise ValueError(refusal) from error
            raise

    marked.named_errors = True  # pyrefly: ignore[missing-attribute]
    return marked


def _means_numbers(annotation) -> bool:
    return has_arrays(annotation) or np.ndarray in _options(annotation)


def _is_clear(error: Exception, names) -> bool:
    """Whether an error is one line that already names an argument."""
    text = str(error)
    known = isinstance(error, (TypeError, ValueError)) and "\n" not in text
    return known and any(text.startswith((f"{n}:", f"{n}.", f"{n},")) for n in names)


def _refusal(name, value, annotation) -> str:
    words = " or ".join(dict.fromkeys(map(_word, _options(annotation))))
    return f"{name}: expected {words}, got {shown(value)}"


def _options(annotation):
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return [o for part in typing.get_args(annotation) for o in _options(part)]
    return [annotation]


def _word(option) -> str:
    if is_array_type(option):
        return "numbers"
    if option is PyTree:
        return "a tree of arrays"
    if typing.get_origin(option) is Literal:
        return " or ".join(map(repr, typing.get_args(option)))
    return word_of(option)


def _fits(value, annotation) -> bool:
    """Whether a value matches an annotation; unknown annotations match any value."""
    return any(_is_of(value, option) for option in _options(annotation))


def _is_of(value, option) -> bool:
    if is_array_type(option):
        return holds_numbers(value)
    if option is PyTree:
        leaves = jax.tree.leaves(value)
        return bool(leaves) and all(map(holds_numbers, leaves))
    kind = typing.get_origin(option) or option
    if kind is Literal:
        return value in typing.get_args(option)
    if not isinstance(kind, type) or kind is inspect.Parameter.empty:
        return True
    if kind is float:
        real = holds_numbers(value) and not np.iscomplexobj(value)
        return real and np.shape(value) == ()
    if kind is int:
        return isinstance(value, INTEGERS)
    if kind in _SEVERAL:
        return not isinstance(value, str) and hasattr(value, "__iter__")
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that ``isinstance`` cannot check
        return True
