"""The decorator of all public calculators: exact products, compilation, checks.

A calculator is a public function of arrays that returns a theorem's number. Marked with
:func:`calculator`,

* it multiplies matrices exactly on every device (:mod:`icltheory._precision`);
* called with concrete arguments, it is compiled once for each shape and runs as one
  program, instead of hundreds of small ones;
* an argument out of range is an error where its value is known, and gives NaN where it
  is traced: inside ``jit``, ``vmap`` or ``grad`` no error can be raised.

The checks of a calculator are written once, as calls of :mod:`icltheory._checks`. A
check of a traced value notes whether it holds; the calculator collects these notes. Of
an argument of a program that is about to be compiled the value is known, too: there a
check raises its error before the compilation (:func:`given_value`).
"""

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._arguments import INTEGERS, ArgumentReader, is_tracer
from icltheory._precision import exact_products

P = ParamSpec("P")
R = TypeVar("R")


class _Scope(threading.local):
    """State of the calculator that is running in this thread.

    Attributes:
        traces: Identities of the traces to which its arguments belong, or ``None``
            outside of calculators.
        notes: Whether each check of a traced value holds.
        arrays: Values of the arguments of the program that is called.
        given: Each argument of the program that is being traced, and its value.
    """

    traces: frozenset[int] | None = None
    notes: list[Any] | None = None
    arrays: list[Any] | None = None
    given: tuple[tuple[Any, Any], ...] = ()


_SCOPE = _Scope()


def note_validity(check: Callable[[], Any]) -> bool:
    """Records the check of traced values, and returns whether it was recorded.

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


def given_value(traced: Any) -> np.ndarray | None:
    """Returns the concrete value of an argument that is traced for its first call.

    For checks only: what the program computes must not depend on it.
    """
    found = (value for argument, value in _SCOPE.given if argument is traced)
    value = next(found, None)
    return None if value is None else np.asarray(value)


@overload
def calculator(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def calculator(*, compiled: bool) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def calculator(function: Any = None, /, *, compiled: bool = True) -> Any:
    """Marks a public function as a calculator (see the module's documentation).

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
    readers = {name: ArgumentReader(p) for name, p in signature.parameters.items()}
    known = {name for name, reader in readers.items() if reader.constant}

    @functools.partial(jax.jit, static_argnums=1)
    def program(arrays, constants):
        arguments = _joined(arrays, constants)
        with Noting(arrays) as notes:
            _SCOPE.given = tuple(zip(arrays, _SCOPE.arrays or (), strict=True))
            result = exact(**arguments)
        _SCOPE.given = ()  # a tracer kept beyond its program is a leak
        return result, _all_hold(notes)

    def run(arguments):
        if any_traced(arguments):
            with Noting(arguments) as notes:
                result = exact(**arguments)
            return poisoned(result, notes)
        if compiled and not _is_tracing():
            parts = _parts(arguments, known)
            if parts is not None:
                _SCOPE.arrays = parts[0]
                try:
                    result, valid = program(*parts)
                except (TypeError, ValueError) as error:
                    if _shows_tracers(error):
                        exact(**arguments)  # raises an error that shows values
                    error.__notes__ = []  # removes JAX's notes about hidden frames
                    raise
                finally:
                    _SCOPE.arrays, _SCOPE.given = None, ()
                if valid:
                    return result
        return exact(**arguments)

    @functools.wraps(function)
    def marked(*args, **kwargs):
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}") from None
        for name, value in arguments.items():
            arguments[name] = readers[name](value)
        try:
            return run(arguments)
        except (TypeError, ValueError) as error:
            if "shapes for broadcasting" not in str(error):
                raise
            raise ValueError(_shapes_named(arguments)) from None

    marked.calculator = True  # pyrefly: ignore[missing-attribute]
    return marked


class Noting:
    """Collects recorded checks in a ``with`` block; ``tree`` holds the arguments."""

    def __init__(self, tree: Any):
        # Operations on constants belong to the innermost program that is being traced.
        self.traces = _traces(*jax.tree.leaves(tree), jax.lax.full((), True))

    def __enter__(self) -> list[Any]:
        self.outer = _SCOPE.traces, _SCOPE.notes
        _SCOPE.traces, _SCOPE.notes = self.traces, []
        return _SCOPE.notes

    def __exit__(self, *_: Any) -> None:
        _SCOPE.traces, _SCOPE.notes = self.outer


def poisoned(result: Any, notes: list[Any]) -> Any:
    """Returns the result, with NaN in its place if a recorded check fails.

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
    """Returns the identities of the traces of tracers and of enclosing traces."""
    found = set()
    for leaf in leaves:
        trace = getattr(leaf, "_trace", None) if is_tracer(leaf) else None
        while trace is not None:
            found.add(id(trace))
            trace = getattr(trace, "parent_trace", None)
    return frozenset(found)


def _shapes_named(arguments: dict[str, Any]) -> str:
    """Describes the arguments whose shapes do not broadcast."""
    shapes = {
        name: np.shape(value)
        for name, value in arguments.items()
        if hasattr(value, "dtype") and np.shape(value)
    }
    got = ", ".join(map(str, shapes.values()))
    return f"{', '.join(shapes)}: expected shapes that broadcast, got {got}"


def _shows_tracers(error: Exception) -> bool:
    """Whether a tracing error is less informative than the error of concrete values."""
    own = type(error) in (TypeError, ValueError)
    return not own or "trace" in str(error).lower()


def any_traced(tree: Any) -> bool:
    """Whether a leaf of the tree is being traced."""
    return any(map(is_tracer, jax.tree.leaves(tree)))


def _is_tracing() -> bool:
    """Whether operations on concrete arrays are traced instead of run."""
    return is_tracer(jax.lax.full((), True))


class _Constants(NamedTuple):
    """The static part of a call: structure of the arguments, and constants.

    Attributes:
        tree: Their structure.
        leaves: ``None`` for each array, and the constants in tuples of one.
    """

    tree: Any
    leaves: tuple[tuple[Any] | None, ...]


def _parts(arguments, known):
    """Splits a call into arrays and constants; ``None`` if it cannot be compiled."""
    numbers = {n: v for n, v in arguments.items() if n in known}
    rest = {n: v for n, v in arguments.items() if n not in known}
    leaves, tree = jax.tree.flatten((numbers, rest))
    constant = len(jax.tree.leaves(numbers))
    arrays, kept = [], []
    for position, leaf in enumerate(leaves):
        number = position < constant and isinstance(leaf, (*INTEGERS, float))
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
    """Reassembles the arguments of a call from its parts."""
    rest = iter(arrays)
    leaves = [next(rest) if one is None else one[0] for one in constants.leaves]
    leaves = [leaf.value if isinstance(leaf, _Zero) else leaf for leaf in leaves]
    numbers, rest = jax.tree.unflatten(constants.tree, leaves)
    return {**numbers, **rest}


class _Zero:
    """The number 0 as a constant, which may select an exact code path.

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
