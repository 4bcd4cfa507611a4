"""The experiment on gradient flow: its parts, a tiny run, its figures."""

import json

import numpy as np
import pytest

from experiments import gradient_flow
from experiments.gradient_flow import drawing as plotting
from experiments.gradient_flow import starts

TINY = [
    *("--preset", "cpu", "--dim", "3", "--null-dim", "1", "--points", "5"),
    *("--condition", "2", "--num-examples", "3", "--descent-dim", "2"),
    *("--sgd-steps", "40", "--seeds", "2", "--batch-sizes", "2", "64"),
    *("--step-shares", "0.1", "0.9", "--dims", "2", "--lengths", "2"),
    *("--num-starts", "8", "--end-time", "200"),
]


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(tmp_path):
    result = gradient_flow.main([*TINY, "--output", str(tmp_path)])
    (folder,) = (tmp_path / "gradient_flow").iterdir()
    names = {path.name for path in folder.iterdir() if path.suffix != ".svg"}
    figures = {"paths.png", "rates.png", "descents.png", "starts.png"}
    assert names == figures | {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "timing.json",
    }
    assert json.loads((folder / "result.json").read_text()) == result
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    for name in ("regular H", "singular H"):
        assert verdicts[f"{name}: excess at the end"]
        assert verdicts[f"{name}: share of bound, preconditioner"]
        assert result["paths"][name]["distance_from_limit"] < 1e-9
    for setting in result["starts"]:
        assert sum(setting["counts"].values()) == 8
        assert setting["spurious_is_minimum"]
        low, high = setting["least_risk_interval"]
        assert 0 <= low <= setting["counts"]["least risk"] / 8 <= high <= 1


def test_fates_are_told_apart():
    levels = np.array([0.5, 0.7])
    excess = np.array(
        [
            [1.0, 1e-3, 1e-9],
            [1.0, 0.5, 0.5 + 1e-5],
            [1.0, 0.7, 0.7],
            [1.0, 0.6, 0.6],
            [1.0, 0.7, 0.5],
            [1.0, 0.6, np.nan],
        ]
    )
    last, moving = starts.last_finite(excess)
    np.testing.assert_allclose(last, [1e-9, 0.5, 0.7, 0.6, 0.5, 0.6], atol=1e-4)
    fate = starts.fates(last, moving, levels, 1.0)
    found = [
        next(name for name in starts.FATES if fate[name][i]) for i in range(len(last))
    ]
    arrived, caught, other, rest, still = starts.FATES
    assert found == [arrived, caught, other, rest, still, still]
    assert starts.commonest(np.array([0.58, 0.5801, 0.3])) == (0.58, 2)
    assert starts.commonest(np.zeros(0)) == (None, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--null-dim", "5"], "null_dim: expected 1 to dim - 1 = 4, got 5"),
        (["--dims", "2"], "lengths: expected one for each of 1 dims, got 4"),
        (["--dims", "1", "2", "2", "2"], "dims: expected at least 2, got"),
        (["--seeds", "1"], "seeds: expected at least 2, got 1"),
        (["--sgd-steps", "30"], "sgd_steps: expected a multiple of 40, got 30"),
        (["--preset", "big"], "preset: expected one of cpu, gpu, paper, got big"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(change, message, refused):
    refused(gradient_flow.main, change, message)


def test_figures_draw_what_they_are_given():
    t = np.array([0.0, 0.1, 1.0])
    values = np.array([1.0, 0.5, 0.1])
    curves = {"distance": (values, {"bound": 2 * values}), "excess": (values, {"b": t})}
    panel = plotting.FlowPanel(
        t, np.ones((3, 2)), np.ones((3, 2, 2)), np.ones(2), np.ones((2, 2)), curves
    )
    figure = plotting.flow_paths({"a": panel, "b": panel}, "title")
    beta, *maps = [axes for axes in figure.axes[:6]]
    assert len(beta.get_lines()) == 4
    assert [axes.get_title() for axes in maps][::4] == ["start", "limit"]
    np.testing.assert_array_equal(maps[2].get_images()[0].get_array(), np.ones((2, 2)))
    figure = plotting.flow_rates({"a": panel}, "title")
    (flow, bound) = figure.axes[0].get_lines()
    np.testing.assert_array_equal(flow.get_ydata(), values[1:])
    np.testing.assert_array_equal(bound.get_ydata(), 2 * values[1:])
    assert bound.get_linestyle() == "--"
    figure = plotting.descents_beside_flow(
        (t, values), {"step": (t, values)}, t, {"batch": np.ones((2, 3))}, "title"
    )
    assert len(figure.axes[0].get_lines()) == len(figure.axes[1].get_lines()) == 2
    setting = plotting.FlowStarts(
        "LTB",
        t,
        np.array([[4.0, 4, 1], [4, 4, 2], [4, 4, 3], [4, 4, 4]]),
        0.5,
        True,
        {"a": np.arange(4) < 3, "b": np.arange(4) == 3, "c": np.zeros(4, bool)},
        (0.3, 0.95),
    )
    figure = plotting.fates_of_starts([setting, setting], "title")
    drawn = [axes for axes in figure.axes if axes.get_title() == "LTB"]
    for axes in drawn:
        first, second, level = axes.get_lines()
        np.testing.assert_array_equal(first.get_ydata(), [4, 2])  # the median
        np.testing.assert_array_equal(second.get_ydata(), [4, 4])
        assert set(level.get_ydata()) == {0.5}
    widths = [bar.get_width() for bar in figure.axes[-1].patches]
    assert widths == [0.75, 0.75, 0.25, 0.25]
