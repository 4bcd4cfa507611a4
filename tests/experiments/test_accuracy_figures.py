"""Figures of language models: what is drawn is what was measured."""

import matplotlib
import numpy as np
import pytest

from experiments.prune_llm.drawing import (
    AccuracyPanel,
    BeforeAfter,
    accuracy_against_rate,
    algorithm1_gains,
    norms_beside_accuracy,
    search_cost,
)
from experiments.shots.drawing import ShotsPanel, accuracy_against_shots
from icltheory.plotting import Curve

matplotlib.use("Agg")
RATES = (0, 0.1, 0.5, 0.995)
RISING = np.array([0.6, 0.7, 0.9, 0.9])


@pytest.fixture(autouse=True)
def _close():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def stars(axes):
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.get_lines()
        if line.get_marker() == "*"
    ]


def boxes_overlap(boxes):
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


@pytest.mark.slow
def test_rates_stand_side_by_side_and_the_smallest_best_rate_has_the_star():
    curves = {
        "layer 0": Curve(RISING - 0.2),
        "layer 1": Curve(RISING, RISING - 0.05, RISING + 0.05),
    }
    panels = {"toy, mlp": AccuracyPanel(RATES, curves, 0.75, 0.5)}
    figure = accuracy_against_rate(panels, "title")
    (axes,) = figure.axes
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["layer 1"].get_xdata(), range(4))
    np.testing.assert_array_equal(drawn["layer 1"].get_ydata(), RISING)
    assert set(drawn["unpruned"].get_ydata()) == {0.75}
    assert set(drawn["majority class"].get_ydata()) == {0.5}
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", ".1", ".5", ".995"]
    assert stars(axes) == [(2.0, 0.9)]  # not of layer 0, which stays below
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.55, 0.95))
    assert "best, where above the unpruned" in legend(figure)


@pytest.mark.slow
def test_without_a_better_rate_there_is_no_star():
    panels = {"toy": AccuracyPanel(RATES, {"layer 0": Curve(RISING)}, 0.9)}
    figure = accuracy_against_rate(panels, "title")
    assert not stars(figure.axes[0])
    assert legend(figure) == ["layer 0", "unpruned"]


@pytest.mark.parametrize("layers", [4, 28])
def test_ticks_and_legend_cover_nothing(layers):
    rates = (0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
    curves = {f"layer {i}": Curve(np.linspace(0.5, 0.6, 8)) for i in range(layers)}
    panels = {f"task {i}": AccuracyPanel(rates, curves, 0.5, 0.4) for i in range(5)}
    figure = accuracy_against_rate(panels, "title")
    figure.canvas.draw()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(panels)
    for axes in shown:
        labels = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert not boxes_overlap(labels)
        below = figure.legends[0].get_window_extent()
        assert not below.overlaps(axes.get_tightbbox())
    drawn = lines(shown[0])
    assert len({str(drawn[name].get_color()) for name in curves}) == layers


def test_shots_have_a_curve_a_model_and_a_dot_a_draw():
    draws = np.array([[0.5, 0.6, 0.8], [0.4, 0.7, 0.9]])
    curves = {"unpruned": Curve(draws.mean(0), draws.min(0), draws.max(0))}
    panel = ShotsPanel((0, 1, 16), curves, 0.25, 0.3, {"unpruned": draws})
    figure = accuracy_against_shots({"topic": panel}, "title")
    (axes,) = figure.axes
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["unpruned"].get_ydata(), draws.mean(0))
    assert set(drawn["chance"].get_ydata()) == {0.25}
    dots = [line.get_ydata() for line in axes.get_lines() if line.get_marker() == "."]
    np.testing.assert_array_equal(dots, draws)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", "1", "16"]
    assert legend(figure) == ["unpruned", "chance", "majority class"]


def test_gains_that_may_be_chance_are_hollow():
    rows = {
        "sst2": BeforeAfter(
            (0.7, 0.65, 0.75), (0.8, 0.76, 0.84), False, "p = .01", 0.5
        ),
        "rte": BeforeAfter((0.55, 0.5, 0.6), (0.56, 0.5, 0.6), True, "p = .7"),
    }
    figure = algorithm1_gains({"mlp": rows, "attn": rows}, "title")
    for axes in figure.axes:
        assert [t.get_text() for t in axes.get_yticklabels()] == ["sst2", "rte"]
        dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
        assert [float(dot.get_xdata()[0]) for dot in dots] == [0.8, 0.56]
        assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True]
        assert {t.get_text() for t in axes.texts} == {"p = .01", "p = .7"}
    assert set(legend(figure)) == {
        "unpruned",
        "with Algorithm 1, beyond chance",
        "with Algorithm 1, could be chance",
        "majority class",
    }


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
    assert "unpruned" in lines(accuracy)
    assert "unpruned" not in lines(norm)
    np.testing.assert_array_equal(lines(norm)["layer 3"].get_ydata(), 10 * RISING)
