"""Figures: what is drawn is what was measured."""

import numpy as np
import pytest

from experiments import ltb_gap
from experiments.garg_linear.drawing import (
    attention_along_depth,
    error_against_examples,
    errors_by_setting,
    errors_over_training,
    loss_of_training,
)
from experiments.garg_linear.report import curve_title, setting_title
from experiments.garg_recipe.drawing import Ratio, recipes_beside_baseline
from icltheory.plotting import Curve
from icltheory.regression import shifts

MEAN = np.array([1.0, 0.6, 0.1])


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_every_predictor_is_a_line_over_k_with_its_interval():
    curves = {
        "Transformer": Curve(MEAN, MEAN - 0.1, MEAN + 0.1),
        "optimum": Curve(MEAN / 2, exact=True),
    }
    (axes,) = error_against_examples(curves, 1, "title", "Transformer").axes
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["Transformer"].get_xdata(), [0, 1, 2])
    np.testing.assert_array_equal(drawn["Transformer"].get_ydata(), MEAN)
    assert drawn["Transformer"].get_linestyle() == "-"
    assert drawn["optimum"].get_linestyle() == "--"
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.0, abs=1e-6)  # 0 is below a log axis
    assert heights.max() == pytest.approx(1.1)
    assert axes.get_xlabel()
    assert axes.get_ylabel()


def test_each_snapshot_is_named_by_its_step():
    snapshots = {10: Curve(MEAN), 2000: Curve(MEAN / 2)}
    reference = ("least squares", Curve(MEAN / 3, exact=True))
    (axes,) = errors_over_training(snapshots, reference, 1, "title").axes
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["step 2,000"].get_ydata(), MEAN / 2)
    assert {"step 10", "step 2,000", "least squares"} <= set(drawn)


def test_each_setting_has_its_panel():
    panels = {f"s{i}": {"a": Curve(MEAN * i)} for i in range(7)}
    shown = [a for a in errors_by_setting(panels, "title").axes if a.get_visible()]
    assert [a.get_title() for a in shown] == list(panels)
    np.testing.assert_array_equal(lines(shown[3])["a"].get_ydata(), MEAN * 3)


def test_settings_are_named_in_plain_words():
    assert setting_title("scale-x=0.333") == "inputs times 0.333"
    assert setting_title("scale-y=2") == "weights times 2"
    titles = {setting_title(name) for name in shifts.GARG_SHIFTS}
    assert len(titles) == len(shifts.GARG_SHIFTS)
    assert not any("_" in title or "=" in title for title in titles)


def test_curves_are_named_with_their_parameters():
    assert curve_title("ridge (1)") == "ridge, penalty 1"
    assert curve_title("best gradient steps (3)") == "best gradient steps, L = 3"
    assert curve_title("two-layer network (100)") == "two-layer network (100)"


def test_losses_are_drawn_over_their_steps_and_exact_ones_are_dashed():
    losses = {"model": ([3.0, 2.0], False), "least squares": ([1.0, 1.0], True)}
    (axes,) = loss_of_training([100, 200], losses, "title").axes
    model, exact = axes.get_lines()
    np.testing.assert_array_equal(model.get_xydata(), [[100, 3], [200, 2]])
    assert (model.get_linestyle(), exact.get_linestyle()) == ("-", "--")


def test_attention_has_a_panel_for_each_layer():
    weights = np.stack([np.eye(2), np.full((2, 2), 0.5)])
    axes = attention_along_depth(weights, ["x1", "y1"], "title").axes
    assert [ax.get_title() for ax in axes[:2]] == ["layer 1", "layer 2"]
    np.testing.assert_array_equal(axes[1].get_images()[0].get_array(), weights[1])
    assert axes[1].get_images()[0].get_clim() == (0, 0.5)


def test_recipes_are_curves_and_dots_and_one_that_diverged_has_no_dot():
    curves = {"baseline": ([1, 2], Curve([0.4, 0.2], [0.3, 0.1], [0.5, 0.3]))}
    nothing = Ratio(np.nan, np.nan, np.nan)
    ratios = {"mean": Ratio(0.5, 0.4, 0.6, True), "adam": nothing}
    figure = recipes_beside_baseline(curves, ratios, "title")
    left, right = figure.axes
    assert left.get_legend_handles_labels()[1] == ["baseline"]
    assert [label.get_text() for label in right.get_yticklabels()] == list(ratios)
    dots = [line for line in right.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in dots] == [0.5]


MANY = {f"line {i}": MEAN + i for i in range(9)}
CURVES = {label: Curve(mean) for label, mean in MANY.items()}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: errors_by_setting({"panel": CURVES}, "title"),
        lambda: ltb_gap.draw_hills(
            ltb_gap.Config(), dict.fromkeys(map(float, range(9)), MEAN)
        ),
        lambda: recipes_beside_baseline(
            {k: (MEAN, Curve(v, v, v)) for k, v in MANY.items()}, {}, "title"
        ),
    ],
)
def test_more_lines_than_colours_are_all_drawn(draw):
    figure = draw()
    drawn = [axes.get_legend_handles_labels()[1] for axes in figure.axes]
    assert max(len(set(labels)) for labels in drawn) >= 9
