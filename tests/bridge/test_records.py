import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from icltheory.bridge.records import Records, config_hash
from tests.bridge.evaluate_slowly import CONFIG, GRID, evaluate, run

ROOT = Path(__file__).parents[2]
KEYS = ("example", "rate")


def raises(message):
    return pytest.raises(ValueError, match=re.escape(message))


def record(example, rate=0.5, prediction=1):
    return {"example": example, "rate": rate, "prediction": prediction}


def opened(path, **options):
    return Records(path, KEYS, config={"seed": 0}, **options)


def filled(path, count=5):
    records = opened(path)
    for example in range(count):
        records.append([record(example)])
    return records


def same_tables(one, other):
    for field in ("prediction", "scores"):
        for a, b in zip(one.table(field), other.table(field), strict=True):
            np.testing.assert_array_equal(a, b)


def started(*arguments):
    command = [sys.executable, "-m", "tests.bridge.evaluate_slowly"]
    return subprocess.Popen([*command, *map(str, arguments)], cwd=ROOT)


def logged(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
def test_killed_in_the_middle_it_resumes_and_evaluates_nothing_twice(tmp_path, torn):
    path, first, second = (tmp_path / n for n in ("records.jsonl", "first", "second"))
    process = started(path, first, *([60] if torn else []))
    if not torn:
        deadline = time.monotonic() + 60
        while len(path.read_bytes().splitlines() if path.exists() else ()) < 41:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    kept = {str(key) for key in Records(path, config=CONFIG, read_only=True).done()}
    assert 40 <= len(kept) < len(GRID)
    resumed = run(path, second)
    assert any("unfinished last line" in note for note in resumed.notes) == torn
    # Whatever was recorded is not evaluated again; at most one batch was lost
    assert kept <= set(logged(first))
    assert sorted(logged(second)) == sorted({str(key) for key in GRID} - kept)
    assert len(set(logged(first)) & set(logged(second))) <= 4
    whole = run(tmp_path / "whole.jsonl", tmp_path / "third")
    same_tables(resumed, whole)
    same_tables(Records(path, config=CONFIG, read_only=True), whole)


@pytest.mark.slow
def test_cut_anywhere_it_resumes_to_the_same_table(tmp_path):
    whole = filled(tmp_path / "whole.jsonl")
    content, cut = whole.path.read_bytes(), tmp_path / "cut.jsonl"
    for length in range(len(content)):
        cut.write_bytes(content[:length])
        records = opened(cut)
        lines = content[:length].count(b"\n")
        assert len(records) == max(lines - 1, 0)
        assert len(records.notes) == (not content[:length].endswith(b"\n")) * bool(
            length
        )
        todo = [i for i in range(5) if (i, 0.5) not in records]
        records.append(record(i) for i in todo)
        np.testing.assert_array_equal(records.table().values, whole.table().values)
        assert cut.read_bytes() == content


def test_table_has_the_shape_of_the_grid_whatever_the_order(tmp_path):
    records = Records(tmp_path / "a.jsonl", config=CONFIG)
    for i in np.random.default_rng(0).permutation(len(GRID)):
        line = dict(zip(records.key_fields, GRID[i], strict=True))
        records.append([line | evaluate(GRID[i])])
    table = Records(tmp_path / "a.jsonl", config=CONFIG).table("scores")
    assert table.rows == tuple((l, "mlp", r) for l in (0, 3) for r in (0, 0.1, 0.995))
    assert table.columns == tuple(range(40))
    assert table.values.shape == (6, 40, 2)
    assert table.present.all()
    for (layer, module, rate), row in zip(table.rows, table.values, strict=True):
        for example, scores in zip(table.columns, row, strict=True):
            wanted = evaluate((example, layer, module, rate))["scores"]
            np.testing.assert_array_equal(scores, wanted)
    predictions = records.table("prediction", layer=3)
    assert predictions.rows == tuple((3, "mlp", rate) for rate in (0, 0.1, 0.995))
    assert predictions.values.dtype == np.int64
    assert predictions.values[0].tolist() == [
        -1 if example == 7 else example % 2 for example in range(40)
    ]


def test_what_is_missing_is_marked(tmp_path):
    records = opened(tmp_path / "a.jsonl")
    records.append([record(0, 0.1), record(1, 0.5, 0)])
    table = records.table()
    assert table.values.tolist() == [[1, -1], [-1, 0]]
    assert table.present.tolist() == [[True, False], [False, True]]
    assert records.done() == {(0, 0.1), (1, 0.5)}
    assert records.done(rate=0.1) == {(0, 0.1)}
    assert (1, 0.5) in records
    assert (1, 0.1) not in records


def test_numbers_come_back_as_they_went_in(tmp_path):
    values = [0.1, 1 / 3, 5e-324, np.pi * 1e300, np.nan, np.inf, -np.inf, -0.0]
    records = opened(tmp_path / "a.jsonl")
    records.append(
        [
            {"example": np.int64(i), "rate": np.float64(0.1), "score": value}
            for i, value in enumerate(values)
        ]
    )
    found = opened(tmp_path / "a.jsonl").table("score").values[0]
    np.testing.assert_array_equal(found, values)
    assert "NaN" not in records.path.read_text()


def test_another_config_is_refused(tmp_path):
    filled(tmp_path / "a.jsonl")
    with raises(
        "a.jsonl, line 1: expected records of this config, got those of another: "
    ):
        Records(tmp_path / "a.jsonl", KEYS, config={"seed": 1})
    with raises("config.seed is 0, not 1"):
        Records(tmp_path / "a.jsonl", KEYS, config={"seed": 1})
    with raises("config.task is absent"):
        Records(tmp_path / "a.jsonl", KEYS, config={"seed": 0, "task": {"shots": 4}})
    with raises("line 1: expected key fields ('example',), got ('example', 'rate')"):
        Records(tmp_path / "a.jsonl", ("example",))
    assert Records(tmp_path / "a.jsonl", KEYS).config == {"seed": 0}
    before = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "b.jsonl").write_bytes(before.replace(b'"seed":0', b'"seed":2'))
    with raises("b.jsonl, line 1: the stored config does not match its stored hash"):
        Records(tmp_path / "b.jsonl", KEYS)
    assert (tmp_path / "a.jsonl").read_bytes() == before


def test_files_of_one_config_may_be_joined_and_of_two_not(tmp_path):
    one, two = opened(tmp_path / "a.jsonl"), opened(tmp_path / "b.jsonl")
    one.append([record(0)])
    two.append([record(1)])
    three = Records(tmp_path / "c.jsonl", KEYS, config={"seed": 3})
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes(one.path.read_bytes() + two.path.read_bytes())
    assert opened(joined).done() == {(0, 0.5), (1, 0.5)}
    joined.write_bytes(one.path.read_bytes() + three.path.read_bytes())
    with raises("joined.jsonl, line 3: expected records of this config"):
        opened(joined)


def test_a_broken_line_is_named_and_left(tmp_path):
    path = filled(tmp_path / "a.jsonl").path
    lines = path.read_bytes().splitlines(keepends=True)
    broken = {
        b"{oops\n": "expected JSON, got b'{oops'",
        b"\n": "expected JSON, got b''",
        b"\xff\n": "expected JSON",
        b"[1, 2]\n": "expected an object",
        lines[1]: "expected distinct keys, got (0, 0.5) twice",
        b'{"example":9,"rate":0.5}\n': "expected the fields example, rate, prediction",
        b'{"example":null,"rate":1,"prediction":0}\n': "expected names and numbers",
    }
    for line, message in broken.items():
        path.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
        before = path.read_bytes()
        with raises(f"{path}, line 4: {message}"):
            opened(path)
        assert path.read_bytes() == before
    path.write_bytes(b"".join(lines[1:]))
    with raises(f"{path}, line 1: expected a header"):
        opened(path)


def test_a_file_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("Once upon a time")
    with raises("thesis.txt: expected records, got b'Once upon a time'"):
        opened(path)
    assert path.read_text() == "Once upon a time"


def test_what_may_not_be_appended_leaves_no_trace(tmp_path):
    records = filled(tmp_path / "a.jsonl", 2)
    before = records.path.read_bytes()
    with raises("record 1 to append: expected distinct keys, got (1, 0.5) twice"):
        records.append([record(7), record(1)])
    with raises("record 1 to append: expected distinct keys, got (7, 0.5) twice"):
        records.append([record(7), record(7)])
    with raises("record 0 to append: expected the fields example, rate, prediction"):
        records.append([record(8) | {"more": 1}])
    with raises("expected what JSON can hold"):
        records.append([record(8, prediction=object())])
    fresh = opened(tmp_path / "b.jsonl")
    with raises("record 0 to append: expected the fields example, rate, got rate"):
        fresh.append([{"rate": 0.1}])
    with raises("record 1 to append: expected the fields example, rate"):
        fresh.append([record(0), record(1) | {"more": 1}])
    assert records.path.read_bytes() == before
    records.append([])
    records.append([record(7)])
    assert len(records) == len(opened(records.path)) == 3
    assert len(fresh) == 0


def test_a_write_that_fails_is_taken_back(tmp_path, monkeypatch):
    records = filled(tmp_path / "a.jsonl", 2)
    before, write = records.path.read_bytes(), os.write

    def full(descriptor, data):
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:30])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        records.append([record(8), record(9)])
    monkeypatch.undo()
    assert records.path.read_bytes() == before
    records.append([record(8)])
    assert opened(records.path).done() == records.done()


def test_two_writers_see_each_other(tmp_path):
    one, two = opened(tmp_path / "a.jsonl"), opened(tmp_path / "a.jsonl")
    one.append([record(0)])
    two.append([record(1)])
    with raises("expected distinct keys, got (0, 0.5) twice"):
        two.append([record(0)])
    one.append([record(2)])
    assert one.done() == opened(one.path).done()
    with open(one.path, "ab") as file:
        file.write(b'{"example":3')  # A third one died
    one.append([record(3)])
    assert len(opened(one.path, read_only=True)) == 4
    assert len(one.notes) == 1


@pytest.mark.slow
def test_processes_append_to_one_file_without_mixing_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    code = (
        "import sys; from tests.bridge.alone import alone; alone('icltheory.bridge')\n"
        "from icltheory.bridge.records import Records\n"
        "records = Records(sys.argv[1], ('example', 'rate'), config={'seed': 0})\n"
        "for i in range(40):\n"
        "    records.append([{'example': i, 'rate': int(sys.argv[2]), 'x': 'y' * 999}])"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, path, str(i)], cwd=ROOT)
        for i in range(3)
    ]
    assert [child.wait(timeout=120) for child in children] == [0, 0, 0]
    found = opened(path)
    assert found.done() == {(i, rate) for i in range(40) for rate in range(3)}
    assert len(path.read_bytes().splitlines()) == 121


def test_reading_changes_nothing(tmp_path):
    path = filled(tmp_path / "a.jsonl", 2).path
    path.write_bytes(path.read_bytes() + b'{"exam')
    before = path.read_bytes()
    records = opened(path, read_only=True)
    assert len(records) == 2
    assert "passed over" in records.notes[0]
    with raises("expected records open for writing, got read_only=True"):
        records.append([record(3)])
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "none.jsonl", read_only=True)
    (tmp_path / "empty").touch()
    with raises("expected records, got an empty file"):
        opened(tmp_path / "empty", read_only=True)


def test_other_versions_are_noted(tmp_path):
    path = filled(tmp_path / "a.jsonl").path
    header, _, rest = path.read_text().partition("\n")
    old = json.loads(header)
    assert "numpy" in old["versions"]
    old["versions"]["numpy"] = "0.9"
    path.write_text(json.dumps(old) + "\n" + rest)
    assert "line 1: written with" in opened(path).notes[0]


def test_fsync_writes_the_same_and_waits_for_the_disk(tmp_path, monkeypatch):
    waited, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda d: (waited.append(d), fsync(d)))
    filled(tmp_path / "b.jsonl", 1)
    assert not waited
    opened(tmp_path / "a.jsonl", fsync=True).append([record(0)])
    assert len(waited) == 2
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_the_file_is_locked_while_it_is_written(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    records, write, refused = opened(tmp_path / "a.jsonl"), os.write, []

    def contested(descriptor, data):
        with open(records.path) as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(True)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", contested)
    records.append([record(0)])
    monkeypatch.undo()
    assert refused == [True]
    with open(records.path) as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_hash_of_a_config():
    @dataclasses.dataclass
    class Config:
        rates: tuple = (0.1, 0.5)
        seed: int = 0

    assert config_hash(Config()) == config_hash({"seed": 0, "rates": [0.1, 0.5]})
    assert config_hash(Config()) != config_hash(Config(seed=1))
    with raises("expected what JSON can hold"):
        config_hash({"model": object()})


def test_bad_input_is_named(tmp_path):
    with raises("key_fields: expected distinct names, got ('a', 'a')"):
        Records(tmp_path / "a.jsonl", ("a", "a"))
    records = filled(tmp_path / "b.jsonl")
    with raises("field: expected one of prediction, got 'scores'"):
        records.table("scores")
    with raises("field: expected one of example, rate, got 'layer'"):
        records.done(layer=3)
    words = opened(tmp_path / "c.jsonl")
    words.append([{"example": 0, "rate": 0, "x": "yes", "y": [1.0]}])
    words.append([{"example": 1, "rate": 0, "x": "no", "y": [1.0, 2.0]}])
    with raises("value: expected a number, got 'yes'"):
        words.table("x")
    with raises("value: expected lists of one length"):
        words.table("y")
