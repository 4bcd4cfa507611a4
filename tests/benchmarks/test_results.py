"""Files of results: kept, compared, and shown in the README."""

import json
from pathlib import Path

import pytest

from benchmarks import _machine, _picture, _results, _table, compare, report
from benchmarks._suite import BenchmarkRow
from experiments.frame.run import cores_usable
from tests.benchmarks.examples import results, row

KEPT = sorted((Path(report.__file__).parent / "results").glob("*.json"))


def test_what_is_stored_is_read_back(tmp_path):
    before = results(row(error=1e-7), BenchmarkRow.failed("g", "b", "c"))
    after = _results.load(_results.save(before, tmp_path / "new"))
    assert after == before
    assert after.title == "Some CPU, 2 cores, 2026-11-22 (Python 3.11.7, jax 0.10.2)"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 0}'])
def test_another_file_is_refused(text, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="results: expected a file written by"):
        _results.load(path)


def test_a_busy_machine_is_told():
    busy = results(**{"load before": [3.25, 1.0, 1.0]})
    assert "3.2 processes" in busy.warning
    assert not results().warning
    assert not results(**{"load before": None}).warning


def test_names_of_machines():
    assert _machine.slug("Intel(R) Xeon(R) Processor, 2 cores") == "intel-xeon-2-cores"
    assert _machine.slug("NVIDIA H200") == "nvidia-h200"
    assert _machine.cpu_name()
    assert cores_usable() >= 1


def verdicts(before, after, tolerance=1.25):
    found = compare.changes(results(*before), results(*after))
    return {change.row.name: change.verdict(tolerance) for change in found}


def test_slower_is_what_also_lost_against_the_alternative_of_its_own_run():
    slower, busier = row(ours=2.0), row(ours=2.0, theirs=20.0, floor=1.0)
    assert verdicts([row()], [slower]) == {"a": "slower"}
    assert verdicts([row()], [busier]) == {"a": ""}
    assert verdicts([slower], [row()]) == {"a": "faster"}
    assert verdicts([row()], [row(ours=1.1)]) == {"a": ""}
    bare = {"theirs": None, "floor": None}
    assert verdicts([row(**bare)], [row(ours=2.0, **bare)]) == {"a": "slower"}


def test_rows_that_came_or_went():
    skipped = BenchmarkRow.skipped("group", "a", "no time")
    assert verdicts([row()], [skipped, row("b")]) == {"a": "left out", "b": "new"}
    assert verdicts([row()], [BenchmarkRow.failed("group", "a", "no")]) == {"a": "gone"}


def test_comparing_files(tmp_path, capsys):
    def stored(name, *rows, **about):
        return str(_results.save(results(*rows, **about), tmp_path / name))

    old, new = stored("old", row()), stored("new", row(ours=2.0))
    assert compare.main([old, old]) == 0
    assert compare.main([old, new]) == 1
    assert compare.main([old, new, "--tolerance", "3"]) == 0
    assert "slower" in capsys.readouterr().out
    other = stored("other", row(), machine={"name": "Another"})
    assert compare.main([old, other]) == 2
    assert (
        "machines: expected results of one machine, got 'Some CPU"
        in capsys.readouterr().err
    )
    assert compare.main([old, other, "--other-machine"]) == 0


def test_numbers_read_well():
    assert _table.number(None) == "-"
    assert _table.number(12345.6) == "12,346"
    assert _table.number(0.012345) == "0.0123"
    assert [_table.duration(s) for s in (1.5, 0.0123, 5e-5, 2e-8, None)] == [
        *("1.5 s", "12.3 ms", "50 us", "20 ns", "-")
    ]
    assert _table.fact("compile s", 1.25) == "compile 1.25 s"
    assert _table.fact("MiB", 20.0) == "20 MiB"
    assert _table.fact("products in TF32:", 1e-3) == "products in TF32: 0.001"


def test_the_table_shows_every_row_and_brackets_as_they_are(capsys):
    rows = [
        row("good", error=1e-7, tolerance=1e-5, facts={"MiB": 3.0}),
        row("bad", error=1e-3, tolerance=1e-5),
        BenchmarkRow.failed("other", "c", "shape [3]"),
    ]
    _table.show(rows, "title")
    out = capsys.readouterr().out
    for text in ("title", "3 MiB", "WRONG, at most 1e-05 allowed", "shape [3]"):
        assert text in out
    text = _table.markdown([*rows, row("d|e")])
    assert "**other**" in text
    assert r"d\|e" in text
    assert "good: 1 s, 10 x NumPy" in map(_table.line, rows)


def test_the_picture_has_a_dot_for_each_ratio_and_each_floor():
    rows = (
        row("a"),
        row("b", floor=None),
        row("c", theirs=None),
        BenchmarkRow.skipped("g", "d", "e"),
    )
    figure = _picture.draw(results(*rows))
    left, right = figure.axes
    ratios, shares = (dots_of(axes) for axes in (left, right))
    assert ratios == pytest.approx([10.0, 10.0])
    assert shares == pytest.approx([0.5, 0.5])
    labels = [tick.get_text() for tick in left.get_yticklabels()]
    assert labels == [f"{rows[0].group}, against NumPy"]
    assert [text.get_text() for text in left.texts] == ["10 x"]
    assert left.get_xscale() == right.get_xscale() == "log"
    assert figure.get_suptitle().startswith("Some CPU, 2 cores, 2026-11-22")
    _picture.draw(results())


def dots_of(axes):
    """Where the dots of an axis are; its line at 1 is none."""
    return [
        x for line in axes.lines if line.get_marker() == "o" for x in line.get_xdata()
    ]


def test_tables_go_between_the_marks_of_the_readme(tmp_path):
    path = _results.save(results(row()), tmp_path)
    text = f"before\n{report.BEGIN.format('old.json')}\n1\n{report.END}\nafter\n"
    found = report.replaced(text, path)
    assert found.startswith(f"before\n{report.BEGIN.format(path.name)}\n")
    assert found.endswith(f"{report.END}\nafter\n")
    assert "| a | 1 s | NumPy | 10 s | 10 | 500 ms | 0.5 |" in found
    assert report.replaced(found, path) == found
    with pytest.raises(ValueError, match="README: expected"):
        report.replaced("nothing", path)


@pytest.mark.skipif(not KEPT, reason="no results are kept")
def test_the_readme_shows_results_that_are_kept_letter_by_letter():
    text = report.README.read_text()
    shown = [path for path in KEPT if report.BEGIN.format(path.name) in text]
    assert shown, "the README names no file in benchmarks/results"
    for path in shown:
        assert report.section(path) in text


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_are_whole_runs_without_failures(path):
    kept = _results.load(path)
    assert path.stem == kept.stem
    assert path.with_suffix(".png").exists()
    assert not [row for row in kept.rows if row.bad]
    command = json.loads(path.read_text())["command"]
    assert "--quick" not in command
    assert "--only" not in command
