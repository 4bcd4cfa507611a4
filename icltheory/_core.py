"""What every package is made of: calculators, exact products, and records.

A calculator is a public function of arrays that returns a number of a theorem. Marked
with :func:`calculator` it checks its arguments, multiplies matrices exactly and is
compiled once for each shape. A :class:`Record` is a frozen pytree.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import (
    CheckLike,
    all_hold,
    check_key,
    is_tracer,
    one_line,
    real,
    wrong,
)
from icltheory._typing import Array

F = TypeVar("F", bound=Callable)
P = ParamSpec("P")
R = TypeVar("R")

# The note of an error of a user's function begins so; the error is passed on as it is.
OF_USER = "in your "
_SHOWN = 6  # entries of an array that a repr shows


@overload
def calculator(function: F, /) -> F: ...


@overload
def calculator(
    *,
    compiled: bool = True,
    static: tuple[str, ...] = (),
    integers: tuple[str, ...] = (),
    **checks: CheckLike,
) -> Callable[[F], F]: ...


def calculator(
    function: Any = None,
    /,
    *,
    compiled: bool = True,
    static: tuple[str, ...] = (),
    integers: tuple[str, ...] = (),
    **checks: CheckLike,
) -> Any:
    """Marks a public function as a calculator.

    Its arguments are numbers, arrays or trees of them, and become floating arrays; an
    argument named in ``static`` is passed on as it is, and is a constant of the
    compiled program. A wrong value raises where it is known. Where it is traced, as in
    ``jit``, ``vmap`` and ``grad``, the whole result is NaN.

    Args:
        function: The function.
        compiled: Whether a call is one compiled program. Not where the function decides
            by values.
        static: Names of counts, words, switches and functions. A call with a function
            is not compiled.
        integers: Names of arrays of integers, which are not converted to floats.
        checks: For each argument with further conditions, a check such as
            :data:`icltheory._checks.finite`.
    """
    if function is None:
        return functools.partial(
            calculator, compiled=compiled, static=static, integers=integers, **checks
        )
    exact, signature = exact_products(function), inspect.signature(function)
    optional = {p.name for p in signature.parameters.values() if p.default is None}

    @functools.partial(jax.jit, static_argnums=1)
    def program(arrays, constants):
        return exact(**arrays, **dict(constants))

    def read(name, value):
        if value is None and name in optional:
            return value
        if name in static:
            if isinstance(value, np.ndarray):
                value = value.tolist()
            value = tuple(value) if isinstance(value, list) else value
            if compiled and not _is_hashable(value):
                raise wrong(name, "a constant", value)
            return value
        if name == "key":
            return value
        own = f"fields of {type(value).__name__} that are not static"
        return real(own if name == "self" else name, value, name in integers)

    def holds(name, value, given):
        check = check_key if name == "key" else checks.get(name)
        return True if check is None or value is None else check(name, value, given)

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}") from None
        given = {name: read(name, value) for name, value in given.items()}
        flags = [holds(name, value, given) for name, value in given.items()]
        constants = {name: given[name] for name in static if name in given}
        arrays = {name: value for name, value in given.items() if name not in static}
        try:
            if compiled and not any(map(callable, constants.values())):
                result = program(arrays, tuple(constants.items()))
            else:
                result = exact(**arrays, **constants)
        except (TypeError, ValueError) as error:
            if any(n.startswith(OF_USER) for n in getattr(error, "__notes__", ())):
                raise
            raise _named(error, function.__name__, given) from None
        return where_valid(result, *flags)

    call.calculator = True  # pyrefly: ignore[missing-attribute]
    return call


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # an array or a traced value
        return False
    return True


def exact_products(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a function whose matrix products use the highest precision.

    Left to itself, JAX multiplies float32 matrices on a GPU in TF32, with 10 bits of an
    operand's mantissa, and on a TPU in bfloat16, with 7: a theorem's number then has an
    error of 1e-4 to 1e-2 where float32 leaves 1e-7. What computes such a number is
    marked once, at its public name; what it calls, a caller's function too, needs no
    mark. Models whose speed matters more are left to the caller's choice.

    Dtypes are promoted also where the caller's own must not be (``"strict"``). Both
    hold whatever the caller has set, under ``jit``, ``vmap`` and ``grad`` alike: a
    product keeps the precision with which it was traced. A derivative rule of
    ``jax.custom_jvp`` may be traced later and needs the mark itself.
    """

    @functools.wraps(function)
    def marked(*args: P.args, **kwargs: P.kwargs) -> R:
        promotion = jax.numpy_dtype_promotion("standard")
        with jax.default_matmul_precision("highest"), promotion:
            return function(*args, **kwargs)

    marked.exact_products = True  # pyrefly: ignore[missing-attribute]
    return marked


def widened(value: ArrayLike) -> Array:
    """Returns the value as an array, with half precision widened to float32.

    LAPACK and cuSOLVER know no half precision, and a chain of products leaves two
    digits of it or none. Results stay in float32. Whole numbers become floats, as what
    is cast to their dtype, such as a scale of 1 / N, would become 0.
    """
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array.astype(jnp.result_type(float))
    half = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 4
    return array.astype(jnp.float32) if half else array


def where_valid(result: Any, *flags: Any) -> Any:
    """Returns the result, with NaN in place of its floats where a flag is false."""
    valid = all_hold(*flags)
    if valid is True:
        return result
    factor = jnp.where(valid, 1.0, jnp.nan)  # a factor makes derivatives NaN, too

    def kept(leaf):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float):
            return leaf
        kind = jnp.result_type(leaf)
        inexact = jnp.issubdtype(kind, jnp.inexact)
        return jnp.asarray(leaf) * factor.astype(kind) if inexact else leaf

    return jax.tree.map(kept, result)


def _named(error: Exception, function: str, given: dict[str, Any]) -> Exception:
    """Returns an error of one line that names an argument."""
    text = str(error).partition("\n")[0]
    if ": expected " in text or ": got " in text:  # made by a check
        return type(error)(text)
    shown = (
        f"{n} {np.shape(v)}" if hasattr(v, "dtype") else f"{n} = {one_line(v)}"
        for n, v in given.items()
        if n != "self"
    )
    told = f"{function} with {', '.join(shown)}: "
    return ValueError(told + text[: max(80, 240 - len(told))])


class Record(eqx.Module):
    """A frozen pytree with a one-line ``repr`` and equality of entries.

    A field that is no array is declared by ``eqx.field(static=True)``; fields are
    checked in ``__post_init__`` or ``__check_init__``, once, on what the user passed.
    """

    def __repr__(self) -> str:
        fields = (f for f in dataclasses.fields(self) if f.repr)
        parts = (f"{f.name}={_shown(getattr(self, f.name))}" for f in fields)
        return f"{type(self).__name__}({', '.join(parts)})"

    def __eq__(self, other: Any) -> Any:
        """Whether two records of one class have equal fields; NaN equals NaN."""
        if type(self) is not type(other):
            return NotImplemented
        (ours, tree), (theirs, structure) = map(jax.tree.flatten, (self, other))
        return tree == structure and all(map(_same, ours, theirs))

    __hash__ = eqx.Module.__hash__
    # Methods are Python's own, so that ``jax.jit(record.method)`` works.
    __getattribute__ = object.__getattribute__

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields by name, arrays as NumPy arrays or numbers."""
        found = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Record):
                value = value.to_dict()
            elif eqx.is_array(value):
                value = np.asarray(value) if value.shape else value.item()
            found[field.name] = value
        return found


def _shown(value):
    if is_tracer(value) or not hasattr(value, "dtype"):
        return repr(value)
    key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if key or np.size(value) > _SHOWN:
        return f"{value.dtype}{list(np.shape(value))}"
    text = np.array2string(np.asarray(value), precision=4, separator=", ")
    return text.replace("\n", "")


def _same(x, y) -> bool:
    if x is y:
        return True
    x, y = np.asarray(x), np.asarray(y)
    nan = x.dtype.kind == "f" and y.dtype.kind == "f"
    return bool(np.array_equal(x, y, equal_nan=nan))
