"""Panels of lines: their scales, their names and given axes."""

import numpy as np
import pytest

from icltheory import plotting
from icltheory.plotting import Line, LinePanel, line_panels
from icltheory.plotting.panels import entries_of, legend_below

X = np.array([0, 1, 10, 100])
MEAN = np.array([1.0, 0.6, 0.1])
PANEL = LinePanel({"line": Line(X, X)}, "x", "y")


def test_panels_keep_their_scales_and_their_lines():
    panels = {
        "one": LinePanel(
            {"line": Line(X, X + 1.0), "formula": Line(X, X + 1.0, exact=True)},
            "x",
            "y",
            xscale="symlog",
            yscale="log",
            levels={"level": 3.0},
        ),
        "two": LinePanel(
            {"line": Line(X, X, "#D55E00", error=X / 10), "_unnamed": Line(X, X)},
            "x",
            "y",
            marks={"m": 5},
        ),
    }
    first, second = line_panels(panels, "title").axes
    assert first.get_xscale() == "symlog"
    assert first.get_xlim()[0] == 0
    assert first.get_yscale() == "log"
    styles = [line.get_linestyle() for line in first.get_lines()]
    assert styles == ["-", "--", ":"]
    assert second.get_xscale() == "linear"
    assert second.get_lines()[0].get_color() == "#D55E00"
    names = {text.get_text(): text.get_position()[1] for text in first.texts}
    assert set(names) == {"line", "formula", "level"}
    assert names["level"] < names["line"]
    assert abs(names["line"] - names["formula"]) > 0.03  # one height, moved apart
    assert {text.get_text() for text in second.texts} == {"line"}
    (above,) = second.child_axes
    assert [text.get_text() for text in above.get_xticklabels()] == ["m"]
    with_gap = line_panels({**panels, "three": panels["two"]}, "title", columns=2)
    assert [axes.get_visible() for axes in with_gap.axes] == [True, True, True, False]


def test_panels_are_drawn_on_given_axes():
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(1, 2)
    assert line_panels({"a": PANEL, "b": PANEL}, axes=grid) is figure
    assert [axes.get_title() for axes in grid] == ["a", "b"]
    assert line_panels({"a": PANEL}, axes=plt.subplots()[1]) is not figure
    with pytest.raises(ValueError, match="^axes: expected 1, one for each panel, got"):
        line_panels({"a": PANEL}, axes=grid)


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
