"""The experiment ltb_gap: its settings, its theory, a small run and its figures."""

import functools
import shutil

import jax
import numpy as np
import pytest

from experiments import ltb_gap
from icltheory import regression as reg

SMALL = """
    --preset cpu --dim 2 --num-examples 4 --mean-norms 0.5 --examples 4 8 --dims 1 2
    --noise-vars 0.25 --seeds 0 1 --steps 40 --chunk-steps 20 --checkpoint-every 20
    --bayes-samples 200 --phase-points 4
"""
CONFIG = ltb_gap.Config()


def test_a_setting_varies_one_number_and_each_problem_is_there_once():
    rows = ltb_gap.settings(CONFIG)
    assert len({tuple(row[name] for name in ltb_gap.AXES) for row in rows}) == len(rows)
    base = {name: getattr(CONFIG, name) for name in ltb_gap.AXES}
    for row in rows:
        assert sum(row[name] != value for name, value in base.items()) <= 1
    lists = (CONFIG.mean_norms, CONFIG.examples, CONFIG.dims, CONFIG.noise_vars)
    for axis, values in zip(ltb_gap.AXES, lists, strict=True):
        dots = ltb_gap.along(rows, "dots", axis)
        assert tuple(row[axis] for row in dots) == values
    # The setting of the config is on every axis.
    assert sum(bool(row["dots"]) for row in rows) == sum(map(len, lists)) - 3


def test_unused_dimensions_change_no_risk():
    @functools.partial(jax.jit, static_argnums=0)
    def risks(width):
        at = {"dim": 2, "mean_norm": 3.0, "noise_var": 0.5}
        task = ltb_gap.problem(at, width)
        gap = reg.gap(task, 7)
        return reg.optimum(reg.LTB, task, 7).risk, gap.lower_instance

    np.testing.assert_allclose(risks(2), risks(5), rtol=1e-12)


@pytest.mark.slow
def test_a_run_reports_risks_in_order_and_resumes_to_the_same_numbers(small_run):
    run, result, pictures = small_run(ltb_gap, SMALL)
    assert pictures == {"risks", "phases", "hills"}
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    assert all(passed for name, passed in verdicts.items() if "seconds" not in name)
    assert len(result["settings"]) == 4
    for row in result["settings"]:
        assert row["ltb"] < row["lower"] <= row["lower_instance"]
        assert row["lower_instance"] <= row["lsa"] * (1 + 1e-9)
        assert row["lsa"] <= row["upper"] * (1 + 1e-9)
        assert len(row["trained_ltb"]) == 2
        assert row["ltb"] < min(row["trained_ltb"])
    shutil.rmtree(sorted((run / "checkpoints").iterdir())[-1])
    again = ltb_gap.main(["--resume", str(run)])
    assert again["settings"] == result["settings"]


@pytest.mark.slow
def test_the_phase_picture_and_the_hills_are_those_of_the_theory():
    config = ltb_gap.Config(dim=2, phase_points=4)
    grid = ltb_gap.phases(config)
    assert grid["lsa"].shape == (4, 4)
    assert np.all(grid["lsa"] >= grid["ltb"])
    profile = ltb_gap.hills(config)[0.02]
    assert profile[0] == 1.0
    assert profile.max() > 100.0
    assert abs(profile[-1]) < 1e-12


def test_the_table_counts_the_trained_models_near_the_best():
    row = dict.fromkeys(ltb_gap.AXES, 2) | {"dots": {"dim"}, "line": set()}
    row |= {"lsa": 3.0, "ltb": 1.0, "bayes": 0.5}
    row |= {"trained_lsa": np.array([3.0, 3.2]), "trained_ltb": np.array([1.0, 1.2])}
    (shown,) = ltb_gap.numbers([row, row | {"dots": set()}])
    assert (shown["trained_lsa_reached"], shown["trained_ltb_reached"]) == (2, 1)
    made = ltb_gap.risk_table(ltb_gap.Config(seeds=(0, 1)), [shown])
    cells = [next(iter(column.cells)) for column in made.columns]
    assert cells[-4:] == ["1.1 (1/2)", "3", "3.1 (2/2)", "1.500"]


def test_risks_are_drawn_as_lines_and_dots():
    def row(x):
        dots = set(ltb_gap.AXES) if x == 2 else set()
        own = dict.fromkeys(ltb_gap.AXES, x) | {"line": set(ltb_gap.AXES), "dots": dots}
        own |= {"lsa": 3 * x, "ltb": x, "bayes": x / 2}
        own |= {"lower_instance": 2 * x, "upper": 5 * x}
        trained = {"trained_lsa": np.array([2.0, 8.0]), "trained_ltb": np.ones(2)}
        return own | (trained if dots else {})

    figure = ltb_gap.draw_risks(CONFIG, [row(x) for x in (4.0, 1.0, 2.0)])
    first, _, by_dim, _ = figure.axes
    drawn = {line.get_label(): line for line in first.get_lines()}
    for name, factor in (("attention alone", 3), ("with an MLP", 1), ("Bayes", 0.5)):
        line = drawn[name]
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 4])
        np.testing.assert_array_equal(line.get_ydata(), factor * np.array([1, 2, 4]))
        assert line.get_linestyle() == ("--" if name == "Bayes" else "-")
    band = first.collections[0].get_paths()[0].vertices
    assert {(1, 2), (1, 5), (4, 8), (4, 20)} <= set(map(tuple, band))
    lsa, ltb = first.containers
    assert lsa.lines[0].get_ydata() == pytest.approx([4.0])  # the geometric mean
    assert ltb.lines[0].get_ydata() == pytest.approx([1.0])
    (((_, low), (_, high)),) = lsa.lines[2][0].get_segments()
    assert low < 2
    assert low * high == pytest.approx(16)
    assert (first.get_xscale(), by_dim.get_xscale()) == ("log", "linear")
    np.testing.assert_allclose(first.get_ylim(), (0.5 / 1.3, 12 * 1.3))


def test_phases_and_hills_are_drawn_as_given():
    ratio = np.array([[1.0, 2.0, 30.0], [1.0, 1.5, 20.0]])
    grid = {
        "mean_norms": np.array([0.1, 1.0, 10.0]),
        "examples": np.array([2.0, 8.0]),
        "lsa": 2 * ratio,
        "ltb": 2 * np.ones((2, 3)),
        "closest": np.array([[0, 0, 2], [0, 0, 2]]),
    }
    axes = ltb_gap.draw_phases(CONFIG, grid).axes[0]
    mesh = axes.collections[0]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).ravel(), ratio.ravel())
    assert (mesh.norm.vmin, mesh.norm.vmax) == (1, 30)
    names = list(ltb_gap.CONSTRUCTIONS.values())
    marked = [(t.get_text(), *t.xy) for t in axes.texts if t.get_text() in names]
    assert marked == [(names[0], 0.1, 2.0), (names[2], 10.0, 2.0)]

    arcs = {0.05: np.array([1.0, 4.0, 0.5]), 1.0: np.array([1.0, 0.5, 0.1])}
    (axes,) = ltb_gap.draw_hills(CONFIG, arcs).axes
    for line, excess in zip(axes.get_lines(), arcs.values(), strict=False):
        np.testing.assert_array_equal(line.get_ydata(), excess)
        np.testing.assert_allclose(line.get_xdata(), [0, 45, 90])
    assert axes.get_ylim() == (1e-2, 8)
    assert axes.get_lines()[0].get_label().endswith("= 0.05")
    # More lines than colours are all drawn.
    (axes,) = ltb_gap.draw_hills(CONFIG, dict.fromkeys(range(9), arcs[1.0])).axes
    assert len(set(axes.get_legend_handles_labels()[1])) >= 9
