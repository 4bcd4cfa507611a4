"""A file of answers: killed writers, several writers, and every complaint."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from icltheory.bridge.answers import Answer, AnswerFile
from tests.raising import raises

ROOT = Path(__file__).parents[2]
MODEL, PLACE = {"task": "toy", "method": "svd"}, ("test", "3:mlp:0.9")
# A run to be killed: it stores what is missing, three answers at a time.
WRITER = """
import sys
from tests.bridge.alone import alone
alone("icltheory.bridge")
from tests.bridge.test_answers import MODEL, PLACE, AnswerFile, answer
file = AnswerFile(sys.argv[1], {"seed": 0})
for start in range(0, 600, 3):
    known = {one.example for one in file.of(MODEL, *PLACE)}
    todo = [i for i in range(start, start + 3) if i not in known]
    file.add(MODEL, [answer(i) for i in todo])
"""


def answer(example, scores=None):
    found = [example / 3, np.nan] if scores is None else scores
    return Answer(*PLACE, example, example % 2, np.array(found))


def filled(path, count=5):
    file = AnswerFile(path, {"seed": 0})
    file.add(MODEL, map(answer, range(count)))
    return file


def started(path):
    return subprocess.Popen([sys.executable, "-c", WRITER, path], cwd=ROOT)


@pytest.mark.slow
def test_killed_ten_times_it_has_the_answers_of_a_run_in_one_go(tmp_path):
    path, counts = tmp_path / "a.sqlite", [0]
    for _ in range(10):
        process, begun = started(path), time.monotonic()
        file = AnswerFile(path, {"seed": 0})
        while len(file) < counts[-1] + 30 and process.poll() is None:
            assert time.monotonic() < begun + 120
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        counts.append(len(AnswerFile(path)))
        assert counts[-1] % 3 == 0  # an addition is whole or absent
    assert counts == sorted(set(counts))
    assert started(path).wait(timeout=120) == 0
    assert str(list(AnswerFile(path))) == str(list(filled(tmp_path / "b", 600)))


@pytest.mark.slow
def test_processes_write_one_file(tmp_path):
    writers = [started(tmp_path / "a.sqlite") for _ in range(3)]
    assert [writer.wait(timeout=240) for writer in writers] == [0, 0, 0]
    found = AnswerFile(tmp_path / "a.sqlite")
    assert str(list(found)) == str(list(filled(tmp_path / "b", 600)))


def test_numbers_come_back_as_they_went_in(tmp_path):
    values = [0.1, 1 / 3, 5e-324, np.pi * 1e300, np.nan, np.inf, -np.inf, -0.0]
    filled(tmp_path / "a").add(MODEL, [answer(9, values)])
    found = {one.example: one for one in AnswerFile(tmp_path / "a").of(MODEL, *PLACE)}
    assert found[9].scores.tobytes() == np.array(values).tobytes()
    assert found[3][:-1] == answer(3)[:-1]
    file = AnswerFile(tmp_path / "a")
    assert not list(file.of({**MODEL, "shots": 2}, *PLACE))
    assert not list(file.of(MODEL, "test", ""))


def test_the_first_answer_is_kept_and_others_are_seen(tmp_path):
    one, two = filled(tmp_path / "a"), AnswerFile(tmp_path / "a")
    one.add(MODEL, [answer(7)])
    two.add(MODEL, [answer(7, [0.0, 1.0]), answer(8)])
    found = {a.example: a.scores for a in one.of(MODEL, *PLACE)}
    assert set(found) == {*range(5), 7, 8}
    np.testing.assert_equal(found[7], answer(7).scores)


def test_all_of_an_addition_is_stored_or_nothing(tmp_path):
    file = filled(tmp_path / "a")
    with pytest.raises(ValueError, match="could not convert"):
        file.add(MODEL, [answer(7), answer(8)._replace(scores=["x"])])
    with raises(
        "answers: expected all entries, got NOT NULL constraint failed: answers"
    ):
        file.add(MODEL, [answer(7), answer(8)._replace(label=None)])
    assert len(file) == 5


def test_another_config_is_refused(tmp_path):
    filled(tmp_path / "a")
    front = f"{tmp_path}/a: expected answers of this config, got those of another: "
    front += "config.seed is"
    for config, message in (
        ({"seed": 1}, f"{front} 0, not 1; use another file"),
        ({}, f"{front} there; use another file"),
    ):
        with raises(message):
            AnswerFile(tmp_path / "a", config)
    assert AnswerFile(tmp_path / "a").config == {"seed": 0}


def test_what_is_no_file_of_answers_is_left_alone(tmp_path):
    with raises(f"{tmp_path}: expected a file of answers, got a folder"):
        AnswerFile(tmp_path)
    text, foreign = tmp_path / "thesis.txt", tmp_path / "other.sqlite"
    text.write_text("Once upon a time. " * 99)
    with contextlib.closing(sqlite3.connect(foreign)) as data:
        data.execute("CREATE TABLE photos (name)")
    for path in (text, foreign):
        before = path.read_bytes()
        for read_only in (False, True):
            with raises(f"{path}: expected a SQLite file of answers, got another file"):
                AnswerFile(path, read_only=read_only)
        assert path.read_bytes() == before
        assert sorted(tmp_path.iterdir()) == sorted([text, foreign])
    with pytest.raises(FileNotFoundError, match="none: no such file of answers"):
        AnswerFile(tmp_path / "none", read_only=True)


def test_a_damaged_file_is_named(tmp_path):
    file = filled(tmp_path / "a", 900)
    file.close()
    content = bytearray(file.path.read_bytes())
    content[5000:9000] = bytes(4000)
    file.path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(file.path))}: expected"):
        list(AnswerFile(file.path))


def test_reading_changes_nothing(tmp_path):
    filled(tmp_path / "a").close()
    file = AnswerFile(tmp_path / "a", read_only=True)
    assert len(list(file)) == 5
    with pytest.raises(OSError, match="readonly database"):
        file.add(MODEL, [answer(7)])
    assert len(file) == 5
