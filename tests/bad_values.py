"""Calls of every calculator, from the examples of its documentation, and bad values."""

import doctest
import importlib
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np

from tests.test_public_api import public_modules


def public_functions(calculator):
    """Every public calculator, or every other public function, by its full name."""
    found = {}
    for module in map(importlib.import_module, public_modules()):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isfunction(value) and hasattr(value, "calculator") == calculator:
                found[f"{value.__module__}.{name}"] = value
    return found


def example(function):
    """The arguments of the first concrete call in the example of a calculator."""
    calls, signature = [], inspect.signature(function)

    def recorded(*args, **kwargs):
        calls.append(dict(signature.bind(*args, **kwargs).arguments))
        return function(*args, **kwargs)

    recorded.__doc__ = function.__doc__
    module = sys.modules[function.__module__]
    names = {**vars(module), function.__name__: recorded}
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(verbose=False)
    for test in finder.find(recorded, function.__name__, module=False, globs=names):
        runner.run(test, out=lambda text: None)
    return next(call for call in calls if not traced(call))


def traced(tree):
    """Whether a leaf is a tracer."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def numbers(result):
    """The arrays of a result, keys left out."""
    return [
        np.asarray(leaf)
        for leaf in jax.tree.leaves(result)
        if isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float))
        and not _is_key(leaf)
    ]


def equal(left, right):
    """Whether two results have the same numbers."""
    pairs = numbers(left), numbers(right)
    return len(pairs[0]) == len(pairs[1]) and all(
        a.shape == b.shape
        and np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=a.dtype.kind == "f")
        for a, b in zip(*pairs, strict=True)
    )


def floats(result):
    """The floating arrays of a result."""
    return [array for array in numbers(result) if array.dtype.kind == "f"]


def is_number(value):
    """Whether an argument is a number or an array of numbers."""
    kinds = int, float, np.generic, np.ndarray, jax.Array
    return (
        isinstance(value, kinds) and not isinstance(value, bool) and not _is_key(value)
    )


def is_key(value):
    """Whether an argument is a key."""
    return isinstance(value, jax.Array) and _is_key(value)


def _is_key(leaf):
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
