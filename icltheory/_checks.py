"""Argument checks, whose messages say what was expected and what was received.

Shapes are known while tracing and are always checked. A wrong value raises where it is
known; where it is traced a check returns whether it holds, and the calculator that
makes the check returns NaN where it does not (:func:`icltheory._core.calculator`). In
the middle of a function, :func:`checked` puts NaN in the value's own place.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_tracer(value: Any) -> bool:
    """Whether a value is being traced."""
    return isinstance(value, jax.core.Tracer)


def one_line(value: Any) -> str:
    """Formats a value for an error message."""
    if is_tracer(value):
        return "a traced value"
    if hasattr(value, "dtype") and np.shape(value):
        return f"an array of {value.dtype}, shape {np.shape(value)}"
    text = repr(value)
    if "\n" not in text and isinstance(value, str | list | tuple | dict):
        return text if len(text) < 60 else f"{text[:56]} ..."
    short = len(text) < 60 and "\n" not in text
    return text if short else f"a value of type {type(value).__name__}"


def wrong(name: str, expected: str, value: Any) -> ValueError:
    """Returns the error that says what was expected and what was received."""
    return ValueError(f"{name}: expected {expected}, got {one_line(value)}")


class Check:
    """A condition on a value, elementwise; ``check(name, value)`` tests it.

    Attributes:
        holds: Whether an entry of a NumPy or JAX array is right.
        expected: Completes "expected ..." in the error; NAME stands for the argument.
        first: Checks that are made before; ``a & b`` is ``b`` after ``a``.
    """

    def __init__(self, holds: Callable[[Any], Any], expected: str, *first: "CheckLike"):
        self.holds, self.expected, self.first = holds, expected, first

    def __call__(
        self, name: str, value: Any, given: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns ``True``, or a traced flag for a traced value; raises for others."""
        flags = [check(name, value, given or {}) for check in self.first]
        known = value if is_tracer(value) else np.asarray(value)
        if known.dtype.kind in "OSU":
            raise wrong(name, "numbers", value)
        right = self.holds(known)
        if is_tracer(right):
            return all_hold(*flags, jnp.all(right))
        if not np.all(right):
            first = known[~np.broadcast_to(right, np.shape(known))].ravel().tolist()[0]
            raise wrong(name, self.expected.replace("NAME", name), first)
        return all_hold(*flags)

    def __and__(self, other: "Check") -> "Check":
        return Check(other.holds, other.expected, self, *other.first)


# A check may also be a function of the name, the value and the other arguments.
CheckLike = Callable[[str, Any, Mapping[str, Any]], Any]


def all_hold(*flags: Any) -> Any:
    """Joins what checks return: ``True``, or a traced flag if one of them is."""
    traced = [flag for flag in flags if flag is not True]
    return functools.reduce(jnp.logical_and, traced) if traced else True


def _is_scalar(name, value, given):
    check_shape(name, value, ())
    return True


def _module(entry):
    return jnp if is_tracer(entry) else np


finite = Check(lambda x: _module(x).isfinite(x), "finite entries")
positive = finite & Check(lambda x: x > 0, "a finite value > 0")
nonnegative = finite & Check(lambda x: x >= 0, "a value >= 0")
unit = Check(lambda x: (x >= 0) & (x <= 1), "a value in [0, 1]")
scalar = Check(lambda x: True, "", _is_scalar)
open_unit = scalar & Check(lambda x: (x > 0) & (x < 1), "a number between 0 and 1")


def within(low: Any, high: Any) -> Check:
    """Returns the check that entries lie in [low, high]."""
    return Check(lambda x: (x >= low) & (x <= high), f"{low} <= NAME <= {high}")


def count(least: int = 0, most: Any = None) -> Check:
    """Returns the check of one whole number between ``least`` and ``most``."""
    words = f"a whole number >= {least}"
    one = scalar & Check(lambda x: (x >= least) & (x == x // 1), words)
    return one if most is None else scalar & within(least, most) & one


def covariance(name: str, value: Any, given: Mapping[str, Any] | None = None) -> Any:
    """The check of a square, symmetric positive semi-definite matrix."""
    check_shape(name, value, ("d", "d"))
    if is_tracer(value):
        return _is_covariance(jax.lax.stop_gradient(value))
    finite(name, value)
    known = np.asarray(value, np.float64)
    tolerance = 1e-6 * float(np.abs(known).max(initial=0.0))
    gap = np.abs(known - known.T)
    if gap.max(initial=0.0) > tolerance:
        i, j = np.unravel_index(gap.argmax(), gap.shape)
        raise ValueError(
            f"{name}: expected a symmetric matrix, got {known[i, j]:.3g} at "
            f"({i}, {j}) and {known[j, i]:.3g} at ({j}, {i})"
        )
    smallest = float(np.linalg.eigvalsh(known).min(initial=0.0))
    if smallest < -tolerance:
        expected = "a positive semi-definite matrix"
        raise ValueError(
            f"{name}: expected {expected}, got smallest eigenvalue {smallest:.3g}"
        )
    return True


def checked(name: str, value: Any, check: CheckLike) -> Any:
    """Returns the value, with NaN in its place where it is traced and wrong.

    It raises where the value is known to be wrong.
    """
    flag = check(name, value, {})
    if flag is True:
        return value
    return jnp.where(flag, value, jnp.nan).astype(jnp.result_type(float, value))


def check_key(name: str, value: Any, given: Any = None) -> bool:
    """Raises unless ``value`` is one typed random key."""
    array = isinstance(value, jax.Array) and value.shape == ()
    if not array or not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise wrong(name, "one key from jax.random.key", value)
    return True


def real(name: str, value: Any, keep: bool = False) -> Any:
    """Converts numbers, nested lists of them, and trees of arrays; raises for others.

    Integers and booleans become floats, unless ``keep``. In a tree, such as a record,
    arrays are left as they are.
    """
    if isinstance(value, jax.Array):
        kind = value.dtype
    elif isinstance(value, float):
        return value
    elif isinstance(value, int):
        return value if keep else _as_float(name, value)
    elif isinstance(value, np.ndarray | np.generic):
        _refuse(name, value)
        kind = value.dtype
        value = value if kind.isnative else value.astype(kind.newbyteorder("="))
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        array = _stacked(name, value)
        return real(name, array, keep) if hasattr(array, "dtype") else array
    else:
        for leaf in jax.tree.leaves(value, is_leaf=lambda x: x is value is None):
            _refuse(name, leaf)
        return value
    if keep or kind.kind not in "biu" or not isinstance(kind, np.dtype):
        if kind.kind == "c":
            raise ValueError(f"{name}: expected real numbers, got complex")
        return value
    return value.astype(jnp.result_type(float))


def _as_float(name, value) -> float:
    try:
        return float(value)
    except OverflowError:
        got = f"an integer of {value.bit_length()} bits"
        raise ValueError(f"{name}: expected a number, got {got}") from None


def _stacked(name, value):
    """Nested lists of numbers as one array; a list of unlike arrays stays a tree."""
    leaves = jax.tree.leaves(value)
    for leaf in leaves:
        _refuse(name, leaf)
    try:
        on_device = any(isinstance(leaf, jax.Array) for leaf in leaves)
        return jnp.asarray(value) if on_device else np.asarray(value)
    except (TypeError, ValueError):
        if any(map(np.ndim, leaves)):
            return value
        raise wrong(name, "numbers in rows of one length", value) from None


def _refuse(name, leaf) -> None:
    """Raises unless a leaf is a real number, an array of them, or a key."""
    if isinstance(leaf, bool | int | float | jax.Array):
        return
    if isinstance(leaf, np.ma.MaskedArray):
        raise ValueError(f"{name}: expected an array without a mask, got a mask")
    if isinstance(leaf, complex) or np.iscomplexobj(leaf):
        raise ValueError(f"{name}: expected real numbers, got complex")
    expected, kind = "numbers", getattr(leaf, "dtype", np.dtype(object))
    if isinstance(leaf, np.ndarray | np.generic):
        half = kind.kind == "V" and kind.type is not np.void  # such as bfloat16
        if half or (kind.kind in "biuf" and kind.itemsize <= 8):
            return
        expected += " of at most 64 bits" if kind.kind == "f" else ""
    raise wrong(name, expected, leaf)


def check_shape(name: str, array: Any, expected: tuple[int | str, ...]) -> None:
    """Raises unless ``array`` has the expected shape; letters match any size."""
    shape = tuple(np.shape(array))
    sizes: dict[str, int] = {}
    ok = len(shape) == len(expected)
    for got, want in zip(shape, expected, strict=False):
        ok = ok and got == (
            sizes.setdefault(want, got) if isinstance(want, str) else want
        )
    if not ok:
        wanted = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
        raise ValueError(f"{name}: expected shape ({wanted}), got {shape}")


def concrete(value: Any) -> np.ndarray | None:
    """Returns ``value`` as a NumPy array, or ``None`` while it is being traced."""
    return None if is_tracer(value) else np.asarray(value)


def _is_covariance(matrix):
    """Whether a traced matrix is symmetric and, up to rounding, not indefinite."""
    wide = jnp.asarray(matrix, jnp.promote_types(matrix.dtype, jnp.float32))
    size, eps = jnp.max(jnp.abs(wide), initial=0), jnp.finfo(wide.dtype).eps
    symmetric = jnp.all(jnp.abs(wide - wide.T) <= 1e-6 * size)
    added = max(1e-6, 20 * len(wide) * float(eps)) * size
    # The Cholesky factor of an indefinite matrix is NaN.
    factor = jnp.linalg.cholesky(wide + added * jnp.eye(len(wide), dtype=wide.dtype))
    return symmetric & (jnp.all(jnp.isfinite(factor)) | (size == 0))


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Converts real numbers to a float64 NumPy array; raises for other values."""
    array = real(name, values, keep=True)
    if not isinstance(array, float | int | np.generic | np.ndarray | jax.Array):
        raise wrong(name, "numbers", values)
    return np.asarray(array).astype(np.float64)


def as_decimals(name: str, values: Any) -> np.ndarray:
    """Converts numbers to float64, single precision by the decimals that it prints.

    So 0.3 computed in float32 equals a threshold of 0.3.
    """
    known, array = as_numbers(name, values), np.asarray(values)
    return array.astype(str).astype(float) if array.dtype == np.float32 else known


def check_booleans(name: str, values: Any, ndim: int = 1) -> np.ndarray:
    """Returns a non-empty boolean array; raises for other values."""
    array = np.asarray(values)
    if array.dtype != bool or array.ndim != ndim or not array.size:
        raise ValueError(
            f"{name}: expected booleans in {ndim} dimension(s), at least one, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raises unless ``value`` is one of ``choices``."""
    if value not in choices:
        wanted = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}: expected one of {wanted}, got {value!r}")


def check_integer(name: str, value: Any, least: int) -> None:
    """Raises unless ``value`` is an integer that is at least ``least``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        expected = "a positive integer" if least == 1 else f"an integer >= {least}"
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


check_positive_int = functools.partial(check_integer, least=1)
check_nonnegative_int = functools.partial(check_integer, least=0)


def check_sequence(name: str, values: Any) -> None:
    """Raises for a single number or a string in place of a sequence."""
    if (
        isinstance(values, str)
        or not hasattr(values, "__len__")
        or getattr(values, "shape", None) == ()
    ):
        raise ValueError(f"{name}: expected a sequence, got {values!r}")
