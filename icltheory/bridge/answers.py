"""A file of answers: scores of pruned models on the examples of tasks, for resuming.

One SQLite table, whose key says which model was asked what. A commit survives
``kill -9``, several processes may write one file, and each sees what the others wrote.
"""

import contextlib
import errno
import json
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icltheory.runs import plain

__all__ = ["Answer", "AnswerFile"]

_TABLE = """
CREATE TABLE IF NOT EXISTS about (config TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, model TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS answers (
    model INTEGER NOT NULL REFERENCES models (id), split TEXT NOT NULL,
    pruned TEXT NOT NULL, example INTEGER NOT NULL, label INTEGER NOT NULL,
    scores BLOB NOT NULL, PRIMARY KEY (model, split, pruned, example)
) WITHOUT ROWID;
"""
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_COLUMNS = "split, pruned, example, label, scores"
_PATIENCE = 600.0  # seconds that a writer waits for others


class Answer(NamedTuple):
    """One answer: where it belongs, its label and the options' scores.

    Args:
        pruned: Text of the interventions, such as ``"26:mlp:0.9"``; ``""`` for none.
        example: Number of the example in the split.
        label: Number of its right option.
    """

    split: str
    pruned: str
    example: int
    label: int
    scores: np.ndarray


class AnswerFile:
    """A SQLite file of answers, each found by the model, the pruning and the example.

    An answer that is there already is kept as it is, so that a resumed run computes
    with the numbers of the first. While it is open, ``FILE-wal`` beside it belongs to
    it. ``sqlite3 FILE 'SELECT * FROM answers'`` shows what is in it.

    Args:
        path: The file; made with its folder if absent. In memory if ``None``.
        config: What the numbers depend on, such as the checkpoint. A file of another
            configuration is refused. ``None`` takes that of the file.
        read_only: Whether to leave the file as it is.

    Example:
        >>> file = AnswerFile(None, {"seed": 0})
        >>> scores = np.array([0.5, 2.0])
        >>> file.add({"task": "toy"}, [Answer("test", "3:mlp:0.9", 7, 1, scores)])
        >>> (one,) = file.of({"task": "toy"}, "test", "3:mlp:0.9")
        >>> one.example, one.scores.tolist()
        (7, [0.5, 2.0])
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        config: Any = None,
        *,
        read_only: bool = False,
    ):
        self.path, self.read_only = Path(path or ":memory:"), read_only
        if read_only and not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such file of answers")
        if self.path.is_dir():
            raise ValueError(f"{self.path}: expected a file of answers, got a folder")
        if path is not None and not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        uri = "file::memory:"
        if path is not None:
            mode = "ro" if read_only else "rwc"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        with self._told():
            self._data = sqlite3.connect(
                uri,
                timeout=_PATIENCE,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            weakref.finalize(self, self._data.close)
            tables = {n for (n,) in self._data.execute(_TABLES)}
            known = {"about", "models", "answers"}
            if tables - known or (read_only and not tables):
                raise sqlite3.DatabaseError(f"tables {sorted(tables)}")
            (state,) = self._data.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(" ".join(state.split()))
            if not read_only:
                self._data.execute("PRAGMA journal_mode = WAL")
                self._data.execute("PRAGMA synchronous = NORMAL")
                self._data.executescript(_TABLE)
            self.config = self._agreed(plain(config))

    def __len__(self) -> int:
        with self._told():
            return self._data.execute("SELECT COUNT(*) FROM answers").fetchone()[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All answers as dictionaries, for tables and data frames."""
        query = f"SELECT models.model, {_COLUMNS} FROM answers JOIN models ON id ="
        with self._told():
            for model, *row in self._data.execute(f"{query} answers.model"):
                found = _answer(row)._asdict()
                yield json.loads(model) | found | {"scores": found["scores"].tolist()}

    def of(self, model: dict[str, Any], split: str, pruned: str) -> Iterator[Answer]:
        """The answers of one model, such as ``{"task": "sst2", "method": "svd"}``."""
        query = f"SELECT {_COLUMNS} FROM answers WHERE split = ? AND pruned = ? AND "
        query += "model = (SELECT id FROM models WHERE model = ?)"
        with self._told():
            rows = self._data.execute(query, [split, pruned, _name(model)])
            yield from map(_answer, rows)

    def add(self, model: dict[str, Any], answers: Iterable[Answer]) -> None:
        """Stores all of the answers or, where one cannot be stored, none."""
        rows = [(*a[:-1], np.asarray(a.scores, float).tobytes()) for a in answers]
        with self._told(), self._data:
            self._data.execute("BEGIN IMMEDIATE")
            name = [_name(model)]
            self._data.execute("INSERT OR IGNORE INTO models (model) VALUES (?)", name)
            query = "SELECT id FROM models WHERE model = ?"
            (number,) = self._data.execute(query, name).fetchone()
            query = f"INSERT INTO answers VALUES ({number}, ?, ?, ?, ?, ?) "
            self._data.executemany(f"{query} ON CONFLICT DO NOTHING", rows)

    def close(self) -> None:
        """Closes the file; what was added is in it already."""
        self._data.close()

    def _agreed(self, wanted: Any) -> Any:
        """The file's configuration; raises if another was asked for."""
        with contextlib.nullcontext() if self.read_only else self._data:
            if not self.read_only:
                self._data.execute("BEGIN IMMEDIATE")
            found = self._data.execute("SELECT config FROM about").fetchone()
            if found is None:
                text = json.dumps(wanted, sort_keys=True)
                self._data.execute("INSERT INTO about VALUES (?)", [text])
                return wanted
        stored = json.loads(found[0])
        if wanted is not None and wanted != stored:
            raise ValueError(
                f"{self.path}: expected answers of this config, got those of another: "
                f"{_first_difference(wanted, stored)}; use another file"
            )
        return stored

    @contextlib.contextmanager
    def _told(self):
        """Errors of SQLite with the path, in the words of this library."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise ValueError(f"answers: expected all entries, got {error}") from None
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
                code = errno.ENOSPC if full else errno.EIO
                raise OSError(code, str(error), str(self.path)) from None
            what = f"expected a SQLite file of answers, got another file ({error})"
            raise ValueError(f"{self.path}: {what}; it is left as it is") from None


def _answer(row: Iterable[Any]) -> Answer:
    *place, scores = row
    return Answer._make((*place, np.frombuffer(scores, np.float64)))


def _name(model: dict[str, Any]) -> str:
    return json.dumps(plain(model), sort_keys=True)


def _first_difference(wanted: Any, got: Any, path: str = "config") -> str:
    """Describes the first difference of two configurations."""
    if not (isinstance(wanted, dict) and isinstance(got, dict)):
        return f"{path} is {got!r}, not {wanted!r}"
    for name in sorted(set(wanted) | set(got)):
        inner = f"{path}.{name}"
        if name not in got or name not in wanted:
            return f"{inner} is {'absent' if name in wanted else 'there'}"
        if wanted[name] != got[name]:
            return _first_difference(wanted[name], got[name], inner)
    return f"{path} is the same"
