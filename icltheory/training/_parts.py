"""Joins arrays into one buffer and splits it again, with joined gradients."""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["entries", "join", "parts"]

_WIDEST = 11, 52  # bits of float64's exponent and mantissa


def join(arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Array:
    """Joins arrays with leading ensemble axes into one buffer."""
    flat = [
        x.reshape(*x.shape[: x.ndim - len(shape)], math.prod(shape))
        for x, shape in zip(arrays, shapes, strict=True)
    ]
    return jnp.concatenate(flat, axis=-1)


def parts(buffer: Array, shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
    """Splits a buffer, the inverse of :func:`join`."""

    def cut(buffer):
        out, start = [], 0
        for shape in shapes:
            end = start + math.prod(shape)
            part = jax.lax.slice_in_dim(buffer, start, end, axis=-1)
            out.append(part.reshape(*buffer.shape[:-1], *shape))
            start = end
        return out

    return _apart(buffer, cut, lambda gradients: join(gradients, shapes))


def entries(stack: Array, axis: int) -> Sequence[Array]:
    """Returns the entries of a stack, the inverse of ``jnp.stack``."""

    def cut(stack):
        count = stack.shape[axis]
        return [jax.lax.index_in_dim(stack, i, axis, False) for i in range(count)]

    return _apart(stack, cut, lambda gradients: jnp.stack(gradients, axis))


def _apart(array: Array, cut: Callable, back: Callable) -> Sequence[Array]:
    """Splits an array so that all parts of one shape need one launch.

    XLA makes a launch of each bare slice that a kernel reads. Slices of what it has
    computed it fuses, and rounding to float64's bits, which changes nothing, counts.
    Gradients of the parts would be padded and summed; they are put together instead.
    """

    @jax.custom_vjp
    def pieces(array):
        return tuple(cut(jax.lax.reduce_precision(array, *_WIDEST)))

    pieces.defvjp(lambda array: (pieces(array), None), lambda _, g: (back(g),))
    return pieces(array)
