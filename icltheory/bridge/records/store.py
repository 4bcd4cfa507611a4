"""Append-only records of a run, one line per evaluation, for resuming.

The file is JSON lines: a header with the configuration, its hash and the versions, then
one object an evaluation. An append is one ``write`` to a file opened with ``O_APPEND``,
made under an exclusive ``flock`` that the kernel drops when the process dies; several
processes may append to one file, and each first reads what the others wrote. Without
``flock`` (Windows) one writer at a time is the caller's care.
"""

import contextlib
import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from icltheory._files import named_file
from icltheory.bridge.records.table import RecordTable, tabulate
from icltheory.bridge.records.values import (
    config_hash,
    first_difference,
    plain,
    to_line,
    versions,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["Records"]

_FORMAT = "icltheory-records"
_START = to_line({"format": _FORMAT})[:-2]


class Records:
    r"""A file of records, each found by its key, that survives ``kill -9``.

    Every record has the same fields. Those in ``key_fields`` say what was evaluated, no
    two records agree in all of them, and :meth:`done` tells which exist: a resumed run
    evaluates the others. A last line without its end, the trace of a process that was
    killed while it wrote, is cut off and named in :attr:`notes`, and nothing else is
    ever mended: a line in the middle that cannot be read is an error with its number.

    Numbers come back as they went in. NaN is written as ``null`` and the infinities as
    strings, so that every JSON reader can read the file.

    Args:
        path: The file; made with its folder if absent.
        key_fields: Names of the fields that are the key.
        config: What the numbers depend on: checkpoint, task, seeds. A file of another
            configuration is refused. ``None`` takes that of the file.
        fsync: Whether an append returns only when the disk has its lines. ``kill -9``
            needs no such care, a power failure does.
        read_only: Whether to leave the file as it is; an unfinished last line is then
            passed over, and nothing can be appended.

    Returns:
        The records.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/records.jsonl"
        >>> first = Records(path, ("example", "rate"), config={"seed": 0})
        >>> first.append([{"example": 0, "rate": 0.5, "prediction": 1}])
        >>> again = Records(path, ("example", "rate"), config={"seed": 0})
        >>> again.done(rate=0.5)
        {(0, 0.5)}

    Source: JSON lines; POSIX ``write`` and ``O_APPEND``.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        key_fields: Sequence[str] = ("example", "layer", "module", "rate"),
        *,
        config: Any = None,
        fsync: bool = False,
        read_only: bool = False,
    ):
        self.path = Path(path)
        self.key_fields = tuple(key_fields)
        self.fsync = fsync
        self.read_only = read_only
        self.fields: tuple[str, ...] | None = None
        self.header: dict[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        self._wanted = plain(config)
        self._rows: dict[tuple, tuple] = {}
        self._offset = self._lines = 0
        if not self.key_fields or len(set(self.key_fields)) < len(self.key_fields):
            raise ValueError(
                f"key_fields: expected distinct names, got {self.key_fields}"
            )
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as descriptor:
            self._catch_up(descriptor)
            if not self.header:
                self._begin(descriptor)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the records in file order, as JSON stores them: NaN is ``None``."""
        names = self.fields or ()
        others = [name for name in names if name not in self.key_fields]
        for key, values in self._rows.items():
            known = dict(zip((*self.key_fields, *others), (*key, *values), strict=True))
            yield {name: known[name] for name in names}

    def __contains__(self, key: tuple) -> bool:
        return tuple(key) in self._rows

    @property
    def config(self) -> Any:
        """The configuration in the file's header."""
        return self.header["config"]

    def done(self, **fixed: Hashable) -> set[tuple]:
        """Returns the keys of the recorded evaluations.

        Args:
            **fixed: Key fields that have to have these values, such as ``layer=3``.

        Returns:
            The keys, each in the order of ``key_fields``.
        """
        return set(self._matching(fixed))

    def append(self, records: Iterable[dict[str, Any]]) -> None:
        """Appends records to the file in one write.

        Args:
            records: The records, each with the key fields and the same other fields.
        """
        if self.read_only:
            raise ValueError(
                f"{self.path}: expected records open for writing, got read_only=True"
            )
        new = [plain(record) for record in records]
        with self._locked() as descriptor:
            self._catch_up(descriptor)
            fields = self.fields or tuple(new[0] if new else ())
            keys: set[tuple] = set()
            for i, record in enumerate(new):
                where = f"record {i} to append"
                keys.add(self._key(record, where, fields, keys))
            if new:
                self._write(descriptor, [to_line(record) for record in new])
        for record in new:
            self._hold(record)

    def table(
        self, value: str = "prediction", *, column: str = "example", **fixed: Hashable
    ) -> RecordTable:
        """Builds an array from the records, independent of their order.

        Args:
            value: Field to tabulate: whole numbers, numbers, booleans, or lists of
                numbers of one length.
            column: Key field along the columns; the other key fields are the rows.
            **fixed: Key fields that have to have these values.

        Returns:
            The table; -1 (for whole numbers and booleans) or NaN where there is no
            record.
        """
        self._check_field(column, self.key_fields)
        others = tuple(f for f in self.fields or () if f not in self.key_fields)
        self._check_field(value, others)
        place = others.index(value)
        cells = {key: self._rows[key][place] for key in self._matching(fixed)}
        return tabulate(cells, self.key_fields.index(column))

    def _matching(self, fixed: Mapping[str, Hashable]) -> Iterator[tuple]:
        for name in fixed:
            self._check_field(name, self.key_fields)
        places = [(self.key_fields.index(name), fixed[name]) for name in fixed]
        return (k for k in self._rows if all(k[i] == v for i, v in places))

    def _check_field(self, name: str, known: Sequence[str]) -> None:
        if name not in known:
            raise ValueError(
                f"field: expected one of {', '.join(known) or 'none yet'}, got {name!r}"
            )

    @contextlib.contextmanager
    def _locked(self):
        flags = os.O_RDONLY if self.read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.path, flags | getattr(os, "O_BINARY", 0), 0o666)
        try:
            if fcntl is not None:
                share = fcntl.LOCK_SH if self.read_only else fcntl.LOCK_EX
                fcntl.flock(descriptor, share)
            yield descriptor
        finally:
            os.close(descriptor)

    def _catch_up(self, descriptor: int) -> None:
        """Reads newly appended records and removes an unfinished last line."""
        size = os.fstat(descriptor).st_size
        if size < self._offset:
            raise ValueError(
                f"{self.path}: expected an append-only file of at least {self._offset} "
                f"bytes, got {size}; it was shortened while it was open"
            )
        os.lseek(descriptor, self._offset, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read()
        whole = content.rfind(b"\n") + 1
        for line in content[:whole].split(b"\n")[:-1]:
            self._lines += 1
            self._take(line, f"{self.path}, line {self._lines}")
        self._offset += whole
        if whole < len(content):
            self._drop(descriptor, content[whole:])

    def _drop(self, descriptor: int, tail: bytes) -> None:
        """Removes an unfinished last line, if the file is one of records."""
        if not self.header and tail[: len(_START)] != _START[: len(tail)]:
            raise ValueError(f"{self.path}: expected records, got {tail[:60]!r}")
        what = "passed over" if self.read_only else "cut off"
        self.notes += (
            f"{self.path}: an unfinished last line, {len(tail)} bytes after line "
            f"{self._lines}, was {what}",
        )
        if not self.read_only:
            os.ftruncate(descriptor, self._offset)

    def _take(self, line: bytes, where: str) -> None:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where}: expected JSON, got {line[:60]!r}") from error
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected an object, got {line[:60]!r}")
        if record.get("format") == _FORMAT:
            self._check_header(record, where)
        elif not self.header:
            raise ValueError(f"{where}: expected a header, got {line[:60]!r}")
        else:
            self._key(record, where, self.fields or tuple(record), set())
            self._hold(record)

    def _check_header(self, header: dict[str, Any], where: str) -> None:
        """Raises for another configuration; equal ones may share a file."""
        names = tuple(header.get("key_fields", ()))
        if names != self.key_fields:
            raise ValueError(
                f"{where}: expected key fields {self.key_fields}, got {names}"
            )
        config = header.get("config")
        if config_hash(config) != header.get("config_hash"):
            raise ValueError(
                f"{where}: the stored config does not match its stored hash; the file "
                "was edited"
            )
        wanted = self.header.get("config", self._wanted)
        if (self.header or wanted is not None) and config != wanted:
            raise ValueError(
                f"{where}: expected records of this config, got those of another: "
                + first_difference(wanted, config)
            )
        if header.get("versions") != versions():
            self.notes += (f"{where}: written with {header.get('versions')}",)
        self.header = self.header or header

    def _begin(self, descriptor: int) -> None:
        if self.read_only:
            raise ValueError(f"{self.path}: expected records, got an empty file")
        self.header = {
            "format": _FORMAT,
            "key_fields": list(self.key_fields),
            "config": self._wanted,
            "config_hash": config_hash(self._wanted),
            "versions": versions(),
        }
        self._write(descriptor, [to_line(self.header)])

    def _key(self, record: dict, where: str, fields: tuple, others: set) -> tuple:
        """Returns a record's key; raises if the record may not be added."""
        if set(record) != set(fields) or not set(self.key_fields) <= set(fields):
            raise ValueError(
                f"{where}: expected the fields "
                f"{', '.join(self.fields or self.key_fields)}, got {', '.join(record)}"
            )
        key = tuple(record[name] for name in self.key_fields)
        if not all(isinstance(part, (str, int, float)) for part in key):
            raise ValueError(f"{where}: expected names and numbers as key, got {key}")
        if key in self._rows or key in others:
            raise ValueError(f"{where}: expected distinct keys, got {key} twice")
        return key

    def _hold(self, record: dict[str, Any]) -> None:
        self.fields = self.fields or tuple(record)
        others = (name for name in self.fields if name not in self.key_fields)
        key = tuple(record[name] for name in self.key_fields)
        self._rows[key] = tuple(record[name] for name in others)

    def _write(self, descriptor: int, lines: Sequence[bytes]) -> None:
        data = memoryview(b"".join(lines))
        try:
            with named_file(self.path):
                while data:
                    data = data[os.write(descriptor, data) :]
                if self.fsync:
                    os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._offset)
            raise
        self._offset += sum(map(len, lines))
        self._lines += len(lines)
