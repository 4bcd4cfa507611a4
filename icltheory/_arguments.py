"""Converts arguments by their annotations: lists become arrays, and mistakes errors.

Every error is one line that names the argument, what was expected and what came.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

INTEGERS = int, np.integer
_NUMBERS = int, float, complex, np.generic, np.ndarray, jax.Array


def is_tracer(leaf: Any) -> bool:
    """Whether a value is being traced."""
    return isinstance(leaf, jax.core.Tracer)


def real_numbers(name: str, value: Any) -> Any:
    """Returns the value, converted to an array if it is a list of numbers.

    Arrays in another byte order are converted to that of the machine.
    """
    if isinstance(value, list) and _is_numeric(value):
        value = stacked(name, value)
    foreign = False
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, complex) or _is_kind(leaf, np.complexfloating):
            raise ValueError(f"{name}: expected real numbers, got complex")
        if isinstance(leaf, np.ma.MaskedArray):
            raise ValueError(f"{name}: expected an array without a mask, got a mask")
        if isinstance(leaf, (np.ndarray, np.longdouble)):
            if not _is_numbers(leaf):
                wide = _is_kind(leaf, np.longdouble)
                expected = "numbers of at most 64 bits" if wide else "numbers"
                raise ValueError(f"{name}: expected {expected}, got {shown(leaf)}")
            foreign |= not leaf.dtype.isnative
    return jax.tree.map(_native, value) if foreign else value


def _native(leaf):
    is_numpy = isinstance(leaf, np.ndarray)
    return leaf.astype(leaf.dtype.newbyteorder("=")) if is_numpy else leaf


def stacked(name: str, value: Any) -> Any:
    """Converts nested lists or tuples of numbers and arrays to one array."""
    if not _is_numeric(value):
        raise ValueError(f"{name}: expected numbers, got {shown(value)}")
    on_device = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))
    try:
        return jnp.asarray(value) if on_device else np.asarray(value)
    except (TypeError, ValueError):
        expected = "numbers in rows of one length"
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}") from None


def is_sequence(value: Any) -> bool:
    """Whether a value is a list or a tuple, but no named tuple."""
    return isinstance(value, (list, tuple)) and not hasattr(value, "_fields")


def has_arrays(annotation: Any) -> bool:
    """Whether an annotation allows an array of numbers."""
    return any(is_array_type(part) for part in _types_in(annotation))


class ArgumentReader:
    """Converts and checks an argument by its annotation.

    Lists and tuples of numbers become arrays, and integers floats where floats are
    meant.
    """

    def __init__(self, parameter: inspect.Parameter):
        self.name = parameter.name
        parts = list(_types_in(parameter.annotation))
        arrays = [part for part in parts if is_array_type(part)]
        union = typing.get_origin(parameter.annotation) in (typing.Union, UnionType)
        options = typing.get_args(parameter.annotation) if union else ()
        options = options or (parameter.annotation,)
        self.optional = type(None) in options
        self.key = any("prng_key" in part.dtypes for part in arrays)
        self.array = bool(arrays) and not self.key
        self.text = str in parts
        self.only_array = self.array and all(map(_is_numeric_type, options))
        self.floats = self.array and all(map(_only_floats, arrays))
        self.scalar = self.array and all(part.dim_str == "" for part in arrays)
        entries = self.only_array and not self.scalar
        self.kind = _whole_kind(arrays) if entries else None
        self.constant = (int in parts or float in parts) and not arrays
        self.classes = options if all(map(_is_plain, options)) else ()

    def __call__(self, value: Any) -> Any:
        """Returns the converted argument."""
        if self.array and is_sequence(value):
            value = stacked(self.name, value)
        value = real_numbers(self.name, value)
        if self.array or self.constant:
            value = self._in_range(value)
        if self.classes and not any(_fits(value, kind) for kind in self.classes):
            expected = " or ".join(map(word_of, self.classes))
            raise ValueError(f"{self.name}: expected {expected}, got {shown(value)}")
        if self.key and not (value is None and self.optional):
            check_key(self.name, value)
        return self._array(value) if self.array else value

    def _in_range(self, value):
        """Converts an integer beyond JAX's range to a float; raises for counts."""
        if isinstance(value, (jax.Array, float)):
            return value
        wide = jax.config.jax_enable_x64  # pyrefly: ignore[missing-attribute]
        largest = 2**63 - 1 if wide else 2**31 - 1
        if _is_kind(value, np.integer):
            small = value.dtype.itemsize < 8 or np.all(abs(value) <= largest)
            return value if small else value.astype(np.float64)
        if not isinstance(value, int) or abs(value) <= largest:
            return value
        if self.constant or value.bit_length() > 1000:
            got = f"an integer of {value.bit_length()} bits"
            raise ValueError(f"{self.name}: expected at most {largest}, got {got}")
        return float(value)

    def _array(self, value):
        if value is None and self.optional:
            return value
        if hasattr(value, "__array__") and not isinstance(value, _NUMBERS):
            value = real_numbers(self.name, np.asarray(value))
        text = isinstance(value, str) and not self.text
        other = self.only_array and not isinstance(value, (str, *_NUMBERS))
        if text or other or (hasattr(value, "dtype") and not _is_numbers(value)):
            raise ValueError(f"{self.name}: expected numbers, got {shown(value)}")
        if self.kind is not None and not isinstance(value, str):
            _check_kind(self.name, value, *self.kind)
        if self.scalar and getattr(value, "shape", ()) != ():
            raise ValueError(f"{self.name}: expected shape (), got {np.shape(value)}")
        if self.floats and (_is_kind(value, np.integer) or _is_kind(value, np.bool_)):
            return jnp.asarray(value, jnp.result_type(float))
        return value


def _check_kind(name, value, word, kind):
    if not jnp.issubdtype(jnp.result_type(value), kind):
        raise ValueError(f"{name}: expected {word}, got {shown(value)}")


def _whole_kind(arrays):
    """Returns name and dtype of the numbers that an annotation is restricted to."""
    named = {name for part in arrays for name in part.dtypes}
    if named <= {"bool", "bool_"}:
        return "booleans", np.bool_
    if "int32" in named and not any(map(_takes_floats, named)):
        return "integers", np.integer
    return None


def _takes_floats(name) -> bool:
    return "float" in name or name in ("bool", "bool_")


def _is_numbers(value) -> bool:
    kind = getattr(value.dtype, "kind", "")
    if kind in tuple("biufcm"):  # skips the search of JAX's types, which is slower
        return kind != "m" and value.dtype.itemsize <= (16 if kind == "c" else 8)
    return _is_kind(value, np.number) or _is_kind(value, np.bool_)


def is_array_type(part: Any) -> bool:
    """Whether an annotation is a jaxtyping array type."""
    return hasattr(part, "array_type")


def _is_numeric_type(option) -> bool:
    """Whether an annotation means numbers, a name or ``None``."""
    if typing.get_origin(option) in (typing.Union, UnionType):
        return all(map(_is_numeric_type, typing.get_args(option)))
    plain = int, float, bool, complex, str, type(None)
    scalar = isinstance(option, type) and issubclass(option, np.generic)
    return is_array_type(option) or scalar or option in plain


def word_of(kind: Any) -> str:
    """Returns the word for an annotated class in error messages."""
    kind = typing.get_origin(kind) or kind
    return _WORDS.get(kind) or getattr(kind, "__name__", str(kind))


_WORDS = {int: "an integer", float: "a number", type(None): "None"}
_WORDS[Callable] = "a function"
_WORDS |= {Sequence: "a sequence", Iterable: "a sequence", Mapping: "a mapping"}


def _is_plain(option) -> bool:
    """Whether an annotation is a class that ``isinstance`` can check."""
    if typing.get_origin(option) in (tuple, dict, Callable):
        return True
    known = {bool, str, *_WORDS}
    return isinstance(option, type) and (
        dataclasses.is_dataclass(option) or option in known
    )


def _fits(value, kind) -> bool:
    if kind is float:
        number = isinstance(value, (int, float)) or _is_kind(value, np.number)
        return number and np.shape(value) == ()
    if kind is int:
        return isinstance(value, INTEGERS) and not isinstance(value, bool)
    return isinstance(value, typing.get_origin(kind) or kind)


def check_key(name: str, value: Any) -> None:
    """Raises unless ``value`` is one typed random key."""
    if not _is_kind(value, jax.dtypes.prng_key) or value.shape != ():
        expected = "one key from jax.random.key"
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}")


def shown(value: Any) -> str:
    """Formats a value as one short line for error messages."""
    if hasattr(value, "dtype") and np.shape(value) != ():
        return f"an array of {value.dtype}, shape {np.shape(value)}"
    if is_tracer(value):
        return "a traced value"
    text = repr(value)
    short = len(text) < 60 and "\n" not in text
    kind = type(value).__name__
    return text if short else f"a{'n' * (kind[0] in 'aeiouAEIOU')} {kind}"


def _only_floats(kind) -> bool:
    return "float32" in kind.dtypes and "int32" not in kind.dtypes


def _is_kind(leaf, kind) -> bool:
    # A type such as np.float32 also has an attribute ``dtype``.
    known = hasattr(leaf, "dtype") and not isinstance(leaf, type)
    return known and jnp.issubdtype(leaf.dtype, kind)


def holds_numbers(value: Any) -> bool:
    """Whether a value is a number, an array of numbers or a sequence of them."""
    if is_sequence(value):
        return all(map(holds_numbers, value))
    if hasattr(value, "dtype"):
        return _is_numbers(value) or _is_kind(value, jax.dtypes.prng_key)
    return isinstance(value, _NUMBERS)


def _is_numeric(value) -> bool:
    if is_sequence(value):
        return all(map(_is_numeric, value))
    return isinstance(value, _NUMBERS)


def _types_in(annotation):
    yield annotation
    for part in typing.get_args(annotation):
        yield from _types_in(part)
