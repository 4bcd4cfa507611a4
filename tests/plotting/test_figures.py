"""General figures: colours of methods, given axes, and what is refused."""

import itertools

import matplotlib
import matplotlib.colors
import numpy as np
import pytest

from icltheory import plotting

matplotlib.use("Agg")
MEAN = np.array([1.0, 0.6, 0.1, 0.0])


@pytest.fixture(autouse=True)
def _close():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_a_method_has_one_colour_whatever_stands_beside_it():
    names = ["mine", "ridge (1)", "Transformer, 3 seeds", "yours"]
    found = plotting.method_colours(names)
    assert list(found) == names
    assert found["ridge (1)"] == plotting.METHODS["ridge"]
    assert found["Transformer, 3 seeds"] == plotting.METHODS["transformer"]
    assert len(set(found.values())) == 4
    many = plotting.method_colours(str(i) for i in range(20))
    assert set(many.values()) == set(plotting.COLOURS)


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
    assert np.isnan(bayes.get_ydata()[3])  # 0 has no place on a logarithmic axis
    assert bayes.get_linestyle() == "--"
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "error")
    texts = {text.get_text(): text for text in axes.texts}
    assert set(texts) == set(curves)
    for line, name in zip(axes.get_lines(), curves, strict=True):
        same = matplotlib.colors.same_color
        assert same(line.get_color(), plotting.METHODS[name])
        assert same(texts[name].get_color(), plotting.METHODS[name])
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in texts.values()]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_error_curves_may_be_linear_on_given_axes():
    import matplotlib.pyplot as plt

    _, axes = plt.subplots()
    assert plotting.error_curves({"mine": MEAN}, ax=axes, log=False) is axes
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), MEAN)
    with pytest.raises(ValueError, match="^curves: expected at least one, got none"):
        plotting.error_curves({})


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
    with pytest.raises(ValueError, match=r"^values: expected \(rows, columns\), got"):
        plotting.heat_map(table[0])
    with pytest.raises(ValueError, match="^names: expected 3, got 2"):
        plotting.heat_map(table, columns=[1, 2])


def test_an_attention_map_names_keys_and_the_last_of_them_as_queries():
    weights = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    image = plotting.attention_map(weights, tokens=["a", "b", "c"], title="head 0")
    np.testing.assert_array_equal(image.get_array(), weights)
    axes = image.axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b", "c"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["b", "c"]
    assert image.get_clim() == (0, 0.5)
    with pytest.raises(ValueError, match="^weights: expected"):
        plotting.attention_map(weights.T)
    with pytest.raises(ValueError, match="^tokens: expected 3, got 2"):
        plotting.attention_map(weights, tokens=["a", "b"])


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
    with pytest.raises(ValueError, match="^values: expected singular values, got none"):
        plotting.spectrum([])
