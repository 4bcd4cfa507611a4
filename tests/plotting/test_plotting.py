"""General figures: what is drawn is what was given."""

import numpy as np
import pytest

from icltheory import plotting
from icltheory.plotting.panels import entries_of, legend_below
from icltheory.statistics import Estimate

MEAN = np.array([1.0, 0.6, 0.1])


def test_panels_share_one_legend_with_each_entry_once():
    curve = plotting.Curve(MEAN, MEAN - 0.1, MEAN + 0.1)
    exact = plotting.Curve(MEAN / 2, exact=True)
    panels = {"first": curve, "second": exact, "third": curve}
    with plotting.panel_grid(panels, 2, "title", (3.0, 2.0)) as (figure, shown, more):
        for axes, given in zip(shown, panels.values(), strict=True):
            plotting.draw_curve(axes, given, "model", "k", marker="o")
            axes.axhline(0.25, label="chance")
        more["own"] = shown[0].get_lines()[0]
    assert [axes.get_title() for axes in shown] == list(panels)
    assert sum(axes.get_visible() for axes in figure.axes) == 3
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "model",
        "chance",
        "own",
    ]
    assert list(entries_of(shown)) == ["model", "chance"]
    line, level = shown[0].get_lines()
    np.testing.assert_array_equal(line.get_xydata(), np.c_[[0, 1, 2], MEAN])
    assert set(level.get_ydata()) == {0.25}
    (band,) = shown[0].collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(1.1)
    assert shown[1].get_lines()[0].get_linestyle() == "--"
    assert not shown[1].collections
    legend_below(figure, {}, 2)
    assert len(figure.legends) == 1


def test_a_curve_of_an_estimate_has_its_interval_and_one_of_numbers_is_exact():
    estimate = Estimate.of(np.array([[1.0, 2.0], [3.0, 2.0], [2.0, 5.0]]))
    curve = plotting.Curve.of(estimate, 0.9)
    np.testing.assert_array_equal(curve.mean, [2.0, 3.0])
    # Student's quantile t_{2, 0.95} times the standard error
    half = 2.919985580353726 * np.array([1.0, np.sqrt(3.0)]) / np.sqrt(3)
    np.testing.assert_allclose([curve.low, curve.high], curve.mean + [-half, half])
    assert not curve.exact
    assert plotting.Curve.of(curve) is curve
    formula = plotting.Curve.of([1.0, 0.5])
    assert (formula.exact, formula.low, formula.mean.tolist()) == (True, None, [1, 0.5])
    axes = plotting.error_curves({"measured": estimate, "mean": [1.0, 0.5]})
    assert [line.get_linestyle() for line in axes.get_lines()[:2]] == ["-", "-"]
    assert len(axes.collections) == 1  # the band of the estimate
