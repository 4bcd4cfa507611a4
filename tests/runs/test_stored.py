"""Stored runs as numbers, and the command ``icltheory``."""

import json
import math

import pytest

from icltheory import runs
from icltheory.__main__ import main
from tests.raising import raises

CONFIG = {"steps": 10, "optimizer": {"name": "muon", "rate": 0.5}}
RESULT = {
    "verdict": "passed",
    "checks": [{"name": "risk", "measured": 0.25}, {"name": "bound", "measured": 2.0}],
    "axes": {"curves.*.*": ["examples k, from 0"]},
    "curves": {"LTB": {"mean": [1.0, 0.5]}, "Bayes": {"mean": [1.0, "Infinity"]}},
    "rows": [{"dim": 2, "gap": 0.1}, {"dim": 5, "gap": None}],
    "dim": 3,
    "sizes": [1, 2],
}


def stored(root, stamp, name="toy", result=RESULT, losses=(), **changes):
    folder = root / name / stamp
    folder.mkdir(parents=True)
    command = f"python -m experiments.{name} --preset cpu --steps 7 --output a/b"
    about = {"experiment": name, "preset": "cpu", "command": command}
    about["config"] = CONFIG | changes
    (folder / "config.json").write_text(json.dumps(about))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "timing.json").write_text(json.dumps({"seconds": {"a": 1, "b": 2}}))
    lines = [json.dumps({"step": i, "loss": loss}) for i, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    return folder


def test_numbers_come_as_columns(tmp_path):
    run = runs.load(stored(tmp_path, "1", losses=(3.0, 2.0)))
    curves = run.columns("curves")
    assert curves == {
        "curve": ["LTB", "LTB", "Bayes", "Bayes"],
        "examples k": [0, 1, 0, 1],
        "mean": [1.0, 0.5, 1.0, math.inf],
    }
    assert run.columns("curves.LTB") == {"index": [0, 1], "mean": [1.0, 0.5]}
    assert run.columns("rows") == {"dim": [2, 5], "gap": [0.1, None]}
    assert run.columns("sizes") == {"sizes": [1, 2]}
    assert run.columns("dim") == {"dim": [3]}
    assert run.columns("metrics") == {"step": [0, 1], "loss": [3.0, 2.0]}
    assert run.measured == {"risk": 0.25, "bound": 2.0}
    assert run.config == {"steps": 10, "optimizer.name": "muon", "optimizer.rate": 0.5}
    assert (run.verdict, run.seconds, run.name) == ("passed", 3, "toy/1")
    with raises(
        "name: expected one of metrics, verdict, checks, axes, curves, rows, dim"
    ):
        run.columns("curve")


def test_rows_of_arrays_are_numbered_by_the_first_axis(tmp_path):
    own, axes = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], ["seed", "record, every 5 steps"]
    result = RESULT | {"attention": {"own": own}, "axes": {"attention.*": axes}}
    run = runs.load(stored(tmp_path, "1", result=result))
    assert run.columns("attention") == {"seed": [0, 1], "own": own}


def test_a_data_frame_of_curves(tmp_path):
    pytest.importorskip("pandas")
    frame = runs.load(stored(tmp_path, "1")).frame("curves", "pandas")
    assert frame.query("curve == 'LTB'")["mean"].tolist() == [1.0, 0.5]


def test_runs_are_found_and_compared(tmp_path):
    first = stored(tmp_path, "1")
    other = RESULT | {"checks": [{"name": "risk", "measured": 0.5}]}
    second = stored(tmp_path, "2", result=other, steps=20)
    stored(tmp_path, "0", name="other", result=None)
    assert [run.name for run in runs.find(tmp_path)] == ["other/0", "toy/1", "toy/2"]
    assert [run.verdict for run in runs.find(tmp_path, "other")] == ["not ended"]
    found = runs.compare(runs.load(first), runs.load(second))
    assert [tuple(row.values()) for row in found] == [
        ("steps", 10, 20),
        ("risk", 0.25, 0.5),
        ("bound", 2.0, None),
    ]


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a run's folder, with config"):
        runs.load(tmp_path)
    folder = stored(tmp_path, "1")
    (folder / "result.json").write_text("{")
    with pytest.raises(ValueError, match=r"result.json: expected JSON, got "):
        runs.load(folder)


def test_the_command_lists_compares_and_indexes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    of_two_seeds = ([5.0, 3.0], [2.0, 2.0])  # their mean is drawn
    for stamp, loss in (("1", of_two_seeds), ("2", ())):
        stored(tmp_path / "runs", stamp, losses=loss, steps=int(stamp))

    def said(*words, status=0):
        assert main(words) == status
        return capsys.readouterr()

    assert said("runs").out.splitlines() == [
        "run    preset and settings  verdict  time  measured",
        "toy/1  cpu --steps 7        passed   3 s   risk: 0.2500, bound: 2.000",
        "toy/2  cpu --steps 7        passed   3 s   risk: 0.2500, bound: 2.000",
    ]
    assert said("runs", "compare", "toy/1", "toy/2").out.splitlines()[1].split() == [
        *("steps", "1", "2"),
    ]
    assert said("runs", "compare", "1", "2") == said(
        "runs", "compare", "toy/1", "toy/2"
    )
    assert said("runs", "index").out.strip() == "runs/index.html"
    page = (tmp_path / "runs" / "index.html").read_text()
    assert page.index("toy/2") < page.index("toy/1")
    assert '<a href="toy/1/report.html">toy/1</a>' in page
    assert page.count('<polyline points="0.0,2.0 120.0,28.0"/>') == 1
    assert "runs: expected compare A B" in said("runs", "compare", status=2).err
    assert "command: expected one of run" in said("walk", status=2).err
    for words in ((), ("-h",), ("runs", "--help"), ("run", "-h"), ("ledger", "-h")):
        assert said(*words).out.startswith("icltheory COMMAND")


def test_a_line_cut_short_and_a_seed_that_diverged_are_left_out(tmp_path):
    folder = stored(tmp_path, "1", losses=([5.0, 3.0], [2.0, None], ["Infinity", 3.0]))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('\n{"step": 3, "lo')
    assert runs.load(folder).columns("metrics")["step"] == [0, 1, 2]
    page = runs.write_index(tmp_path).read_text()
    assert '<polyline points="0.0,2.0 60.0,28.0 120.0,15.0"/>' in page


def test_an_experiment_is_found_by_its_name():
    assert runs.experiment("ledger.formulas").__name__ == "experiments.ledger.formulas"
    with raises("name: expected an experiment, got 'nothing'"):
        runs.experiment("nothing")


def test_runs_of_a_cluster_are_among_them(tmp_path):
    for place in ("", "slurm/toy-5", "slurm/toy-6/0", "slurm/toy-6/1"):
        stored(tmp_path / place, place[-1:] or "9")
    assert [run.name for run in runs.find(tmp_path, "toy")] == [
        *("toy/0", "toy/1", "toy/5", "toy/9")
    ]
    page = runs.write_index(tmp_path).read_text()
    assert 'href="slurm/toy-6/0/toy/0/report.html"' in page


def test_the_command_runs_experiments_and_prints_the_ledger(capsys):
    assert main(["run", "nothing"]) == 2
    assert "'nothing'; known: bound_vs_error, cot, " in capsys.readouterr().err
    assert main(["run", "garg_liner"]) == 2
    assert "'garg_liner'; did you mean garg_linear?" in capsys.readouterr().err
    assert main(["ledger", "zhang", "bayes", "predictor"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["paper", "label", "status", "see", "says"]
    assert any(row.startswith("zhang  Lemma 6.1") for row in rows)
    assert main(["ledger", "yao", "ΔW ≤"]) == 0
    assert not {*"$\\{}"} & {*capsys.readouterr().out}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["icltheory"])
        assert main(["run", "ltb_gap", "--steps", "-1"]) == 2
    assert "steps: expected" in capsys.readouterr().err


def test_records_become_events_of_tensorboard_and_new_ones_are_added(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    folder = stored(tmp_path, "1", losses=(3.0, 2.0))
    lines = [{"step": 5, "model": "a", "loss": [1.0, 0.5]}, {"step": 6, "loss": 0.25}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 7, "lo')
    written = runs.write_tensorboard(tmp_path)
    assert written == {folder: 2}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('ss": 0.125}\n')
    assert runs.write_tensorboard(tmp_path, written) == {folder: 3}
    found = set()
    for path in (folder / "tensorboard").iterdir():
        data, place = path.read_bytes(), 0
        while place < len(data):  # length, its checksum, the event, its checksum
            size = int.from_bytes(data[place : place + 8], "little")
            event = Event.FromString(data[place + 12 : place + 12 + size])
            found |= {(v.tag, event.step, v.simple_value) for v in event.summary.value}
            place += 16 + size
    expected = {("a/loss/0", 5, 1.0), ("a/loss/1", 5, 0.5)}
    assert found == expected | {("loss", 6, 0.25), ("loss", 7, 0.125)}


def test_a_run_that_has_not_ended_is_named_as_such(tmp_path, capsys):
    first, second = (stored(tmp_path, stamp, result=None) for stamp in "12")
    with raises(
        "name: expected 'metrics', since toy/1 has no result.json (it has not "
    ):
        runs.load(first).columns("curves")
    assert main(["runs", "compare", str(first), str(second)]) == 0
    assert "toy/2 has not ended" in capsys.readouterr().out
