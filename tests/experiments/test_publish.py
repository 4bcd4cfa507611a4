"""What is stored of the default presets, from which the pages take their numbers."""

import dataclasses
import fnmatch
import importlib
import json
import re

import numpy as np
import pytest

from experiments import publish
from experiments.frame.run import small_lm_digest

NAMES = list(publish.sources())
SMALL_LM, SHIPPED = "experiments/small_lm/checkpoint", small_lm_digest()


def stored(name, file="result.json"):
    path = publish.RESULTS / name / file
    assert path.exists(), f"python -m experiments.publish {name} stores it"
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_the_preset_of_today_at_a_clean_revision(name):
    config, result = stored(name, "config.json"), stored(name)
    experiment, preset = publish.sources()[name]
    assert config["preset"] == preset
    assert re.fullmatch("[0-9a-f]{7,40}", config["environment"]["revision"])
    # This run had the sizes as options; they are the preset's since then.
    verdict = "not applicable" if name == "task_diversity_gpu" else "passed"
    assert (result["experiment"], result["verdict"]) == (experiment, verdict)
    assert result["passed"]
    assert all(check["passed"] for check in result["checks"])
    module = importlib.import_module(f"experiments.{experiment}")
    expected = json.loads(json.dumps(dataclasses.asdict(module.PRESETS[preset])))
    # Left out since it had no effect on a CPU, where all of these ran.
    assert set(config["config"]) - set(expected) <= {"kernels"}
    assert config["config"] | expected == config["config"]


def test_numbers_of_the_small_language_model_are_of_the_shipped_weights():
    configs = [stored(name, "config.json") for name in NAMES]
    users = [c for c in configs if f'"{SMALL_LM}"' in json.dumps(c["config"])]
    assert len(users) >= 2
    old = [c["experiment"] for c in users if c["environment"]["small_lm"] != SHIPPED]
    assert old == []


@pytest.mark.parametrize("name", NAMES)
def test_axes_name_every_index_of_arrays_that_exist(name):
    result = stored(name)
    arrays = dict(arrays_of(result, ""))
    for pattern, axes in result.get("axes", {}).items():
        # A bracket of a path stands for itself.
        found = [
            value
            for path, value in arrays.items()
            if fnmatch.fnmatchcase(path, pattern.replace("[", "[[]"))
        ]
        assert found, pattern
        for value in found:
            assert np.ndim(value) == len(axes), pattern


def arrays_of(value, path):
    """Arrays of numbers below a value, by their paths."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from arrays_of(one, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list):
        if value and isinstance(value[0], dict):
            for place, one in enumerate(value):
                yield from arrays_of(one, f"{path}.{place}")
        else:
            yield path, value


@dataclasses.dataclass
class Preset:
    """What runs without running."""

    name: str
    presets: tuple[str, ...] = ("cpu", "gpu")


def a_run(runs, name, started, *, revision="abc", verdict="passed", preset="cpu"):
    folder = runs / name / started
    folder.mkdir(parents=True)
    command = f"python -m experiments.{name} --preset {preset} --output {runs} --quiet"
    about = {"preset": preset, "command": command}
    config = about | {"environment": {"revision": revision}}
    (folder / "config.json").write_text(json.dumps(config))
    result = {"verdict": verdict, "value": 0.1234567890123}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "figure.png").write_bytes(b"picture")
    return folder


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "experiments", lambda: [Preset("one"), Preset("two")])
    monkeypatch.setattr(publish, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(publish, "shown_figures", lambda name: ["figure.png"])
    return tmp_path


def test_the_newest_run_of_the_revision_and_preset_is_taken(elsewhere):
    runs = elsewhere / "runs"
    a_run(runs, "one", "1")
    newest = a_run(runs, "one", "2")
    a_run(runs, "one", "3", revision="abc-dirty")
    a_run(runs, "one", "4", verdict="not applicable")
    a_run(runs, "one", "5", preset="gpu")
    assert publish.finished(runs, "one", "abc") == newest
    assert publish.finished(runs, "one", "other") is None
    assert publish.finished(runs, "two", "abc") is None


def test_results_are_stored_whole_with_six_digits(elsewhere):
    run = a_run(elsewhere / "runs", "one", "1")
    assert publish.store(run, "one") == [""]
    target = publish.RESULTS / "one"
    files = {path.name for path in target.iterdir()}
    assert files == {"config.json", "result.json", "figure.png"}
    assert json.loads((target / "result.json").read_text())["value"] == 0.123457
    command = json.loads((target / "config.json").read_text())["command"]
    assert command == "python -m experiments.one --preset cpu --quiet"
    # A run without the figure of its page leaves what is there.
    (run / "figure.png").unlink()
    with pytest.raises(ValueError, match="^one: expected figure.png, which a page sh"):
        publish.store(run, "one")
    assert (target / "figure.png").read_bytes() == b"picture"
    assert [path.name for path in publish.RESULTS.iterdir()] == ["one"]


def test_a_run_with_the_stored_numbers_replaces_the_figures_alone(elsewhere):
    publish.store(a_run(elsewhere / "runs", "one", "1"), "one")
    target = publish.RESULTS / "one"

    def revision():
        return json.loads((target / "config.json").read_text())["environment"]

    again = a_run(elsewhere / "runs", "one", "2", revision="def")
    (again / "figure.png").write_bytes(b"redrawn")
    assert publish.store(again, "one") == []
    assert (target / "figure.png").read_bytes() == b"redrawn"
    assert revision() == {"revision": "abc"}
    (again / "result.json").write_text('{"verdict": "passed", "value": 0.5}')
    assert publish.store(again, "one") == ["/value"]
    assert json.loads((target / "result.json").read_text())["value"] == 0.5
    assert revision() == {"revision": "def"}


def test_differences_name_paths_and_leave_out_times():
    one = {"a": [1, {"seconds": 2.0}], "checks": [{"name": "seconds", "value": 1}]}
    other = {"a": [1, {"seconds": 3.0}], "checks": [{"name": "seconds", "value": 2}]}
    assert publish.differences(one, other) == []
    assert publish.differences({"a": 1.0}, {"a": 1.0002}) == []
    assert publish.differences({"a": 1.0}, {"a": 1.002}) == ["/a"]
    assert publish.differences({"a": [1, 2]}, {"a": [1, 3]}) == ["/a/1"]
    assert publish.differences({"a": [1, 2]}, {"a": [1]}) == ["/a"]
    assert publish.differences({"a": 1}, {"b": 1}) == [""]


def test_one_failed_run_does_not_keep_the_others_from_being_stored(
    elsewhere, monkeypatch, capsys
):
    runs = elsewhere / "runs"
    monkeypatch.setattr(publish, "_clean_revision", lambda: "abc")
    asked = []

    def run(name, runs):
        asked.append(name)
        if name == "two":
            a_run(runs, name, "1")

    monkeypatch.setattr(publish, "_run", run)
    with pytest.raises(SystemExit):
        publish.main(["--output", str(runs)])
    assert asked == ["one", "two"]
    assert (elsewhere / "results" / "two").is_dir()
    said = capsys.readouterr()
    assert "no finished run below" in said.err
    assert "two differs:" in said.out
    # Only what is missing is run again.
    asked.clear()
    a_run(runs, "one", "2")
    publish.main(["--output", str(runs)])
    assert not asked


def test_further_presets_are_stored_under_names_of_their_own(elsewhere, monkeypatch):
    runs = elsewhere / "runs"
    monkeypatch.setattr(publish, "_FURTHER", {"one": ("gpu",)})
    assert [*publish.sources()] == ["one", "one_gpu", "two"]
    asked = []
    keep = lambda line, check: asked.append(line)  # noqa: E731
    monkeypatch.setattr(publish.subprocess, "run", keep)
    publish._run("one_gpu", runs)
    line = ["-m", "experiments.one", "--preset", "gpu", "--output"]
    assert asked[0][1:] == [*line, str(runs)]
    default, further = a_run(runs, "one", "1"), a_run(runs, "one", "2", preset="gpu")
    assert publish.finished(runs, "one", "abc") == default
    assert publish.finished(runs, "one_gpu", "abc") == further
    publish.store(further, "one_gpu")
    assert (elsewhere / "results" / "one_gpu" / "figure.png").is_file()


def test_unknown_names_are_refused(elsewhere, capsys):
    with pytest.raises(SystemExit):
        publish.main(["three"])
    assert "expected some of ['one', 'two'], got ['three']" in capsys.readouterr().err
