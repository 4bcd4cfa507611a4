"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame import (
    WIDTH,
    key,
    layer_colours,
    layer_marker,
    matrix_look,
    name_ends,
    plain_words,
    rates_axis,
)
from experiments.frame import figure as page

__all__ = ["WIDTH", "key", "layer_colours", "layer_marker", "matrix_look", "name_ends"]
__all__ += ["page", "plain_words", "rates_axis"]
