"""The experiment on chain of thought: a tiny run, its parts, its figures."""

import json

import numpy as np
import pytest

from experiments import cot
from experiments.cot import drawing, findings, measure, settings, theory
from icltheory import plotting

TINY = [
    *("--preset", "cpu", "--seeds", "0", "1", "--dim", "10", "--train-states", "6"),
    *("--iterations", "4", "--record-every", "2", "--batch-size", "4"),
    *("--train-examples", "5", "--states", "4", "--chain-steps", "2"),
    *("--lengths", "5", "10", "--fractions", "1.0", "--taus", "0.4"),
    *("--rho-of-taus", "0.7", "--rhos", "0.6", "--tau-of-rhos", "0.3"),
    *("--compare-lengths", "11", "21", "--compare-fractions", "1.0"),
    *("--draws", "1", "--prompts", "8", "--compare-prompts", "8"),
    *("--mass-prompts", "4"),
]


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(tmp_path):
    result = cot.main([*TINY, "--output", str(tmp_path)])
    (folder,) = (tmp_path / "cot").iterdir()
    figures = {"lengths.png", "needed.png", "comparison.png", "mechanism.png"}
    files = {"config.json", "result.json", "report.html", "timing.json"}
    assert {
        path.name for path in folder.iterdir() if path.suffix != ".svg"
    } == figures | files
    assert json.loads((folder / "result.json").read_text()) == result
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    for name in ("tau", "tau_o", "B[0, 0]", "inputs with Condition 1", "limit of ICL"):
        assert verdicts[f"slides: {name}"]
    for name in ("slide", "popular answer", "right with .8"):
        assert verdicts[f"{name}, alpha' = 1: any wrong step over bound"]
    assert verdicts["slide, alpha' = 1: votes, first: largest z"]
    assert len(result["sweeps"]) == 5
    assert [part["value"] for part in result["comparison"]] == [
        "slide",
        "popular answer",
        "right with .8",
    ]
    masses = np.array(list(result["attention"].values()))
    assert masses.shape == (4, 2, 3)
    np.testing.assert_allclose(masses.sum(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--seeds", "1"], "seeds: expected at least two seeds, all distinct"),
        (["--lengths", "10", "5"], "lengths: expected ascending from 1, got"),
        (["--compare-lengths", "10"], "compare_lengths: expected odd numbers"),
        (["--prompts", "1"], "prompts: expected at least 2, got 1"),
        (["--rho-of-taus", "0.5"], "rho: expected p1 + p2 <= 1 with"),
        (["--preset", "big"], "preset: expected one of cpu, gpu, paper, got big"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(change, message, refused):
    refused(cot.main, change, message)


def test_lengths_and_slopes_are_read_off():
    errors = [0.4, 0.2, 0.05]
    middle = 20 + 20 * np.log(0.2 / 0.1) / np.log(0.2 / 0.05)
    assert measure.needed_length(errors, (10, 20, 40), 0.1) == pytest.approx(middle)
    assert np.isnan(measure.needed_length([0.05, 0.01], (10, 20), 0.1))
    assert np.isnan(measure.needed_length([0.5, 0.4], (10, 20), 0.1))
    assert findings.slope([1, 2, 4], [8, 2, 0.5]) == pytest.approx(-2)
    assert np.isnan(findings.slope([1, 2], [3, np.nan]))


def test_settings_have_the_tau_and_rho_that_they_are_named_after():
    from icltheory.chain_of_thought import ReasoningTask

    config = cot.PRESETS["cpu"]
    found = settings.sweeps(config)
    assert len(found) == 20
    for setting in found:
        task = ReasoningTask(setting.steps)
        numbers = {
            "tau": float(task.tau),
            "rho": float(task.rho),
            "alpha'": setting.fraction,
        }
        name = setting.group.split(",")[0]
        assert numbers[name] == pytest.approx(setting.value, rel=1e-6)
    proved, asked = findings.predicted(config, settings.TAU, [0.4, 0.8])
    assert proved[0] / proved[1] == pytest.approx(2)
    assert asked[0] / asked[1] == pytest.approx(4)


def test_lines_of_two_states_are_exact_votes():
    setting = settings.ReasoningSetting(
        "comparison", "slide", settings.tasks()["slide"], 1.0
    )
    lines = theory.lines(setting, (1, 11))
    np.testing.assert_allclose(lines.first_votes[0], 0.4, rtol=1e-6)
    np.testing.assert_allclose(lines.direct_votes[0], (0.56 + 0.36) / 2, rtol=1e-6)
    assert lines.icl_limit == 0.5
    assert lines.cot_bound[1] < lines.cot_bound[0]


def test_figures_draw_what_they_are_given():
    lengths, mean = np.array([1, 2, 4]), np.array([0.5, 0.2, 0.0])
    series = [
        drawing.LengthSeries(mean, mean / 10, "dots", 1, "a"),
        drawing.LengthSeries(mean, None, "dashed", 1),
    ]
    panel = drawing.LengthPanel(lengths, series, 0.5)
    kinds = {"dots": "trained", "dashed": "counted"}
    figure = drawing.errors_against_length(
        {"one": panel, "two": panel}, "title", kinds, ylabel="error", floor=0.01
    )
    axes = figure.axes[0]
    measured, zero, *_ = axes.get_lines()
    np.testing.assert_array_equal(measured.get_ydata(), [0.5, 0.2, np.nan])
    assert (zero.get_marker(), zero.get_xydata().tolist()) == ("v", [[4.0, 0.01]])
    assert {text.get_text() for text in axes.texts} == {"a", "limit"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "trained",
        "counted",
        "no error in the test",
    ]
    need = drawing.NeedPanel([1, 2], {"a": [8, 4.0], "b": [4, np.nan]}, {"g": [1, 0.5]})
    figure = drawing.lengths_that_suffice({"x": need}, "title", "examples")
    first, _, guide = figure.axes[0].get_lines()
    np.testing.assert_array_equal(guide.get_ydata(), first.get_ydata())
    masses = {"a": np.array([[0.1, 0.9], [0.3, 0.7]])}
    figure = drawing.attention_along_training([0, 10], masses, {"end": 5.0}, "title")
    np.testing.assert_allclose(figure.axes[0].get_lines()[0].get_ydata(), [0.2, 0.8])
    assert plotting.COLOURS[1] == figure.axes[0].get_lines()[0].get_color()
    many = {str(i): masses["a"] for i in range(9)}
    (axes,) = drawing.attention_along_training([0, 10], many, {}, "title").axes
    assert {text.get_text() for text in axes.texts} == set(many)  # more than colours
