"""Derivatives against central differences."""

import jax
import numpy as np


def slope_error(function, *at, step=1e-6, towards=None):
    """Relative error of the derivative of a function along a direction.

    Args:
        function: A function of numbers, arrays or trees of them that returns a number.
        at: Its arguments.
        step: What the differences move along the direction, to either side.
        towards: The direction, a tuple like ``at``; drawn if left out.
    """
    at = jax.tree.map(lambda x: np.asarray(x, float), at)
    rng = np.random.default_rng(3)
    drawn = jax.tree.map(lambda x: rng.normal(size=x.shape), at)
    towards = drawn if towards is None else towards
    value = jax.jit(function)

    def ahead(size):
        return value(*jax.tree.map(lambda x, d: x + size * d, at, towards))

    gradient = jax.jit(jax.grad(function, argnums=tuple(range(len(at)))))(*at)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(towards), strict=True)
    slope = sum(np.sum(np.asarray(g) * np.asarray(d)) for g, d in pairs)
    return float(slope / ((ahead(step) - ahead(-step)) / (2 * step)) - 1)
