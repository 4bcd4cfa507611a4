"""The experiment ltb_gap: its settings, its training, its table and its resume."""

import dataclasses
import functools
import json
import re
import sys

import jax
import numpy as np
import pytest

from experiments import ltb_gap
from experiments.ltb_gap.drawing import GapPanel, excess_hills, gap_panels, gap_phases
from experiments.ltb_gap.settings import axes, problem, trained_settings
from experiments.ltb_gap.theory import Phases, Risks, hills, phases, theory
from experiments.ltb_gap.train import TrainedBlocks
from icltheory import regression as reg

SMALL = [
    "--preset",
    "cpu",
    "--dim",
    "2",
    "--num-examples",
    "4",
    "--mean-norms",
    "0.5",
    "--examples",
    "4",
    "--dims",
    "2",
    "--noise-vars",
    "0.25",
    "--seeds",
    "0",
    "1",
    "--steps",
    "40",
    "--chunk-steps",
    "20",
    "--checkpoint-every",
    "20",
    "--bayes-samples",
    "200",
    "--phase-points",
    "4",
]


@pytest.fixture(scope="module")
def small():
    return ltb_gap.Config(
        dim=2,
        num_examples=4,
        mean_norms=(0.5, 2.0),
        examples=(4, 8),
        dims=(1, 2),
        noise_vars=(0.25,),
        bayes_samples=400,
        phase_points=4,
    )


def test_settings_vary_one_number_and_name_each_problem_once(small):
    base = (small.dim, small.num_examples, small.mean_norm, small.noise_var)
    for axis in axes(small):
        for setting in axis.line + axis.dots:
            others = [a == b for a, b in zip(setting, base, strict=True)]
            assert sum(others) >= 3
        assert set(axis.values(axis.dots)) <= set(getattr(small, _PLURAL[axis.name]))
    settings = trained_settings(small)
    assert len(set(settings)) == len(settings)


_PLURAL = {
    "mean_norm": "mean_norms",
    "num_examples": "examples",
    "dim": "dims",
    "noise_var": "noise_vars",
}


def test_unused_dimensions_change_no_risk():
    @functools.partial(jax.jit, static_argnums=0)
    def risks(width):
        task = problem(2, 3.0, 0.5, width)
        gap = reg.gap(task, 7)
        return reg.optimum(reg.LTB, task, 7).risk, gap.lower_instance

    np.testing.assert_allclose(risks(2), risks(5), rtol=1e-12)


@pytest.fixture(scope="module")
def exact(small):
    return theory(small)


@pytest.fixture(scope="module")
def grid(small):
    return phases(small)


@pytest.mark.slow
def test_theory_is_in_order(exact):
    for setting, risks in exact.items():
        assert risks.ltb < risks.lower <= risks.lower_instance <= risks.lsa * (1 + 1e-9)
        assert risks.lsa <= risks.upper * (1 + 1e-9)
        assert risks.bayes - 4 * risks.bayes_error < risks.ltb, setting


@pytest.mark.slow
def test_phases_are_in_order(grid):
    assert grid.lsa.shape == (4, 4)
    assert np.all(grid.lsa >= grid.ltb)


@pytest.mark.slow
def test_hills_rise_between_the_minima(small):
    profile = hills(small, (0.05,))[0.05]
    assert profile[0] == 1.0
    assert profile.max() > 1.0
    assert abs(profile[-1]) < 1e-12


def made_up(config):
    """Risks in the order that theory demands, and a phase picture."""
    exact = {}
    for setting in {s for axis in axes(config) for s in axis.line + axis.dots}:
        dim, M, norm, noise = setting
        best, gap = noise + dim / M, norm**2 / M
        parts = (best + share * gap for share in (0.5, 0.7, 1.3))
        exact[setting] = Risks(best + gap, best, *parts, 0.9 * best, 1e-3)
    norms, examples = np.array([0.1, 1.0, 10.0, 100.0]), np.array([1, 4, 16, 64])
    best = np.ones((4, 4))
    lsa = best + 2 * norms**2 / (examples[:, None] + 2)
    return exact, Phases(norms, examples, lsa, best, np.zeros((4, 4), int), 1.0)


def test_the_command_line_writes_what_is_reported_of_its_models(
    small, tmp_path, monkeypatch
):
    main, asked = sys.modules["experiments.ltb_gap.main"], []
    exact, grid = made_up(small)

    def train(config, run):
        asked.append(config)
        above = {"lsa": np.array([1.0, 1.05]), "ltb": np.array([1.05, 1.2])}
        risks = {
            name: {
                s: getattr(exact[s], name) * factors for s in trained_settings(small)
            }
            for name, factors in above.items()
        }
        return TrainedBlocks(risks, seconds=1.0)

    angles = np.linspace(0, np.pi / 2, 181)
    arcs = {0.05: np.cos(angles) + np.sin(2 * angles)}
    monkeypatch.setattr(main, "train", train)
    for name, found in (("theory", exact), ("phases", grid), ("hills", arcs)):
        monkeypatch.setattr(main, name, lambda config, *_, found=found: found)
    sizes = "--dim 2 --num-examples 4 --mean-norms 0.5 2 --examples 4 8 --dims 1 2"
    sizes += " --noise-vars 0.25 --bayes-samples 400 --phase-points 4 --seeds 0 1"
    args = ["--preset", "cpu", *sizes.split(), "--output", str(tmp_path)]
    result = ltb_gap.main(args)
    assert trained_settings(asked[0]) == trained_settings(small)
    (run,) = (tmp_path / "ltb_gap").iterdir()
    assert json.loads((run / "result.json").read_text()) == result
    pictures = {path.name for path in run.glob("*.png")}
    assert pictures == {"risks.png", "phases.png", "hills.png"}
    for row in result["settings"]:
        assert (row["trained_lsa_reached"], row["trained_ltb_reached"]) == (2, 1)
    assert all(check["passed"] for check in result["checks"])


@pytest.mark.slow
def test_a_run_writes_everything_and_resumes_to_the_same_numbers(tmp_path):
    result = ltb_gap.main([*SMALL, "--output", str(tmp_path)])
    (run,) = (tmp_path / "ltb_gap").iterdir()
    names = {path.name for path in run.iterdir() if path.suffix != ".svg"}
    assert {"config.json", "metrics.jsonl", "result.json", "risks.png"} <= names
    assert {"phases.png", "hills.png"} <= names
    assert json.loads((run / "result.json").read_text()) == result
    (row, *_) = result["settings"]
    assert len(row["trained_ltb"]) == 2
    assert row["ltb"] < min(row["trained_ltb"])
    last = sorted((run / "checkpoints").iterdir())[-1]
    for path in sorted(last.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    last.rmdir()
    again = ltb_gap.main(["--resume", str(run)])
    assert again["settings"] == result["settings"]


def test_impossible_settings_are_refused_in_one_line():
    for change, message in (
        ({"dim": 0}, "dim: expected at least 1, got 0"),
        (
            {"mean_norms": ()},
            "mean_norms: expected at least one value, each above 0, got ()",
        ),
        ({"noise_var": -1.0}, "noise_var: expected at least 0, got -1.0"),
        ({"seeds": (0,)}, "seeds: expected at least two seeds, all distinct, got (0,)"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
            dataclasses.replace(ltb_gap.Config(), **change)


def test_figures_draw_what_they_are_given():
    x = np.array([1.0, 2.0, 4.0])
    lines = {"lsa": 3 * x, "ltb": x, "bayes": x / 2}
    dots = {
        "lsa": (np.array([4.0]), np.array([3.5]), np.array([5.0])),
        "ltb": (np.array([1.5]), np.array([1.0]), np.array([1.75])),
    }
    panel = GapPanel("M", x, lines, (2 * x, 5 * x), [2.0], dots)
    plain = panel._replace(label="d", log=False)
    figure = gap_panels([panel, panel, panel, plain], "fixed", 7)
    first, *_, last = figure.axes
    drawn = {line.get_label(): line for line in first.get_lines()}
    for name, label in (("lsa", "alone"), ("ltb", "MLP"), ("bayes", "best: Bayes")):
        (line,) = (drawn[key] for key in drawn if label in key and "best" in key)
        np.testing.assert_array_equal(line.get_ydata(), lines[name])
        assert line.get_linestyle() == ("--" if name == "bayes" else "-")
    band = first.collections[0].get_paths()[0].vertices
    assert {(1, 2), (1, 5), (4, 8), (4, 20)} <= set(map(tuple, band))
    spans = [bars.lines[2][0].get_segments()[0] for bars in first.containers]
    np.testing.assert_allclose(spans, [[[2, 3.5], [2, 5]], [[2, 1], [2, 1.75]]])
    assert (first.get_xscale(), last.get_xscale()) == ("log", "linear")
    np.testing.assert_allclose(first.get_ylim(), (0.5 / 1.3, 12 * 1.3))
    assert "7 random starts" in figure.get_suptitle()

    norms, examples = np.array([0.1, 1.0, 10.0]), np.array([2.0, 8.0])
    ratio = np.array([[1.0, 2.0, 30.0], [1.0, 1.5, 20.0]])
    closest = np.array([[0, 0, 2], [0, 0, 2]])
    figure = gap_phases(norms, examples, ratio, closest, "abc", "fixed")
    axes = figure.axes[0]
    mesh = axes.collections[0]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).ravel(), ratio.ravel())
    assert (mesh.norm.vmin, mesh.norm.vmax) == (1, 30)
    marked = [text for text in axes.texts if text.get_text() in ("a", "b", "c")]
    assert [(text.get_text(), *text.xy) for text in marked] == [
        ("a", 0.1, 2.0),
        ("c", 10.0, 2.0),
    ]

    arcs = {0.05: np.array([1.0, 4.0, 0.5]), 1.0: np.array([1.0, 0.5, 0.1])}
    (axes,) = excess_hills(arcs, "fixed").axes
    for line, excess in zip(axes.get_lines(), arcs.values(), strict=False):
        np.testing.assert_array_equal(line.get_ydata(), excess)
        np.testing.assert_allclose(line.get_xdata(), [0, 45, 90])
    assert set(axes.get_lines()[2].get_ydata()) == {1}
    assert axes.get_ylim() == (1e-2, 8)
    assert axes.get_lines()[0].get_label().endswith("= 0.05")
