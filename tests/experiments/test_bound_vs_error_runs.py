"""Errors against bounds: the run, its resume, mistakes and pictures."""

import dataclasses
import json
import math
import sys

import numpy as np
import pytest

from experiments import bound_vs_error
from experiments.bound_vs_error.config import Config, ProblemSize
from experiments.bound_vs_error.drawing import (
    SamplePanel,
    bounds_against_samples,
    bounds_by_learner,
)
from experiments.bound_vs_error.invariance import HELD_OUT, POPULATION
from experiments.bound_vs_error.simulate import Replicates, simulate
from icltheory import plotting
from tests import processes

TINY = [
    *("--preset", "cpu", "--replicates", "16", "--rows", "5", "12", "4", "2"),
    *("--generic", "12", "4", "--sweep", "10", "12", "--sweep-shots", "4"),
    *("--targets", "0.9"),  # for which the plan asks for N = 12
]


# --- the run


def run_folder(output):
    (folder,) = (output / "bound_vs_error").iterdir()
    return folder


def made_up(config, row):
    """Replicates of a row that nothing simulated; the same whenever they are asked."""
    B, L = config.replicates_of(row), row.num_layers
    rng = np.random.default_rng([row.dim, row.num_demos, row.shots, L])
    squared_G = rng.gamma(50.0, size=(B, L))
    parts = [squared_G, 2 * squared_G, squared_G / 2, rng.gamma(5.0, size=(B, L))]
    log_det, anisotropic = rng.normal(size=(B, L)) - 4, rng.gamma(3.0, size=(B, L))
    gaps = [rng.normal(0.1, 0.02, size=B) for _ in range(4)]
    changes = [rng.normal(0.02, 0.01, size=(B, 4, 2)) for _ in range(2)]
    held_out, det_w = rng.gamma(3.0, size=(B, 3, L)), rng.normal(size=(B, row.dim)) / 5
    losses = [rng.uniform(size=(B, row.num_demos, 2)) for _ in range(2)]
    return Replicates(
        *parts, log_det, anisotropic, held_out, *gaps, det_w, *changes, *losses
    )


def test_what_is_simulated_is_written_and_resumes_to_the_same(tmp_path, monkeypatch):
    main = sys.modules["experiments.bound_vs_error.main"]
    kinds = {"full support": 1e-12, "W_V of rank 1": 0.2, "gradient descent": 0.3}
    invariance = {"terms": {}, "relative_spread": {}}
    for prior in (HELD_OUT, POPULATION):
        invariance["relative_spread"][prior] = kinds
    monkeypatch.setattr(main, "simulate", made_up)
    monkeypatch.setattr(main, "measure_invariance", lambda seed: invariance)
    result = bound_vs_error.main([*TINY, "--output", str(tmp_path)])
    folder = run_folder(tmp_path)
    written = {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "timing.json",
    }
    names = {path.name for path in folder.iterdir() if path.suffix != ".svg"}
    assert names == written | {"rows.png", "scaling.png"}
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    rows = result["rows"]
    assert len(rows) == 5
    assert rows["GD d=5 N=12 b=4 L=2"]["printed"]["value"] == "Infinity"
    for record in rows.values():
        assert record["order"]["frobenius >= exact"] < 0
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 6
    (folder / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (folder / "result.json").unlink()
    bound_vs_error.main(["--resume", str(folder)])
    assert (folder / "result.json").read_text() == text
    assert (folder / "metrics.jsonl").read_text() == "".join(lines)


@pytest.mark.slow
def test_a_small_run_writes_everything_and_resumes_to_the_same(tmp_path):
    result = bound_vs_error.main([*TINY, "--output", str(tmp_path)])
    folder = run_folder(tmp_path)
    names = {path.name for path in folder.iterdir() if path.suffix != ".svg"}
    written = {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "timing.json",
    }
    assert names == written | {"rows.png", "scaling.png"}
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    rows = result["rows"]
    assert len(rows) == 5
    assert rows["GD d=5 N=12 b=4 L=2"]["printed"]["value"] == "Infinity"
    invariance = result["invariance"]["relative_spread"]
    for spread in invariance.values():
        assert spread["full support"] < 1e-8
        # on a smaller support layers do differ
        assert min(spread["W_V of rank 1"], spread["gradient descent"]) > 1e-3
    order = [check["name"] for check in result["checks"] if not check["passed"]]
    assert not [name for name in order if "smallest valid" in name]

    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 6
    (folder / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (folder / "result.json").unlink()
    bound_vs_error.main(["--resume", str(folder)])
    assert (folder / "result.json").read_text() == text
    assert (folder / "metrics.jsonl").read_text() == "".join(lines)


@pytest.mark.slow
def test_a_row_does_not_depend_on_the_others():
    row = ProblemSize(1, 6, 2, 1)
    small = {"generic": (), "sweep": (), "targets": (), "replicates": 16}
    alone = simulate(Config(rows=((1, 6, 2, 1),), **small), row)
    among = simulate(Config(rows=((2, 9, 2, 1), (1, 6, 2, 1)), **small), row)
    np.testing.assert_array_equal(alone.gap, among.gap)
    other = simulate(Config(rows=((1, 6, 2, 1),), seed=1, **small), row)
    assert not np.any(alone.gap == other.gap)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--rows", "1", "5", "5", "1"], "rows: expected d_in, b, L >= 1 and N > b"),
        (["--rows", "0", "5", "2", "1"], "rows: expected d_in, b, L >= 1 and N > b"),
        (["--generic", "5", "9"], "rows: expected d_in, b, L >= 1 and N > b"),
        (["--replicates", "100"], "replicates: expected a power of two from 16"),
        (["--work", "0"], "work: expected a positive number, got 0"),
        (["--targets", "2"], "targets: expected values in (0, 2), got 2"),
        (["--preset", "huge"], "preset: expected one of cpu, gpu, paper, got huge"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(change, message, refused):
    refused(bound_vs_error.main, change, message)


def test_a_mistake_is_one_line_and_status_2(capsys):
    assert processes.status("bound_vs_error", ["--replicates", "3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "replicates: expected a power of two from 16, got 3" in line


def test_presets_come_back_from_json():
    for preset in bound_vs_error.PRESETS.values():
        stored = json.loads(json.dumps(dataclasses.asdict(preset)))
        lists = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        assert Config(**lists) == preset


# --- figures


def test_bounds_are_drawn_and_the_infinite_ones_are_marked():
    error = plotting.Curve([0.1, -0.01], [0.05, -0.02], [0.15, 0.01])
    bounds = {"F": [1.0, 0.5], "printed": [math.inf, math.inf]}
    figure = bounds_by_learner({"noisy": (error, bounds)}, ["a", "b"], "t")
    (axes,) = figure.axes
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {(0, 0): "10", (1, 0): "∞"}  # no ratio to a negative error
    assert [t.get_text() for t in axes.get_xticklabels()] == ["F", "printed"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a:  0.1", "b:  -0.01"]


def test_curves_against_the_pool_with_guides():
    error = plotting.Curve([0.1, 0.01], [0.09, 0.009], [0.11, 0.011])
    bounds = {
        "G": plotting.Curve([1.0, 0.3]),
        "plan": plotting.Curve([math.inf, 0.2], exact=True),
    }
    panel = SamplePanel([10, 100], error, bounds, {-1.0: 0.05})
    (axes,) = bounds_against_samples({"b": panel}, 2.0, "t").axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines["true error"].get_ydata(), error.mean)
    assert lines["plan"].get_linestyle() == "--"
    assert lines["plan"].get_ydata()[0] > axes.get_ylim()[1]  # infinite
    guides = [line for line in axes.get_lines() if line.get_color() == "grey"]
    np.testing.assert_allclose(guides[0].get_ydata(), [0.05, 0.005])
