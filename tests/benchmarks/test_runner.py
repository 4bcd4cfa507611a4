"""The order of the benchmarks, their shares of the time, and how they may end."""

import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as suite
from benchmarks import _results, _runner
from benchmarks._registry import BENCHMARKS, Expected
from benchmarks._suite import BenchmarkRow
from tests.benchmarks.examples import ABOUT, row


class Launches:
    """Benchmarks that take what they expected, or what the test says."""

    def __init__(self, **taken):
        self.now, self.slots, self.taken = 0.0, [], taken

    def __call__(self, slot):
        self.slots.append(slot)
        self.now += self.taken.get(slot.name, slot.seconds)
        return self.rows(slot)

    def rows(self, slot):
        return [row(slot.name)]

    def run(self, expected, budget, **options):
        options = {"launch": self, "clock": lambda: self.now, **options}
        return _runner.run(expected, budget, say=lambda text: None, **options)


def test_every_registered_benchmark_is_a_module_with_its_seconds():
    folder = Path(suite.__file__).parent
    for name, expected in BENCHMARKS.items():
        assert (folder / f"{name}.py").exists(), name
        assert expected.cpu or expected.gpu, name


def test_on_two_cores_the_suite_is_expected_to_end_within_ten_minutes():
    fitting, _ = _runner.in_order(BENCHMARKS, "cpu")
    assert list(fitting.values()) == sorted(fitting.values())
    assert sum(fitting.values()) <= 600


def test_what_does_not_fit_the_device_is_named():
    chosen = {"a": Expected(9, 1), "b": Expected(None, 1), "c": Expected(3, None)}
    assert _runner.in_order(chosen, "cpu") == ({"c": 3, "a": 9}, ["b"])
    assert _runner.in_order(chosen, "gpu") == ({"a": 1, "b": 1}, ["c"])


def test_the_time_is_shared_as_the_benchmarks_expect():
    launches = Launches()
    rows = launches.run({"a": 10.0, "b": 30.0}, 60, quick=True)
    assert [(s.name, s.seconds, s.quick) for s in launches.slots] == [
        ("a", 15.0, True),
        ("b", 45.0, True),
    ]
    assert [r.name for r in rows] == ["a", "b"]


def test_what_one_leaves_over_goes_to_the_next():
    launches = Launches(a=2.0)
    launches.run({"a": 20.0, "b": 60.0}, 40)
    assert [s.seconds for s in launches.slots] == pytest.approx([10.0, 38.0])
    assert launches.slots[1].limit == pytest.approx(38.0)


def test_without_time_a_benchmark_is_left_out_and_says_so():
    launches = Launches(a=38.0)
    rows = launches.run({"a": 20.0, "b": 60.0}, 40)
    assert [s.name for s in launches.slots] == ["a"]
    assert (rows[1].group, rows[1].status) == ("b", "late")
    assert rows[1].note == "2 s of the budget left"


class Hasty(Launches):
    """Leaves a case of two groups out, until it is asked for them alone."""

    def rows(self, slot):
        second = {pair: row(pair[1], group=pair[0]) for pair in slot.wanted}
        if second or slot.name != "a":
            return list(second.values()) or [row(slot.name)]
        late = [
            BenchmarkRow.late(group, "big", "needs about 9 s") for group in ("g", "h")
        ]
        return [row("small", group="g"), late[0], row("small", group="h"), late[1]]


def test_what_all_leave_over_goes_to_what_had_no_time():
    launches = Hasty(a=5.0, b=5.0)
    rows = launches.run({"a": 30.0, "b": 30.0}, 60)
    assert [(slot.name, slot.wanted) for slot in launches.slots] == [
        *(("a", ()), ("b", ())),
        ("a", (("g", "big"), ("h", "big"))),
    ]
    assert launches.slots[-1].seconds == pytest.approx(50.0)
    found = [(one.group, one.name, one.status) for one in rows]
    assert found[:4] == [
        (group, name, "measured") for group in ("g", "h") for name in ("small", "big")
    ]


def test_rows_are_kept_after_each_benchmark():
    launches, kept = Hasty(a=5.0, b=5.0), []
    rows = launches.run({"a": 30.0, "b": 30.0}, 60, keep=kept.append)
    assert [len(some) for some in kept] == [4, 5, 5]
    assert kept[-1] == rows


def test_a_second_try_needs_time():
    launches = Hasty(a=25.0, b=28.0)
    rows = launches.run({"a": 30.0, "b": 30.0}, 60)
    assert len(launches.slots) == 2
    assert [one.status for one in rows].count("late") == 2


def test_a_program_that_fails_hangs_or_ends_well(tmp_path, capsys):
    def call(code, limit=60.0):
        return _runner.call([sys.executable, "-c", code], tmp_path / "err", limit)

    assert call("pass") == ""
    assert call("raise ValueError('no')") == "exit status 1: ValueError: no"
    assert "Traceback" in capsys.readouterr().err
    assert call("import time; time.sleep(60)", 0.5) == "stopped after 0 s"


def test_a_benchmark_that_cannot_start_is_a_row():
    slot = _runner.Slot("no_such_module", 6.0, 60.0, last=True, quick=True)
    (found,) = _runner.in_process(slot)
    assert (found.group, found.status) == ("no_such_module", "failed")
    assert "no_such_module" in found.note


@pytest.mark.parametrize(("last", "status"), [(True, "late"), (False, "failed")])
def test_stopped_at_the_end_of_the_budget_is_late_and_before_it_a_failure(
    last, status, monkeypatch
):
    monkeypatch.setattr(_runner, "call", lambda *_: "stopped after 9 s")
    (found,) = _runner.in_process(_runner.Slot("flow", 6.0, 9.0, last, quick=False))
    assert (found.status, found.note) == (status, "stopped after 9 s")


def test_half_a_line_is_no_row():
    assert _runner._read('{"group": "g", "na') == []
    assert _runner._read('{"group": "g"}') == [BenchmarkRow("g")]


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.setattr(suite, "ask_machine", lambda: dict(ABOUT))
    rows = []
    monkeypatch.setattr(_runner, "in_process", lambda slot, peaks: rows)
    return rows


def test_the_suite_writes_its_files_and_prints_the_table(launched, tmp_path, capsys):
    launched += [row(), BenchmarkRow.skipped("group", "b", "quick run")]
    argv = ["--only", "flow", "--quick", "--output", str(tmp_path)]
    assert suite.main(argv) == 0
    out = capsys.readouterr().out
    assert "Some CPU, 2 cores" in out
    stem = tmp_path / "some-2-cores-2026-11-22"
    assert stem.with_suffix(".png").stat().st_size > 1000
    stored = _results.load(stem.with_suffix(".json"))
    assert not stored.warning
    assert stored.rows == tuple(launched)
    assert not list(tmp_path.glob(".writing*"))


def test_a_suite_that_is_stopped_leaves_what_it_measured(
    launched, tmp_path, monkeypatch
):
    launched += [row()]
    monkeypatch.setattr(suite, "finish", None)  # it ends here
    with pytest.raises(TypeError):
        suite.main(["--only", "flow", "--output", str(tmp_path)])
    stored = _results.load(tmp_path / "some-2-cores-2026-11-22.json")
    assert stored.rows == tuple(launched)
    assert stored.warning == "; stopped before its end"


@pytest.mark.slow
def test_a_failed_benchmark_makes_the_status_1(launched, tmp_path, capsys):
    launched += [row(), BenchmarkRow.failed("group", "b", "broken")]
    assert suite.main(["--only", "flow", "--output", str(tmp_path)]) == 1
    assert "group: b: FAILED: broken" in capsys.readouterr().err


def test_what_cannot_be_asked_for(capsys):
    assert suite.main(["--only", "nothing"]) == 2
    assert "--only: expected names among trajectory" in capsys.readouterr().err
    assert suite.main(["--cores", "0"]) == 2
    assert "--cores: expected 1 to" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["--output a/b", "--output=a/b"])
def test_a_command_is_kept_without_the_folder_it_wrote_into(given):
    kept = suite.command(["--cores", "2", *given.split(), "--only", "flow"])
    assert kept == "python -m benchmarks --cores 2 --only flow"
