"""Layer norm, GELU and products, shared by plain versions and kernels."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

__all__ = [
    "chain",
    "gelu_and_slope",
    "layer_norm",
    "linear",
    "normalize",
    "product",
    "row_means",
    "statistics",
    "unit",
    "wide",
]

_EPSILON = 1e-5  # GPT-2's value
_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def wide(dtype: Any) -> Any:
    """Dtype of statistics and sums, at least float32."""
    return jnp.promote_types(dtype, jnp.float32)


def _as_row(vector: jax.Array, like: jax.Array) -> jax.Array:
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)


def row_means(parts: Sequence[jax.Array]) -> jax.Array:
    """Means of rows given in parts of their columns."""
    sums = [jnp.sum(part, axis=-1, keepdims=True) for part in parts]
    count = sum(part.shape[-1] for part in parts)
    return functools.reduce(jnp.add, sums[1:], sums[0]) / count


def statistics(parts: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Mean and inverse standard deviation of rows given in parts of their columns.

    The variance is E[x^2] - E[x]^2, as flax takes it.
    """
    parts = [part.astype(wide(part.dtype)) for part in parts]
    # Squares come first as in Flax, which determines the order of sums in the gradient.
    squares = [jnp.square(part) for part in parts]
    mean, square = row_means(parts), row_means(squares)
    variance = jnp.maximum(square - jnp.square(mean), 0.0)
    return mean, jax.lax.rsqrt(variance + _EPSILON)


def normalize(
    x: jax.Array, moments: tuple[jax.Array, jax.Array], scale: Any, bias: Any
) -> jax.Array:
    """Layer norm of rows, or of part of their columns, from the rows' statistics."""
    mean, rate = moments
    y = (x.astype(mean.dtype) - mean) * (rate * _as_row(scale, x))
    return (y + _as_row(bias, x)).astype(x.dtype)


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Layer norm over the last axis: statistics at least float32, output as ``x``."""
    return normalize(x, statistics([x]), scale, bias)


def unit(x: jax.Array, moments: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Normalises rows to mean 0 and standard deviation 1."""
    mean, rate = moments
    return (x.astype(mean.dtype) - mean) * rate


def gelu_and_slope(u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """GELU by the tanh formula, and its derivative.

    (1 + tanh z) / 2 is the sigmoid of 2 z: one exponential and one division, where a
    library's tanh takes two branches.
    """
    square = u * u
    gate = 1.0 / (1.0 + jnp.exp(-_SLOPE * u * (1.0 + _CUBIC * square)))
    inner = _SLOPE * (1.0 + 3.0 * _CUBIC * square)
    return u * gate, gate * (1.0 + u * (1.0 - gate) * inner)


def linear(x: jax.Array, W: jax.Array, b: jax.Array) -> jax.Array:
    """Computes ``x @ W + b`` in the dtype of x, as ``flax.linen.Dense`` does.

    In rows: the weights' gradient of more axes is three times slower on a CPU, where
    XLA changes the layout of the larger factor and leaves its fast product.
    """
    rows = x.reshape(-1, x.shape[-1])
    y = rows @ W.astype(x.dtype) + _as_row(b.astype(x.dtype), rows)
    return y.reshape(*x.shape[:-1], W.shape[1])


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Product with float32 sums at least, and with unrounded float32 factors."""
    half = jnp.finfo(a.dtype).bits == 16
    precision = jax.lax.Precision.DEFAULT if half else jax.lax.Precision.HIGHEST
    return jnp.dot(a, b, precision=precision, preferred_element_type=wide(a.dtype))


def chain(parts: Sequence[jax.Array], others: Sequence[jax.Array]) -> jax.Array:
    """Sum of products of parts, equal to one product over the concatenated axis."""
    terms = [product(part, other) for part, other in zip(parts, others, strict=True)]
    return functools.reduce(jnp.add, terms[1:], terms[0])
