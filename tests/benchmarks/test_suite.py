"""Pairs are timed in turns and compared; the table, the stored results, the README."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import machine, suite, table
from benchmarks.suite import Pair, disagreement, entry, largest_error, measure
from tests.benchmarks.test_cases import Benchmark

STORED = sorted(Path(program.__file__).parent.glob("results/*.json"))
ABOUT = {
    "name": "Some CPU, 2 cores",
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
    "revision": "abc",
    "peaks": {"float32 product GFLOP/s": 100.0},
    "load before": 0.1,
}


@pytest.fixture(autouse=True)
def _no_entries(monkeypatch):
    monkeypatch.setattr(suite, "ENTRIES", [])


def row(name="a", ours=1.0, theirs=10.0, floor=0.5, group="group", **more):
    about = {"alternative": "NumPy", "alternative_s": theirs, "floor_s": floor}
    about |= {"precision": "float32", "error": None, "tolerance": None}
    return entry(group, name, ours, **{**about, "note": "", "facts": {}, **more})


def write(path, *rows, **about):
    stored = {"machine_info": {**ABOUT, **about}, "datetime": "2026-11-22T01:00:00"}
    path.write_text(json.dumps({**stored, "benchmarks": rows}))
    return path


def test_both_sides_take_turns_and_are_scaled(monkeypatch):
    monkeypatch.setattr(suite, "TURNS", 0.0)
    calls = []
    benchmark = Benchmark()
    monkeypatch.setattr(suite, "SHORT", 0.0)
    found = measure(
        benchmark,
        Pair(
            lambda: calls.append("a") or 1.0,
            lambda: calls.append("b") or 1.0,
            "NumPy",
            (1, 100, "prompts"),
            per=2,
            facts={"MiB": 3.0},
            rates={"prompts/s": 4.0},
        ),
    )["extra_info"]
    assert "".join(calls) == "ba" + "a" + 3 * "ba"
    assert benchmark.extra_info == found
    median = benchmark.stats.stats.median
    assert found["facts"]["prompts/s"] == pytest.approx(8.0 / median)
    assert found["facts"]["MiB"] == 3.0
    assert found["note"] == "alternative timed on 1 of 100 prompts"
    assert found["error"] == 0


def test_a_long_alternative_is_called_once_and_a_cold_call_is_not_warmed(monkeypatch):
    monkeypatch.setattr(suite, "SLOW", 0.0)
    calls = []
    pair = Pair(lambda: calls.append("a"), lambda: calls.append("b"), "NumPy")
    found = measure(Benchmark(), pair)["extra_info"]
    assert calls.count("b") == 1
    assert found["alternative_s"] > 0
    assert found["error"] is None
    assert "lower bound" in found["note"]  # it returned None: it was stopped
    calls.clear()
    measure(Benchmark(), Pair(lambda: calls.append("a"), cold=True))
    assert calls == ["a"]


@pytest.mark.parametrize("wrong", [1.1, np.nan])
def test_a_fast_wrong_answer_fails_and_has_a_row(wrong):
    pair = Pair(lambda: wrong, lambda: 1.0, "NumPy", tolerance=1e-5)
    with pytest.raises(AssertionError, match="at most 1e-05, got"):
        measure(Benchmark(), pair)
    assert "WRONG, at most 1e-05 allowed" in table.cells(suite.ENTRIES[0])[-1]


def test_disagreement_is_relative_to_the_largest_value():
    assert disagreement([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert disagreement([1e-3], [0.0]) == 1e-3
    with pytest.raises(ValueError, match="ours: expected shape"):
        disagreement([1.0], [1.0, 2.0])
    exact = {"a": np.array([1.0, np.inf, np.nan]), "b": np.array([2.0])}
    assert largest_error(exact, exact) == 0
    assert largest_error({**exact, "b": np.array([2.5])}, exact) == 0.25
    for wrong in ([1.0, np.inf, 1.0], [np.nan, np.inf, np.nan], [1.0, -np.inf, np.nan]):
        assert largest_error({**exact, "a": np.array(wrong)}, exact) == np.inf


def test_a_floor_is_the_slower_of_operations_and_bytes(monkeypatch):
    peaks = {machine.MEMORY: 0.1, "float32 product GFLOP/s": 1.0}
    monkeypatch.setattr(machine, "PEAKS", peaks)
    assert machine.floor(2e9) == machine.floor(2e9, 1e8) == 2.0
    assert machine.floor(2e9, 5e8) == 5.0
    monkeypatch.setattr(machine, "_products", lambda dtype, precision: 2e9)
    assert machine.floor(2e9, exact=False) == 1.0
    assert machine.describe(0.1)["peaks"] == peaks
    assert len(peaks) == 3


def test_numbers_read_well():
    assert [table.number(x) for x in (None, 12345.6, 0.012345)] == [
        *("-", "12,346", "0.0123")
    ]
    assert [table.duration(s) for s in (1.5, 0.0123, 5e-5, 2e-8, None)] == [
        *("1.5 s", "12.3 ms", "50 us", "20 ns", "-")
    ]
    facts = table.fact("compile s", 1.25), table.fact("products in TF32:", 1e-3)
    assert facts == ("compile 1.25 s", "products in TF32: 0.001")


def test_the_table_has_ratio_share_of_floor_and_the_ratio_before():
    rows = [row(facts={"MiB": 3.0}), row("b|c", group="other", note="shape [3]", per=2)]
    assert table.cells(rows[0])[1:7] == [
        *("1 s", "NumPy", "10 s", "10", "500 ms", "0.5")
    ]
    assert table.ratio(rows[1]) == 20
    assert table.ratio(row(theirs=None)) is table.ratio(row(ours=None)) is None
    assert r"| b\|c | 500 ms | NumPy | 10 s | 20 | 500 ms | 1 |" in table.markdown(rows)
    both = table.markdown(rows, before=[row(ours=4.0)])
    assert "| a | 1 s | NumPy | 10 s | 10 | 2.5 | 500 ms | 0.5 |" in both
    assert r"| b\|c | 500 ms | NumPy | 10 s | 20 | - | 500 ms | 1 |" in both
    assert both.count("| before |") == 2


def test_the_command_prints_a_file_or_refuses_it(tmp_path, capsys):
    path = write(tmp_path / "new.json", row(), **{"load before": 3.25})
    assert program.main([str(path), "--before", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Some CPU, 2 cores, 2026-11-22 (Python 3.11.7, jax 0.10.2)" in out
    assert "3.2 processes" in out
    for text in ("", "[]", "{}", '{"benchmarks": [{}]}'):
        path.write_text(text)
        assert program.main([str(path)]) == 2
    assert "results: expected a file written by pytest" in capsys.readouterr().err


def test_tables_go_between_the_marks_of_the_readme(tmp_path, monkeypatch):
    path, readme = write(tmp_path / "new.json", row()), tmp_path / "README.md"
    readme.write_text(f"1\n{program.BEGIN.format('old.json')}\n2\n{program.END}\n3\n")
    monkeypatch.setattr(program, "README", readme)
    for _ in range(2):
        program.main([str(path), "--readme"])
        assert readme.read_text() == f"1\n{program.section(path)}\n3\n"


def test_the_readme_shows_the_stored_results_letter_by_letter():
    shown = [p for p in STORED if program.section(p) in program.README.read_text()]
    assert shown == STORED != []
    for path in STORED:
        for one in table.load(path)["benchmarks"]:
            assert "WRONG" not in table.cells(one)[-1]


@pytest.mark.slow
def test_a_quick_run_takes_the_first_size_of_every_case():
    pytest.importorskip("pytest_benchmark")
    words = [sys.executable, "-m", "pytest", "benchmarks", "--quick", "--collect-only"]
    root = Path(program.__file__).parents[1]
    found = subprocess.run([*words, "-qq"], cwd=root, capture_output=True, text=True)
    cases = [line.split("[")[0] for line in found.stdout.splitlines() if "::" in line]
    assert len(cases) == len(set(cases)) > 15
    assert not [case for case in cases if "transformers" in case]  # marked long
