"""What all experiments share: configs, run folders, reports and checks."""

import dataclasses
import json
import math
import re

import jax
import matplotlib.figure
import numpy as np
import PIL.Image
import pytest
from rich.table import Table

from experiments import cot, garg_linear, real_model
from experiments._frame.command_line import parse
from experiments._frame.program import run_program
from experiments._frame.report import Check, Claim, Report, largest
from experiments._frame.run import Run


def test_an_interrupted_run_ends_in_one_line(capsys):
    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run_program(stopped)
    assert ended.value.code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "interrupted; no run was begun"


def test_a_resume_with_another_config_is_refused(tmp_path):
    config = garg_linear.PRESETS["cpu"]
    run = Run.create(tmp_path, "garg_linear", "cpu", config)
    for change, name in (("--width", "32"), ("--preset", "gpu")):
        args = ["--resume", str(run.folder), change, name]
        with pytest.raises(ValueError, match="resume: expected the options of .* got"):
            parse(garg_linear.PRESETS, args)
    assert sorted(path.name for path in run.folder.iterdir()) == ["config.json"]


def resumed(folder, experiment=garg_linear):
    """What the command line makes of a run folder."""
    args = ["--resume", str(folder)]
    return parse(experiment.PRESETS, args).config


def test_fields_that_came_later_have_their_defaults_and_are_named(tmp_path, capsys):
    config = garg_linear.PRESETS["cpu"]
    run = Run.create(tmp_path, "garg_linear", "cpu", config)
    path = run.folder / "config.json"
    stored = json.loads(path.read_text())
    del stored["config"]["targets"], stored["config"]["optimizer"]["average"]
    path.write_text(json.dumps(stored))
    assert resumed(run.folder) == config
    err = capsys.readouterr().err
    assert "config.json lacks newer fields: " in err
    assert "targets = labels" in err
    assert "optimizer.average = 0.0" in err
    for part, name, at in (
        (stored["config"], "dim", "lacks fields without a default: dim"),
        (stored["config"]["curriculum"]["dims"], "end", "default: curriculum.dims.end"),
    ):
        kept = part.pop(name)
        path.write_text(json.dumps(stored))
        with pytest.raises(ValueError, match=f"^resume: .*{at}"):
            resumed(run.folder)
        part[name] = kept
    stored["config"]["optimizer"]["lookahead"] = 3
    path.write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"unknown fields in .*: optimizer\.lookahead"):
        resumed(run.folder)


def test_the_run_of_another_experiment_is_told_by_its_name(tmp_path):
    run = Run.create(tmp_path, "cot", "cpu", cot.PRESETS["cpu"])
    assert resumed(run.folder, cot) == cot.PRESETS["cpu"]
    with pytest.raises(ValueError, match="it is a run of cot, not of garg_linear"):
        resumed(run.folder)


def test_a_number_that_is_none_fails_its_check():
    assert largest([1, 3.0, np.float64(2)]) == 3
    worst = largest(x for x in (0.0, float("nan"), 1.0))
    assert not Check("largest of some", worst, 5.0, "<=").passed
    assert not Check("of some", worst, 0.0, "within", 5.0).passed


def test_a_path_where_checkpoints_could_not_be_read_again_is_refused(tmp_path):
    config = garg_linear.PRESETS["cpu"]
    for name in ("runs[v2]", "[red]/b"):
        with pytest.raises(ValueError, match=r"^output: expected a path without \["):
            Run.create(tmp_path / name, "garg_linear", "cpu", config)
    assert not list(tmp_path.iterdir())


def test_results_are_strict_json_and_configs_come_back(tmp_path):
    run = Run(tmp_path)
    run.write_json("a.json", {"x": [float("nan"), 1.5], "y": (np.float64("inf"), "z")})
    text = (tmp_path / "a.json").read_text()
    found = json.loads(text, parse_constant=pytest.fail)
    assert found == {"x": [None, 1.5], "y": ["Infinity", "z"]}
    config = dataclasses.replace(garg_linear.PRESETS["cpu"], ridge_penalty=math.inf)
    run = Run.create(tmp_path, "garg_linear", "cpu", config)
    assert resumed(run.folder) == config


def test_a_stored_config_comes_back_as_it_was(tmp_path):
    for name, preset in garg_linear.PRESETS.items():
        run = Run.create(tmp_path, "garg_linear", name, preset)
        assert resumed(run.folder) == preset


def drawn():
    """A small figure."""
    figure = matplotlib.figure.Figure((2, 1.5))
    figure.add_subplot().plot([0, 1], label="line")
    return figure


def test_figures_are_small_pngs_and_reproducible_svgs(tmp_path):
    run = Run(tmp_path)
    path = run.save_figure("errors.png", drawn())
    with PIL.Image.open(path) as image:
        assert (image.mode, image.format) == ("P", "PNG")
    first = (tmp_path / "errors.svg").read_text()
    assert "<svg" in first
    assert "dc:date" not in first
    run.save_figure("errors.png", drawn())
    assert (tmp_path / "errors.svg").read_text() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["errors.png", "errors.svg"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("x")])
def test_errors_are_raised_whole_if_the_user_asks_for_it(monkeypatch, error):
    def stopped():
        raise error

    monkeypatch.setenv("ICLTHEORY_TRACEBACK", "1")
    with pytest.raises(type(error) if isinstance(error, ValueError) else error):
        run_program(stopped)


def test_a_finished_run_holds_its_report_and_prints_it(tmp_path, capsys):
    table = Table("k", "error")
    table.add_row("1", "0.25")
    found = Report(
        {"errors": [0.25]},
        checks=[Check("error", 0.25, 0.2, "<="), Check("zero", 0.0, 0.0, "within")],
        tables=[table, "one line"],
        claims=[Claim(claim="it falls", measured="0.25", held=np.bool(True))],
        claims_title="said",
        findings=["it is small"],
        figures={"errors.png": drawn()},
    )
    run = Run(tmp_path)
    with run.phase("training"):
        pass
    written = run.finish(found, steps=3)
    assert written == json.loads((tmp_path / "result.json").read_text())
    assert written["passed"] is False
    assert [check["passed"] for check in written["checks"]] == [False, True]
    claim = {"claim": "it falls", "measured": "0.25", "held": True, "expected": ""}
    assert written["claims"] == [claim]
    assert (written["findings"], written["errors"]) == (["it is small"], [0.25])
    assert written["steps"] == 3
    timing = json.loads((tmp_path / "timing.json").read_text())
    assert list(timing["seconds"]) == ["training"]
    assert (tmp_path / "errors.png").is_file()
    out = capsys.readouterr().out
    shown = ["training: ", "0.25", "one line", "- it is small", "said", "it falls"]
    places = [out.index(text) for text in [*shown, "FAIL  error", "pass  zero"]]
    assert places == sorted(places)


def test_a_check_without_a_number_is_reported(tmp_path):
    check = Check("slope", float("nan"), -0.7, "within", 0.2)
    run = Run.begin(launch_of(tmp_path, "--prompts", "7"), "little")
    run.finish(Report({}, checks=[check]))
    assert "measured nan." in (run.folder / "report.html").read_text()


def test_the_page_of_a_run_needs_no_other_file_and_says_what_was_asked(tmp_path):
    table = Table("k", "error <b>", title="errors")
    table.add_row("1", "[green]0.25[/]")
    found = Report(
        {"errors": [0.25]},
        checks=[Check("error", 0.25, 0.2, "<="), Check("zero", 0.0, 0.1, "within", 1)],
        tables=[table, "one line"],
        claims=[Claim(claim="it falls", measured="0.25", held=False)],
        findings=["a < b"],
        figures={"errors.png": drawn()},
        axes={"errors": ["examples k, from 1"]},
    )
    launch = launch_of(tmp_path, "--prompts", "7")
    run = Run.begin(launch, "errors")
    result = run.finish(found)
    row = {"columns": ["k", "error <b>"], "rows": [["1", "0.25"]]}
    assert result["tables"] == [{"title": "errors", **row, "caption": ""}, "one line"]
    assert result["axes"] == {"errors": ["examples k, from 1"]}
    text = (run.folder / "report.html").read_text()
    command = "python -m experiments.cot --preset cpu --output"
    assert command in text
    assert "--prompts 7" in text
    assert json.loads((run.folder / "config.json").read_text())["command"] in text
    for part in (
        "belong to another config",
        "error: expected at most 0.2, measured 0.25.",
        "zero: expected a distance of at most 1 from 0.1, measured 0.",
        "<th>error &lt;b&gt;</th>",
        "<td>0.25</td>",
        "a &lt; b",
        "<td>prompts</td><td>7</td>",
        "data:image/png;base64,",
    ):
        assert part in text, part
    assert not re.search(r'(src|href)="(?!data:)', text)


def launch_of(tmp_path, *args):
    """What a command line that writes below a folder asks for."""
    return parse(cot.PRESETS, ["--output", str(tmp_path), *args])


@pytest.mark.parametrize(
    ("args", "measured", "verdict", "status"),
    [
        ([], 0.1, "passed", 0),
        ([], 0.3, "failed", 1),
        (["--preset", "cpu"], 0.3, "failed", 1),
        (["--prompts", "7"], 0.3, "not applicable", 0),
    ],
)
def test_checks_decide_for_unmodified_presets_alone(
    args, measured, verdict, status, tmp_path, capsys
):
    check = Check("error", measured, 0.2, "<=")
    found = Report({"x": 1}, checks=[check], interval_level=0.9)

    def main():
        return Run.begin(launch_of(tmp_path, *args), "little").finish(found)

    if status:
        with pytest.raises(SystemExit) as ended:
            run_program(main)
        assert ended.value.code == status
    else:
        run_program(main)
    (path,) = tmp_path.glob("cot/*/result.json")
    written = json.loads(path.read_text())
    about = {
        "schema_version": 1,
        "experiment": "cot",
        "verdict": verdict,
        "interval_level": 0.9,
    }
    checks = {"passed": check.passed, "checks": [check.as_dict()]}
    assert written == {**about, **checks, "x": 1}
    words = {"passed": "pass  error", "failed": "FAIL  error"}
    shown = capsys.readouterr().out
    assert words.get(verdict, f"{verdict}  error") in shown
    # The page says "failed" of an unmodified preset alone.
    page = (path.parent / "report.html").read_text()
    marks = [mark for mark in ("passed", "failed") if f'<span class="{mark}">' in page]
    assert marks == [verdict] * (verdict != "not applicable")
    assert ("checks are made for unmodified presets" in shown) is (not marks)
    assert f"to read it: {path.parent / 'report.html'}" in " ".join(shown.split())


def test_a_continued_run_of_a_preset_is_checked(tmp_path):
    for args, unmodified in (([], True), (["--prompts", "7"], False)):
        folder = Run.begin(launch_of(tmp_path, *args), "little").folder
        again = parse(cot.PRESETS, ["--resume", str(folder)])
        assert again.unmodified is unmodified


def test_a_quiet_run_prints_warnings_and_its_report_only(tmp_path, capsys):
    run = Run.begin(launch_of(tmp_path, "--quiet"), "little")
    with run.phase("training"):
        run.console.print("of no interest")
    run.warn("a checkpoint is damaged")
    run.finish(Report({}, checks=[Check("x", 1, 2, "<=")], tables=["a table"]))
    assert capsys.readouterr().out.splitlines() == [
        "warning: a checkpoint is damaged",
        "a table",
        "pass  x: 1 <= 2 (+- 0)",
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--prompt", "7"],
            "--prompt: unknown option; did you mean ",
        ),
        (["--zzz"], "--zzz: unknown option (see --help)"),
        (["--prompts", "many"], "--prompts: expected a number, got many"),
        (["--resume"], "--resume: expected a value, got none"),
    ],
)
def test_a_mistyped_option_is_told_with_the_nearest(args, message):
    with pytest.raises(ValueError, match="^--") as caught:
        parse(cot.PRESETS, args)
    (line,) = str(caught.value).splitlines()
    assert message in line
    assert ("--prompts?" in line) is ("did you mean" in message)


def test_a_report_without_checks_passes_and_has_no_empty_parts(tmp_path):
    assert Report({"x": 1}).as_dict() == {"passed": True, "checks": [], "x": 1}


def test_the_preset_is_that_of_the_device(monkeypatch):
    assert parse(garg_linear.PRESETS, []).preset == "cpu"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert parse(garg_linear.PRESETS, []).preset == "gpu"
    assert parse(real_model.PRESETS, []).preset == "quick"
    assert parse(real_model.PRESETS, []).name == "real_model"


def test_a_figure_needs_the_name_of_a_picture():
    with pytest.raises(ValueError, match=r"figures: expected .* got 'curve'"):
        Report({}, figures={"curve": None})
