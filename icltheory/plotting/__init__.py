"""Figures of the experiments; matplotlib is imported when one is drawn, jax never.

A function takes numbers that are already computed and returns a matplotlib figure.
"""

from icltheory.plotting.regression import (
    Curve,
    error_against_examples,
    errors_by_setting,
    errors_over_training,
)
from icltheory.plotting.style import COLOURS, STYLE

__all__ = [
    "COLOURS",
    "STYLE",
    "Curve",
    "error_against_examples",
    "errors_by_setting",
    "errors_over_training",
]
