"""Rows, budgets, and cases that run, are left out or fail."""

import json
import math

import pytest

from benchmarks import _alone, _suite
from benchmarks._suite import BenchmarkRow, Budget, Case, Skip, each
from tests.benchmarks.examples import row


class Clock:
    """Seconds that pass only when something takes them."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(_suite.time, "monotonic", lambda: self.now)

    def case(self, name, expected, taken=None):
        def measure():
            self.now += expected if taken is None else taken
            return BenchmarkRow(ours_s=1.0)

        return Case(name, expected, measure)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_ratio_and_share_of_the_floor():
    assert (row().ratio, row().share_of_floor) == (10.0, 0.5)
    assert BenchmarkRow(alternative_s=1.0, floor_s=1.0).ratio is None
    assert BenchmarkRow(ours_s=1.0).ratio is None
    assert BenchmarkRow(ours_s=1.0).share_of_floor is None


def test_a_fast_wrong_answer_is_bad_and_so_is_nan():
    assert not row(error=1e-6, tolerance=1e-5).bad
    assert row(error=1e-4, tolerance=1e-5).wrong
    assert row(error=math.nan, tolerance=1e-5).bad
    assert not row(error=1e-4).bad
    assert BenchmarkRow.failed("group", "a", ValueError("b\nc")).note == "ValueError: b"
    assert BenchmarkRow.failed("group", "a", "b").bad
    for left_out in (
        BenchmarkRow.skipped("group", "a", "b"),
        BenchmarkRow.late("group", "a", "b"),
    ):
        assert left_out.left_out
        assert not left_out.bad


def test_a_row_survives_json():
    before = row(error=math.inf, tolerance=1e-5, facts={"compile s": 1.5})
    assert BenchmarkRow(**json.loads(json.dumps(before.as_dict()))) == before


def test_cases_run_in_order_and_take_their_names(clock):
    rows = list(each("g", Budget(9), [clock.case("a", 1), clock.case("b", 1)]))
    assert [(r.group, r.name, r.status) for r in rows] == [
        ("g", "a", "measured"),
        ("g", "b", "measured"),
    ]
    own = BenchmarkRow("other", "own", 1.0)
    assert list(each("g", Budget(), [Case("a", 1, lambda: own)])) == [own]


def test_a_case_that_does_not_fit_is_left_out_and_a_shorter_one_still_runs(clock):
    cases = [clock.case("a", 5), clock.case("b", 6), clock.case("c", 4)]
    rows = list(each("g", Budget(10), cases))
    assert [r.status for r in rows] == ["measured", "late", "measured"]
    assert rows[1].note == "needs about 6 s, 5 s left"


def test_on_a_slow_machine_later_cases_are_expected_to_be_slow(clock):
    rows = list(each("g", Budget(10), [clock.case("a", 2, 6), clock.case("b", 2)]))
    assert [r.status for r in rows] == ["measured", "late"]
    assert rows[1].note == "needs about 6 s, 4 s left"


def test_cases_that_are_not_wanted_leave_no_row(clock):
    budget = Budget(wanted=[["g", "b"], ["h", "a"]])
    rows = list(each("g", budget, [clock.case("a", 1), clock.case("b", 1)]))
    assert [r.name for r in rows] == ["b"]


def test_a_quick_run_measures_the_first_case_whatever_the_time(clock):
    rows = list(each("g", Budget(1, quick=True), [clock.case("a", 5)] * 2))
    assert [r.status for r in rows] == ["measured", "skipped"]
    assert rows[1].note == "quick run"


def test_a_failure_does_not_stop_the_other_cases(clock):
    def broken():
        raise ZeroDivisionError("no")

    def unfit():
        raise Skip("needs two devices")

    def two():
        return [BenchmarkRow(name="x", ours_s=1.0), BenchmarkRow(name="y", ours_s=2.0)]

    cases = [Case("a", 1, broken), Case("b", 1, unfit), Case("c", 1, two)]
    rows = list(each("g", Budget(), cases))
    assert [(r.name, r.status) for r in rows] == [
        ("a", "failed"),
        ("b", "skipped"),
        ("x", "measured"),
        ("y", "measured"),
    ]
    assert rows[0].note == "ZeroDivisionError: no"


def test_alone_a_benchmark_prints_its_table(capsys, tmp_path):
    file = tmp_path / "table.md"
    _alone.main(lambda budget: [row()], ["--quick", "--markdown", str(file)])
    assert "10" in capsys.readouterr().out
    assert "| a | 1 s | NumPy | 10 s | 10 |" in file.read_text()
    with pytest.raises(SystemExit) as stop:
        _alone.main(lambda budget: [row(error=1.0, tolerance=0.5)], [])
    assert stop.value.code == 1
    assert "WRONG" in capsys.readouterr().out


def test_as_part_of_the_suite_it_leaves_rows_up_to_its_failure(tmp_path):
    def measure(budget):
        assert (budget.seconds, budget.quick) == (7.0, False)
        yield row("a")
        raise RuntimeError("late")

    path = tmp_path / "rows"
    _alone.main(measure, ["--rows", str(path), "--budget", "7"])
    rows = [BenchmarkRow(**json.loads(line)) for line in path.read_text().splitlines()]
    assert rows[0] == row("a")
    assert (rows[1].status, rows[1].note) == ("failed", "RuntimeError: late")
