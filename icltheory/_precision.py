"""Matrix products at full precision on every device, and the smallest dtype of theory.

Left to itself, JAX multiplies float32 matrices on a GPU in TF32, with 10 bits of an
operand's mantissa, and on a TPU in bfloat16, with 7. A theorem's number then carries an
error of 1e-4 to 1e-2 where float32 leaves 1e-7, twins stop agreeing, and a rank or an
inequality can come out the other way. Whatever computes such a number is therefore
marked with :func:`exact_products`, once, at its public name; what it calls needs no
mark. A caller's functions that run inside are multiplied exactly, too. Models whose
speed matters more than their last digits are left to the caller's choice.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._typing import Array

P = ParamSpec("P")
R = TypeVar("R")


def exact_products(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a function whose matrix products use the highest precision.

    Its dtypes are promoted also where the caller's own must not be (``"strict"``). Both
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


def finite_or_nan(W: Array) -> Array:
    """Replaces each matrix of a stack that has a non-finite entry by NaN.

    Every singular value decomposition gets its result, since LAPACK returns NaN for a
    matrix with NaN but may never return for one with an infinite entry.
    """
    finite = jnp.all(jnp.isfinite(W), axis=(-2, -1), keepdims=True)
    return W * jnp.where(finite, 1, jnp.nan).astype(W.dtype)


def widened(value: ArrayLike) -> Array:
    """Returns the value as an array, with half precision widened to float32.

    LAPACK and cuSOLVER know no half precision, and a chain of products leaves two
    digits of it or none. The numbers are read as they are; results stay in float32.
    Whole numbers become floats, as what is cast to their dtype, such as a scale of
    1 / N, would become 0.
    """
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array.astype(jnp.result_type(float))
    half = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 4
    return array.astype(jnp.float32) if half else array
