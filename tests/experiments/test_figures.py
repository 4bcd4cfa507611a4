"""Figures: what is drawn is what was measured."""

import numpy as np
import pytest

from experiments import garg_linear, ltb_gap
from icltheory.plotting import Curve

MEAN = np.array([1.0, 0.6, 0.1])


MANY = {f"line {i}": MEAN + i for i in range(9)}
CURVES = {label: Curve(mean) for label, mean in MANY.items()}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: garg_linear.draw_settings({"panel": CURVES}, "title"),
        lambda: ltb_gap.draw_hills(
            ltb_gap.Config(), dict.fromkeys(map(float, range(9)), MEAN)
        ),
    ],
)
def test_more_lines_than_colours_are_all_drawn(draw):
    figure = draw()
    drawn = [axes.get_legend_handles_labels()[1] for axes in figure.axes]
    assert max(len(set(labels)) for labels in drawn) >= 9
