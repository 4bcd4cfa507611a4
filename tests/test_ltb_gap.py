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
from experiments.ltb_gap.settings import axes, problem, trained_settings
from experiments.ltb_gap.theory import hills, phases, theory
from experiments.ltb_gap.train import Trained
from icltheory.regression import ltb

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
        gap = ltb.approximation_gap(task, 7)
        return ltb.minimal_risk(task, 7), gap.lower_instance

    np.testing.assert_allclose(risks(2), risks(5), rtol=1e-12)


@pytest.fixture(scope="module")
def exact(small):
    return theory(small)


@pytest.fixture(scope="module")
def grid(small):
    return phases(small)


def test_theory_is_in_order(exact):
    for setting, risks in exact.items():
        assert risks.ltb < risks.lower <= risks.lower_instance <= risks.lsa * (1 + 1e-9)
        assert risks.lsa <= risks.upper * (1 + 1e-9)
        assert risks.bayes - 4 * risks.bayes_error < risks.ltb, setting


def test_phases_are_in_order(grid):
    assert grid.lsa.shape == (4, 4)
    assert np.all(grid.lsa >= grid.ltb)


@pytest.mark.slow
def test_hills_rise_between_the_minima(small):
    profile = hills(small, (0.05,))[0.05]
    assert profile[0] == 1.0
    assert profile.max() > 1.0
    assert abs(profile[-1]) < 1e-12


def test_the_command_line_writes_what_is_reported_of_its_models(
    small, exact, grid, tmp_path, monkeypatch
):
    main, asked = sys.modules["experiments.ltb_gap.main"], []

    def train(config, run, console):
        asked.append(config)
        above = {"lsa": np.array([1.0, 1.05]), "ltb": np.array([1.05, 1.2])}
        risks = {
            name: {
                s: getattr(exact[s], name) * factors for s in trained_settings(small)
            }
            for name, factors in above.items()
        }
        return Trained(risks, seconds=1.0)

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
    names = {path.name for path in run.iterdir()}
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
        ({"mean_norms": ()}, "mean_norms: expected some above 0, got ()"),
        ({"noise_var": -1.0}, "noise_var: expected at least 0, got -1.0"),
        ({"seeds": (0,)}, "seeds: expected at least two different ones, got (0,)"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
            dataclasses.replace(ltb_gap.Config(), **change)
