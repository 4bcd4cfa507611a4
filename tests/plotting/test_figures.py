"""General figures: colours of methods and given axes."""

import itertools

import matplotlib.colors
import numpy as np
import pytest

from icltheory import plotting
from icltheory.statistics import Estimate

MEAN = np.array([1.0, 0.6, 0.1, 0.0])


def test_a_method_has_one_colour_whatever_stands_beside_it():
    names = ["mine", "ridge (1)", "Transformer, 3 seeds", "yours"]
    found = plotting.method_colours(names)
    assert list(found) == names
    assert found["ridge (1)"] == plotting.METHODS["ridge"]
    assert found["Transformer, 3 seeds"] == plotting.METHODS["transformer"]
    assert len(set(found.values())) == 4
    many = plotting.method_colours(str(i) for i in range(20))
    assert set(many.values()) == set(plotting.COLOURS)


def test_methods_of_one_colour_are_told_apart_in_one_figure():
    for assigned in (plotting.method_colours, plotting.method_markers):
        found = assigned(["ridge (1)", "Bayes", "ridge (2)", "Lasso", "mine"])
        assert found["ridge (1)"] == found["ridge (2)"] == assigned(["ridge"])["ridge"]
        assert len(set(found.values())) == 4
    assert plotting.method_colours(["Bayes"]) == {"Bayes": plotting.METHODS["Bayes"]}


def test_error_curves_are_drawn_with_their_names_at_their_ends():
    curves = {
        "ridge": MEAN[:3],
        "averaging": plotting.Curve(2 * MEAN[:3], MEAN[:3], 3 * MEAN[:3]),
        "Bayes": plotting.Curve(MEAN / 2, exact=True),
    }
    axes = plotting.error_curves(curves, ylabel="error")
    ridge, averaging, bayes = axes.get_lines()
    np.testing.assert_array_equal(ridge.get_xydata(), np.c_[range(3), MEAN[:3]])
    np.testing.assert_array_equal(averaging.get_ydata(), 2 * MEAN[:3])
    assert 0 < bayes.get_ydata()[3] < axes.get_ylim()[0]  # 0 is below the axis
    assert bayes.get_linestyle() == "--"
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "error")
    texts = {text.get_text(): text for text in axes.texts}
    assert set(texts) == set(curves)
    colours = plotting.method_colours(curves)
    for line, name in zip(axes.get_lines(), curves, strict=True):
        same = matplotlib.colors.same_color
        assert same(line.get_color(), colours[name])
        assert same(texts[name].get_color(), colours[name])
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in texts.values()]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_error_curves_stand_at_given_places_on_axes_of_any_scale():
    import matplotlib.pyplot as plt

    _, axes = plt.subplots()
    given = {"mine": [3.0, 2.0, 1.0]}
    found = plotting.error_curves(given, x=[0, 10, 20], ax=axes, log=False)
    assert found is axes
    assert axes.get_yscale() == "linear"
    np.testing.assert_array_equal(
        axes.lines[0].get_xydata(), [[0, 3], [10, 2], [20, 1]]
    )
    with pytest.raises(ValueError, match="^curves: expected a value for each place"):
        plotting.error_curves({"one length": np.array(0.5)})
    with pytest.raises(ValueError, match="^x: expected 3 places, got 2$"):
        plotting.error_curves(given, x=[0, 10])
    curve = plotting.Curve(MEAN[:3], x=[1, 10, 1000])
    axes = plotting.error_curves({"loss": curve}, log_x=True, ylim=(0.01, 10.0))
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [1, 10, 1000])
    assert (axes.get_xscale(), axes.get_ylim()) == ("log", (0.01, 10.0))


def test_a_heat_map_has_its_numbers_in_its_cells():
    table = np.array([[0.5, -1.0, np.nan], [0.0, 0.25, 2.0]])
    image = plotting.heat_map(table, columns=[0, 0.5, 0.9], title="mlp")
    np.testing.assert_array_equal(image.get_array().filled(np.nan), table)
    assert image.get_clim() == (-2.0, 2.0)
    axes = image.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("clipping rate", "layer")
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", "0.5", "0.9"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0", "1"]
    cells = {text.get_position(): text for text in axes.texts}
    assert set(cells) == {(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)}  # NaN has none
    assert cells[2, 1].get_text() == "2.00"
    assert cells[2, 1].get_color() == "white"
    bare = plotting.heat_map(table, ax=axes.figure.add_subplot(), write=None, limit=1)
    assert bare.get_clim() == (-1, 1)
    assert not bare.axes.texts


def test_an_attention_map_names_keys_and_the_last_of_them_as_queries():
    weights = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    (image,) = plotting.attention_maps(weights[None], tokens=["a", "b", "c"])
    np.testing.assert_array_equal(image.get_array(), weights)
    axes = image.axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b", "c"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["b", "c"]
    assert image.get_clim() == (0, 0.5)


def test_a_spectrum_stands_beside_a_law():
    values = np.linalg.svd(np.random.default_rng(0).normal(size=(60, 40)))[1]
    axes = plotting.spectrum(values, lambda x: x / 10, bins=10)
    bars = axes.patches
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1)
    (law,) = axes.get_lines()
    np.testing.assert_allclose(law.get_ydata(), law.get_xdata() / 10)
    assert law.get_xdata()[-1] == pytest.approx(1.2 * values[0])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert set(labels) == {"singular values", "random matrix"}
    assert not plotting.spectrum(values).get_lines()


def test_an_infinite_value_leaves_the_axis_at_its_upper_edge():
    for log in (False, True):
        axes = plotting.error_curves({"mine": [1.0, np.inf]}, log=log)
        assert axes.get_lines()[0].get_ydata()[1] > axes.get_ylim()[1]
        assert axes.texts[0].get_position()[1] == pytest.approx(1.0)


def test_names_follow_the_limits_of_the_axis():
    axes = plotting.error_curves({"mine": [1.0, 2.0]}, log=False)
    (name,) = axes.texts
    axes.set_ylim(0, 4)
    assert name.get_position()[1] == pytest.approx(0.5)
    axes.set_ylim(0, 1)  # its end is above the axes
    assert name.get_position()[1] == pytest.approx(1.0)


def test_attention_is_drawn_along_depth_with_one_scale():
    import matplotlib.pyplot as plt

    weights = np.stack([np.eye(3), np.full((3, 3), 0.25)])
    images = plotting.attention_maps(weights, tokens=["a", "b", "c"])
    assert [image.axes.get_title() for image in images] == ["layer 0", "layer 1"]
    assert {image.get_clim() for image in images} == {(0.0, 1.0)}
    _, grid = plt.subplots(1, 2)
    images = plotting.attention_maps(-weights, axes=grid, titles=["x", "y"])
    assert [image.axes for image in images] == list(grid)
    assert {image.get_clim() for image in images} == {(-1.0, 1.0)}


def test_maps_without_a_colour_are_drawn():
    for values in (np.zeros((1, 2)), np.full((2, 1), np.nan), [[np.inf, 0.0]]):
        image = plotting.heat_map(values)
        image.axes.figure.canvas.draw()
        assert image.get_clim() == (-1.0, 1.0)
    assert plotting.attention_maps(np.zeros((1, 1, 2)))[0].get_clim() == (0.0, 1.0)


@pytest.mark.parametrize("values", [[0.0], [np.nan]])
def test_curves_without_a_value_that_can_be_drawn_are_refused(values):
    import matplotlib.pyplot as plt

    with pytest.raises(ValueError, match="^curves: expected a positive value, got"):
        plotting.error_curves({"a": values})
    with pytest.raises(ValueError, match="^curves: expected curves by name, at least"):
        plotting.error_curves({})
    with pytest.raises(ValueError, match="^ylim: expected limits above 0, .* logar"):
        plotting.error_curves({"a": [1.0, 0.5]}, ylim=(0.0, 2.0))
    with pytest.raises(ValueError, match="^curves: expected an interval for each of 2"):
        plotting.error_curves({"a": plotting.Curve([1.0, 2.0], [0.5], [2.0, 3.0])})
    assert not plt.get_fignums()  # no empty figure is left


def test_names_that_do_not_fit_the_table_are_refused():
    with pytest.raises(ValueError, match="^columns: expected 3 names, got 2$"):
        plotting.heat_map(np.eye(3), columns=["a", "b"])
    with pytest.raises(ValueError, match="^values: expected rows and columns, got"):
        plotting.heat_map(np.ones(3))
    with pytest.raises(ValueError, match="number of"):
        plotting.attention_maps(np.eye(3)[None], tokens=["a", "b"])


def test_markers_tell_methods_apart_without_colour():
    markers = plotting.method_markers(plotting.METHODS)
    assert markers["exact"] == ""
    for pair in itertools.combinations(plotting.METHODS, 2):
        assert len(set(plotting.method_colours(pair).values())) == 2
        one, other = plotting.method_markers(pair).values()
        assert one != other or one == ""


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
