"""From a command line to a folder: presets, overrides, reports and their page."""

import contextlib
import html
import json
import re

import jax
import matplotlib.figure
import numpy as np
import PIL.Image
import pytest
from rich.table import Table

from experiments.frame import Check, Claim, Report, Run, expect, experiment, largest
from experiments.frame.command_line import parse, swept
from experiments.frame.exits import run_program
from experiments.frame.report import page
from tests.experiments import tiny
from tests.experiments.tiny import PRESETS


def launch_of(tmp_path, *args):
    return parse(PRESETS, ["--output", str(tmp_path), *args])


def test_the_preset_is_that_of_the_device_and_options_override_it(monkeypatch):
    assert (parse(PRESETS, []).preset, parse(PRESETS, []).name) == ("cpu", "tiny")
    launch = parse(PRESETS, ["--part.optimizer.b1", "0.5", "--prompts=7"])
    assert (launch.config.prompts, launch.config.part.optimizer.b1) == (7, 0.5)
    assert not launch.unmodified
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert parse(PRESETS, []).preset == "gpu"
    assert parse({"quick": PRESETS["cpu"]}, []).preset == "quick"


def test_a_sweep_is_a_line_for_each_value():
    assert swept(["--prompts", "7"]) == [["--prompts", "7"]]
    for words in (["--sweep", "part.size=1,2"], ["--sweep=part.size=1,2"]):
        lines = swept(["--quiet", *words, "--prompts", "7"])
        assert lines == [
            ["--quiet", "--prompts", "7", "--part.size", value] for value in "12"
        ]
    for words in (["--sweep"], ["--sweep", "size"], ["--sweep", "size=1,,2"]):
        with pytest.raises(ValueError, match="^sweep: expected OPTION=VALUE,VALUE"):
            swept(words)
    with pytest.raises(ValueError, match="^sweep: expected one option to vary, got 2"):
        swept(["--sweep", "size=1,2", "--sweep=other=3"])


def test_a_sweep_is_checked_before_its_first_run(tmp_path):
    def check(config, flags):
        expect(config.prompts < 8, "prompts", "fewer than 8", config.prompts)

    marked = experiment(PRESETS, tiny.Switches(), check)
    main = marked(lambda config, run, flags: Report({}))
    with pytest.raises(ValueError, match="^prompts: expected fewer than 8, got 9$"):
        main(["--output", str(tmp_path / "x"), "--sweep", "prompts=7,9"])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--prompt", "7"], "--prompt: unknown option; did you mean --prompts?"),
        (["--zzz"], "--zzz: unknown option (see --help)"),
        (["--prompts", "many"], "--prompts: expected a number, got many"),
        (["--resume"], "--resume: expected a value, got none"),
        (["--slurm.nodes", "x"], "--slurm.nodes: expected a number, got x"),
        (["--slurm.mem-gb", "x"], "--slurm.mem-gb: expected a number, got x"),
        (["--preset", "big"], "preset: expected one of cpu, gpu, got big"),
        (["--output", ""], "output: expected a folder, got an empty path"),
        (["--output", "runs[v2]"], "output: expected a path without [ and ], got "),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    args, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run_program(lambda: tiny.main(args))
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="output: expected a folder that can be wr"):
        tiny.main(["--output", str(tmp_path / "file")])


@pytest.mark.parametrize(
    ("args", "verdict", "status"),
    [
        ([], "passed", 0),
        (["--error", "0.3"], "failed", 1),
        (["--preset", "gpu", "--error", "nan"], "failed", 1),
        (["--prompts", "7", "--error", "0.3"], "not applicable", 0),
    ],
)
def test_checks_decide_for_unmodified_presets_alone(
    args, verdict, status, tmp_path, capsys
):
    line = ["--output", str(tmp_path), *args]
    with contextlib.nullcontext() if not status else pytest.raises(SystemExit) as ended:
        run_program(lambda: tiny.main(line))
    assert not status or ended.value.code == status
    (path,) = tmp_path.glob("tiny/*/result.json")
    result = json.loads(path.read_text())
    about = {"schema_version": 1, "experiment": "tiny", "interval_level": 0.9}
    assert about.items() <= result.items()
    assert result["verdict"] == verdict
    assert result["prompts"] == 64 if "gpu" in args else 7 if "7" in args else 8
    shown = " ".join(capsys.readouterr().out.split())
    assert "tiny, preset " in shown
    assert "An experiment that trains nothing, for tests of the frame, on" in shown
    word = {"passed": "pass", "failed": "FAIL"}.get(verdict, verdict)
    assert f"{word} error: " in shown
    bare = verdict == "not applicable"
    assert ("checks are made for unmodified presets" in shown) is bare
    assert f"to read it: {path.parent / 'report.html'}" in shown
    said = {"passed": "All checks passed.", "failed": "A check failed."}
    assert said.get(verdict, "belong to another config") in words_of(path.parent)
    timing = json.loads(path.with_name("timing.json").read_text())
    assert list(timing["seconds"]) == ["training"]


def test_a_quiet_run_prints_warnings_and_its_report_only(tmp_path, capsys):
    tiny.main(["--output", str(tmp_path), "--quiet"])
    (folder,) = (tmp_path / "tiny").iterdir()
    Run(folder, launch_of(tmp_path, "--quiet")).warn("a checkpoint is damaged")
    assert capsys.readouterr().out.splitlines() == [
        "pass  error: 0.1 <= 0.2 (+- 0)",
        "warning: a checkpoint is damaged",
    ]


def test_a_number_that_is_none_fails_its_check():
    assert largest([1, 3.0, np.float64(2)]) == 3
    worst = largest(x for x in (0.0, float("nan"), 1.0))
    assert not Check("largest of some", worst, 5.0, "<=").passed
    assert not Check("of some", worst, 0.0, "within", 5.0).passed


def drawn():
    figure = matplotlib.figure.Figure((2, 1.5))
    figure.add_subplot(title=r"Errors of $\|\beta^*\|$").plot([0, 1], label="line")
    return figure


def words_of(folder):
    """The text of a run's page."""
    text = (folder / "report.html").read_text().partition("</style>")[2]
    return html.unescape(re.sub("<[^>]*>", "", text))


def test_a_report_is_printed_stored_and_shown_on_a_page_without_other_files(
    tmp_path, capsys
):
    table = Table("k", "error <b>", title="errors")
    table.add_row("1", "[green]0.25[/]")
    found = Report(
        {"errors": [0.25]},
        checks=[Check("error", 0.25, 0.2, "<="), Check("zero", 0.0, 0.1, "within", 1)],
        tables=[table, "one line"],
        claims=[Claim(claim="it falls", measured="0.3", held=np.bool(True))],
        claims_title="said",
        findings=["a < b"],
        figures={"errors.png": drawn()},
        axes={"errors": ["examples k, from 1"]},
    )
    run = Run.begin(launch_of(tmp_path, "--prompts", "7"))
    result = run.finish(found, steps=3)
    assert result == json.loads((run.folder / "result.json").read_text())
    row = {"columns": ["k", "error <b>"], "rows": [["1", "0.25"]]}
    claim = {"claim": "it falls", "measured": "0.3", "held": True, "expected": ""}
    expected = {"passed": False, "findings": ["a < b"], "errors": [0.25], "steps": 3}
    expected |= {"tables": [{"title": "errors", **row, "caption": ""}, "one line"]}
    expected |= {"axes": {"errors": ["examples k, from 1"]}, "claims": [claim]}
    assert expected.items() <= result.items()
    assert [check["passed"] for check in result["checks"]] == [False, True]
    out, text = capsys.readouterr().out, (run.folder / "report.html").read_text()
    checks = ["error: 0.25 <= 0.2 (+- 0)", "zero: 0 within 0.1 (+- 1)"]
    of = "said (for a config that is no preset)"
    parts = ["not applicable", of, "it falls", "- a < b", "Errors of ||beta^*||"]
    config = ["fields differ from the preset", "prompts78", "Reproduce"]
    printed = ["error <b>", "0.25", "one line", "- a < b", "said", "it falls", *checks]
    paged = [*parts, *checks, "error <b>", "10.25", "one line", *config]
    for shown, order in ((out, printed), (words_of(run.folder), paged)):
        places = [shown.find(part) for part in order]
        assert -1 not in places, order[places.index(-1)]
        assert places == sorted(places)
    command = json.loads((run.folder / "config.json").read_text())["command"]
    assert command.startswith("python -m experiments.tiny --preset cpu --output ")
    again = f"python -m experiments.tiny --resume {run.folder}"
    for part in (command, again, "belong to another config"):
        assert part in words_of(run.folder), part
    assert text.count("<tr class=marked>") == 1
    assert "docs/experiments" not in text
    links = re.findall(r'(?:src|href)="(?!data:)([^"]*)', text)
    assert links == ["result.json", "config.json"]


def test_a_wheel_tells_the_command_that_it_has(tmp_path, monkeypatch):
    launch = launch_of(tmp_path)
    assert launch.line("--quiet") == "python -m experiments.tiny --quiet"
    monkeypatch.setattr("experiments.IN_WHEEL", True)
    assert launch.line("--quiet") == "icltheory run tiny --quiet"


def test_a_page_has_small_figures_as_vectors_and_names_the_documentation(tmp_path):
    launch = launch_of(tmp_path)
    run = Run.begin(launch)
    run.finish(Report({}, figures={"many_errors.png": drawn()}))
    text = (run.folder / "report.html").read_text()
    assert "data:image/svg+xml;base64," in text
    assert "data:image/png" not in text
    assert re.search(r"\b0 of \d+ fields differ from the preset", text)
    (run.folder / "many_errors.svg").write_text("x" * 400_000)
    path = run.folder / "config.json"
    path.write_text(path.read_text().replace('"tiny"', '"garg_linear"'))
    text = page(run.folder, Report({}), launch)
    assert "data:image/png;base64," in text
    assert "<figcaption>many errors</figcaption>" in text
    assert "<code>docs/experiments/garg_linear.md</code>" in text


def test_a_report_without_checks_passes_and_has_no_empty_parts():
    assert Report({"x": 1}).as_dict() == {"passed": True, "checks": [], "x": 1}
    with pytest.raises(ValueError, match=r"figures: expected .* got 'curve'"):
        Report({}, figures={"curve": None})


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


def test_results_are_strict_json(tmp_path):
    numbers = {"x": [float("nan"), 1.5], "y": (np.float64("inf"), "z")}
    Run(tmp_path).write_json("a.json", numbers)
    text = (tmp_path / "a.json").read_text()
    found = json.loads(text, parse_constant=pytest.fail)
    assert found == {"x": [None, 1.5], "y": ["Infinity", "z"]}


def test_metrics_are_appended_and_replaced(tmp_path):
    run = Run(tmp_path)
    run.log({"step": 1})
    run.log({"step": 2})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    run.reset_metrics([{"step": 1}])
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'
