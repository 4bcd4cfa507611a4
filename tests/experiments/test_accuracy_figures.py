"""Figures of language models: what is drawn is what was measured."""

import numpy as np
import pytest

from experiments._frame.looks import demonstration_places
from experiments.prune_llm.drawing import (
    ChangeCurve,
    ChangePanel,
    ChoiceChange,
    algorithm1_changes,
    change_against_rate,
    norms_beside_accuracy,
    search_cost,
)
from experiments.shots.drawing import ShotsPanel, accuracy_against_shots
from icltheory.plotting import Curve

RATES = (0, 0.1, 0.5, 0.995)
RISING = np.array([0.6, 0.7, 0.9, 0.9])


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def boxes_overlap(boxes):
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


def test_rates_stand_at_their_places_and_only_sure_changes_are_filled():
    sure = [False, False, False, True]
    change = np.array([0.0, 0.01, -0.1, -0.4])
    curve = ChangeCurve(change, change - 0.05, change + 0.05, sure)
    panels = {"toy, MLP": ChangePanel(RATES, {"layer 0": curve})}
    figure = change_against_rate(panels, "title")
    (axes,) = figure.axes
    marks = {
        str(line.get_markerfacecolor()): line
        for line in axes.get_lines()
        if line.get_marker() == "o"
    }
    filled, hollow = marks["#0072B2"], marks["white"]
    np.testing.assert_allclose(filled.get_xdata(), [0.995])
    np.testing.assert_allclose(filled.get_ydata(), [-40.0])
    np.testing.assert_allclose(hollow.get_xdata(), RATES[:3])
    ends = axes.collections[0].get_paths()
    np.testing.assert_allclose(ends[2].vertices[:, 1], [-15.0, -5.0])
    assert legend(figure) == ["layer 0", "beyond chance", "not beyond chance"]


@pytest.mark.parametrize("layers", [4, 28])
def test_ticks_and_legend_cover_nothing(layers):
    rates = (0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
    flat = ChangeCurve(*np.zeros((4, 8)))
    curves = {f"layer {i}": flat for i in range(layers)}
    panels = {f"task {i}": ChangePanel(rates, curves) for i in range(5)}
    figure = change_against_rate(panels, "title")
    figure.canvas.draw()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(panels)
    for axes in shown:
        labels = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert not boxes_overlap(labels)
        below = figure.legends[0].get_window_extent()
        assert not below.overlaps(axes.get_tightbbox())
    inside = figure.legends[0].get_window_extent()
    assert inside.x0 >= 0
    assert inside.x1 <= figure.bbox.x1
    handles = figure.legends[0].legend_handles[:layers]
    assert len({str(line.get_color()) for line in handles}) == layers


def test_shots_have_a_curve_a_model_and_a_dot_a_draw():
    draws = np.array([[0.5, 0.6, 0.8], [0.4, 0.7, 0.9]])
    curves = {"unpruned": Curve(draws.mean(0), draws.min(0), draws.max(0))}
    points = {"unpruned": draws}
    panel = ShotsPanel((0, 1, 16), curves, 0.25, 0.3, points, "only a prior")
    figure = accuracy_against_shots({"topic": panel}, "title")
    (axes,) = figure.axes
    (measured,) = [line for line in axes.get_lines() if line.get_marker() == "o"]
    np.testing.assert_array_equal(measured.get_ydata(), draws.mean(0))
    np.testing.assert_allclose(measured.get_xdata(), demonstration_places((0, 1, 16)))
    assert set(lines(axes)["chance"].get_ydata()) == {0.25}
    dots = [line.get_ydata() for line in axes.get_lines() if line.get_marker() == "."]
    np.testing.assert_array_equal(dots, draws)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", "1", "16"]
    assert set(legend(figure)) == {"unpruned", "chance", "majority class"}
    assert [t.get_text() for t in axes.texts] == ["only a prior"]


def test_demonstrations_are_on_a_logarithmic_axis_that_begins_at_0():
    np.testing.assert_allclose(demonstration_places([0, 1, 2, 4, 16]), [0, 1, 2, 3, 5])


@pytest.mark.parametrize(
    "draw", [change_against_rate, accuracy_against_shots, algorithm1_changes]
)
def test_a_figure_of_nothing_is_refused_in_one_line(draw):
    with pytest.raises(ValueError, match=r"^panels: expected at least one.*got 0"):
        draw({}, "title")


def test_changes_that_may_be_chance_are_hollow():
    rows = {
        "sst2": ChoiceChange((0.1, 0.05, 0.15), True, "p = .01"),
        "rte": ChoiceChange((0.01, -0.05, 0.06), False, "p = .7"),
        "copa": ChoiceChange(None, note="not pruned"),
    }
    figure = algorithm1_changes({"MLP": rows, "attention": rows}, "title")
    first, second = figure.axes
    assert [t.get_text() for t in first.get_yticklabels()] == list(rows)
    assert first.get_xlim() == second.get_xlim()
    for axes in figure.axes:
        dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
        assert [float(dot.get_xdata()[0]) for dot in dots] == [10.0, 1.0]
        assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True]
        assert [t.get_text() for t in axes.texts] == ["p = .01", "p = .7", "not pruned"]
        assert "_not pruned" in lines(axes)


def test_costs_say_how_many_times_less_than_the_first():
    figure = search_cost({"plain": 100.0, "cached": 4.0}, "title")
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.texts] == ["100", "4 (25 x less)"]
    assert axes.get_xscale() == "log"
    figure.canvas.draw()
    inside = axes.get_window_extent()
    assert all(t.get_window_extent().x1 <= inside.x1 for t in axes.texts)


@pytest.mark.slow
def test_theory_and_accuracy_share_their_rates():
    layers = {"layer 0": Curve(RISING), "layer 3": Curve(10 * RISING)}
    figure = norms_beside_accuracy(
        RATES,
        {"norm": layers, "accuracy": layers},
        "title",
        log=("norm",),
        lines={"accuracy": 0.6},
    )
    norm, accuracy = figure.axes
    assert (norm.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
    assert {t.get_text() for t in norm.texts} == set(layers)
    assert {t.get_text() for t in accuracy.texts} == {*layers, "unpruned"}
    np.testing.assert_array_equal(lines(norm)["_layer 3"].get_ydata(), 10 * RISING)
    np.testing.assert_array_equal(lines(norm)["_layer 3"].get_xdata(), RATES)
