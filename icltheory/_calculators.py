"""What every public calculator has in common: one decorator.

A calculator is a public function of arrays that returns a theorem's number. Marked with
:func:`calculator`,

* it multiplies matrices exactly on every device (:mod:`icltheory._precision`);
* called with concrete arguments, it is compiled once for each shape and runs as one
  program, instead of hundreds of small ones;
* an argument out of range is an error where its value is known, and gives NaN where it
  is traced: inside ``jit``, ``vmap`` or ``grad`` no error can be raised.

The checks of a calculator are written once, as calls of :mod:`icltheory._checks`. A
check of a traced value notes whether it holds; the calculator collects these notes.
"""

import dataclasses
import functools
import inspect
import threading
import typing
from collections.abc import Callable
from types import UnionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._precision import exact_products

P = ParamSpec("P")
R = TypeVar("R")


class _Scope(threading.local):
    """The calculator that is running in this thread.

    Attributes:
        traces: Identities of the traces to which its arguments belong, or ``None``
            outside of calculators.
        notes: Whether each check of a traced value holds.
    """

    traces: frozenset[int] | None = None
    notes: list[Any] | None = None


_SCOPE = _Scope()


def note_validity(check: Callable[[], Any]) -> bool:
    """Notes the outcome of a check of traced values; returns whether it was noted.

    Checks in the body of a loop or of a ``vmap`` within the calculator cannot be
    noted: their values do not exist outside of it.
    """
    if _SCOPE.traces is None or _SCOPE.notes is None:
        return False
    holds = check()
    noted = _traces(holds) <= _SCOPE.traces
    if noted:
        _SCOPE.notes.append(holds)
    return noted


@overload
def calculator(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def calculator(*, compiled: bool) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def calculator(function: Any = None, /, *, compiled: bool = True) -> Any:
    """Marks a public function as a calculator; see the module's documentation.

    Strings, booleans, ``None`` and arguments annotated as ``int`` or ``float``, not as
    arrays, are constants of the compiled program. A call with a function among its
    arguments is not compiled.

    Args:
        function: The function.
        compiled: Whether calls with concrete arguments are compiled. Not where the
            function decides by values, or costs less than the call of a program.
    """
    if function is None:
        return functools.partial(calculator, compiled=compiled)
    exact = exact_products(function)
    signature = inspect.signature(function)
    readers = {name: _ArgumentReader(p) for name, p in signature.parameters.items()}
    known = {name for name, reader in readers.items() if reader.constant}

    @functools.partial(jax.jit, static_argnums=1)
    def program(arrays, constants):
        arguments = _joined(arrays, constants)
        with Noting(arrays) as notes:
            result = exact(**arguments)
        return result, _all_hold(notes)

    @functools.wraps(function)
    def marked(*args, **kwargs):
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}") from None
        for name, value in arguments.items():
            arguments[name] = readers[name](value)
        if any_traced(arguments):
            with Noting(arguments) as notes:
                result = exact(**arguments)
            return poisoned(result, notes)
        if compiled and not _is_tracing():
            parts = _parts(arguments, known)
            if parts is not None:
                try:
                    result, valid = program(*parts)
                except (TypeError, ValueError):
                    exact(**arguments)  # its message shows values, not tracers
                    raise
                if valid:
                    return result
        return exact(**arguments)

    marked.calculator = True  # pyrefly: ignore[missing-attribute]
    return marked


class Noting:
    """Collects the notes of the checks inside; ``tree`` holds the arguments."""

    def __init__(self, tree: Any):
        # An operation on constants belongs to the program that is being traced.
        self.traces = _traces(*jax.tree.leaves(tree), jax.lax.full((), True))

    def __enter__(self) -> list[Any]:
        self.outer = _SCOPE.traces, _SCOPE.notes
        _SCOPE.traces, _SCOPE.notes = self.traces, []
        return _SCOPE.notes

    def __exit__(self, *_: Any) -> None:
        _SCOPE.traces, _SCOPE.notes = self.outer


def poisoned(result: Any, notes: list[Any]) -> Any:
    """The result, or NaN in its place where a noted check fails.

    Within another calculator the notes become its own, as it may raise an error.
    """
    valid = _all_hold(notes)
    if valid is True or note_validity(lambda: valid):
        return result
    factor = jnp.where(valid, 1.0, jnp.nan)

    def times_factor(leaf):
        if not isinstance(leaf, (jax.Array, np.ndarray, float)):
            return leaf
        dtype = jnp.result_type(leaf)
        return leaf * factor.astype(dtype) if _is_inexact(dtype) else leaf

    return jax.tree.map(times_factor, result)


def _is_inexact(dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.inexact)


def _all_hold(notes):
    holds = [jnp.all(note) for note in notes if note is not True]
    return functools.reduce(jnp.logical_and, holds) if holds else True


def _traces(*leaves) -> frozenset[int]:
    """Identities of the traces of tracers, and of those that surround them."""
    found = set()
    for leaf in leaves:
        trace = getattr(leaf, "_trace", None) if _is_tracer(leaf) else None
        while trace is not None:
            found.add(id(trace))
            trace = getattr(trace, "parent_trace", None)
    return frozenset(found)


def _is_tracer(leaf) -> bool:
    return isinstance(leaf, jax.core.Tracer)


def any_traced(tree: Any) -> bool:
    """Whether a leaf of the tree is being traced."""
    return any(map(_is_tracer, jax.tree.leaves(tree)))


def _is_tracing() -> bool:
    """Whether operations on concrete arrays are recorded instead of run."""
    return _is_tracer(jax.lax.full((), True))


class _Constants(NamedTuple):
    """What a compiled program knows of its arguments.

    Attributes:
        tree: Their structure.
        leaves: ``None`` for each array, and the constants in tuples of one.
    """

    tree: Any
    leaves: tuple[tuple[Any] | None, ...]


def _parts(arguments, known):
    """Arrays and constants of a call, or ``None`` where it cannot be compiled."""
    numbers = {n: v for n, v in arguments.items() if n in known}
    rest = {n: v for n, v in arguments.items() if n not in known}
    leaves, tree = jax.tree.flatten((numbers, rest))
    constant = len(jax.tree.leaves(numbers))
    arrays, kept = [], []
    for position, leaf in enumerate(leaves):
        number = position < constant and isinstance(leaf, (*_INTEGERS, float))
        if isinstance(leaf, (str, bool)) or number:
            kept.append((leaf,))
        elif not _is_array(leaf):
            return None
        elif np.shape(leaf) == () and _is_zero(leaf):
            kept.append((_Zero(leaf),))
        else:
            kept.append(None)
            arrays.append(leaf)
    return arrays, _Constants(tree, tuple(kept))


def _joined(arrays, constants: _Constants):
    """The arguments of a call from its parts."""
    rest = iter(arrays)
    leaves = [next(rest) if one is None else one[0] for one in constants.leaves]
    leaves = [leaf.value if isinstance(leaf, _Zero) else leaf for leaf in leaves]
    numbers, rest = jax.tree.unflatten(constants.tree, leaves)
    return {**numbers, **rest}


_INTEGERS = int, np.integer


class _Zero:
    """The number 0 as a constant: a function may take an exact route where it is.

    Attributes:
        value: 0 in the type in which it came.
    """

    def __init__(self, value):
        self.value = value
        self.key = type(value), getattr(value, "dtype", None)

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return isinstance(other, _Zero) and self.key == other.key


def _is_zero(leaf) -> bool:
    if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jnp.number):
        return False
    return not np.asarray(leaf)


def _is_array(leaf) -> bool:
    if isinstance(leaf, (int, float, jax.Array)):
        return True
    return isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind not in "OUS"


def real_numbers(name: str, value: Any) -> Any:
    """The value, as an array where it is a list of numbers.

    Raises:
        ValueError: If it holds complex numbers.
    """
    if isinstance(value, list) and _is_numeric(value):
        value = np.asarray(value)
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, complex) or _is_kind(leaf, np.complexfloating):
            raise ValueError(f"{name}: expected real numbers, got complex")
    return value


class _ArgumentReader:
    """Reads an argument by its annotation.

    Lists of numbers become arrays, and integers floats where floats are meant.
    """

    def __init__(self, parameter: inspect.Parameter):
        self.name = parameter.name
        parts = list(_types_in(parameter.annotation))
        arrays = [part for part in parts if hasattr(part, "array_type")]
        self.key = any("prng_key" in part.dtypes for part in arrays)
        self.array = bool(arrays) and not self.key
        self.text = str in parts
        self.floats = self.array and all(map(_only_floats, arrays))
        self.scalar = self.array and all(part.dim_str == "" for part in arrays)
        self.constant = (int in parts or float in parts) and not arrays
        union = typing.get_origin(parameter.annotation) in (typing.Union, UnionType)
        options = typing.get_args(parameter.annotation) if union else ()
        options = options or (parameter.annotation,)
        self.classes = options if all(map(_is_plain, options)) else ()

    def __call__(self, value: Any) -> Any:
        """The argument.

        Raises:
            ValueError: If it is complex, text where numbers are meant, or an array
                where one number is meant, or not a key where a key is.
        """
        value = real_numbers(self.name, value)
        if self.classes and not any(_fits(value, kind) for kind in self.classes):
            expected = " or ".join(map(_word, self.classes))
            raise ValueError(f"{self.name}: expected {expected}, got {_shown(value)}")
        if self.key and value is not None:
            check_key(self.name, value)
        return self._array(value) if self.array else value

    def _array(self, value):
        text = isinstance(value, str) and not self.text
        kind = getattr(value, "dtype", np.dtype(float))
        if text or (isinstance(kind, np.dtype) and kind.kind in "OUS"):
            raise ValueError(f"{self.name}: expected numbers, got {_shown(value)}")
        if self.scalar and getattr(value, "shape", ()) != ():
            raise ValueError(f"{self.name}: expected shape (), got {np.shape(value)}")
        if self.floats and (_is_kind(value, np.integer) or _is_kind(value, np.bool_)):
            return jnp.asarray(value, jnp.result_type(float))
        return value


def _word(kind) -> str:
    kind = typing.get_origin(kind) or kind
    return _WORDS.get(kind, kind.__name__)


_WORDS = {int: "an integer", float: "a number", type(None): "None"}
_WORDS[Callable] = "a function"


def _is_plain(option) -> bool:
    """Whether an annotation is a class whose instances can be told from others."""
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
        return isinstance(value, _INTEGERS) and not isinstance(value, bool)
    return isinstance(value, typing.get_origin(kind) or kind)


def check_key(name: str, value: Any) -> None:
    """Raises unless ``value`` is one typed random key."""
    if not _is_kind(value, jax.dtypes.prng_key) or value.shape != ():
        expected = "one key from jax.random.key"
        raise ValueError(f"{name}: expected {expected}, got {_shown(value)}")


def _shown(value) -> str:
    """A value in one short line."""
    if hasattr(value, "dtype") and np.shape(value) != ():
        return f"an array of {value.dtype}, shape {np.shape(value)}"
    if _is_tracer(value):
        return "a traced value"
    text = repr(value)
    short = len(text) < 60 and "\n" not in text
    return text if short else f"a {type(value).__name__}"


def _only_floats(kind) -> bool:
    return "float32" in kind.dtypes and "int32" not in kind.dtypes


def _is_kind(leaf, kind) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, kind)


def _is_numeric(value) -> bool:
    if isinstance(value, list):
        return all(map(_is_numeric, value))
    return isinstance(value, (int, float, complex, np.generic, np.ndarray))


def _types_in(annotation):
    yield annotation
    for part in typing.get_args(annotation):
        yield from _types_in(part)
