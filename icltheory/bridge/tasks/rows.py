"""Reads task files: JSON, TSV without quoting, CSV, XML item lists, and parquet.

Text files are UTF-8, with or without a byte order mark. Every complaint names the file
and the line. Numbers, true and false are written as in JSON; null, NaN, infinity, lists
and objects are no text. A cell of TSV, CSV or XML has no type and is a text as it
stands, also if it says ``None`` or ``NaN``. Lines end at a line feed alone: a stray
carriage return or a Unicode line separator inside a text is part of the text.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from icltheory._files import refuse_pointer

__all__ = ["SourceRow", "SourceTable", "read_table"]

FORMATS = (".jsonl", ".json", ".tsv", ".csv", ".txt", ".xml", ".parquet")


class SourceRow(NamedTuple):
    """One row of a task file.

    Args:
        columns: Text of each column.
        line: Line of the file, from 1.
        no_text: Columns that hold no text, such as null, NaN or a list, as JSON.
    """

    columns: dict[str, str]
    line: int
    no_text: Mapping[str, str] = {}


class SourceTable(NamedTuple):
    """The rows of one file and its name.

    Args:
        origin: Path or hub name, for messages.
        rows: The rows in file order.
    """

    origin: str
    rows: tuple[SourceRow, ...]


def read_table(
    path: Any,
    *,
    keys: tuple[str, ...] = ("label",),
    headerless: tuple[tuple[str, ...], ...] = (),
) -> SourceTable:
    """Reads a task file in the format of its suffix.

    A tsv, txt or csv file has a header if its first line holds one of ``keys``. If not,
    the layout of ``headerless`` with that many columns names the columns. In tsv and
    txt a quotation mark is a character like any other. Blank lines are skipped.

    Args:
        path: The file: ``.jsonl`` or ``.json`` (one object a line, or an array of
            them), ``.tsv``, ``.txt`` (tabs too), ``.csv``, ``.xml`` (a list of ``item``
            elements) or ``.parquet``.
        keys: Columns of which a header has at least one.
        headerless: Column names of files without a header.

    Returns:
        The rows, each with its line.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: expected one of {', '.join(FORMATS)}")
    if path.suffix == ".parquet":
        return SourceTable(str(path), tuple(_parquet_rows(path)))
    text = text_of(path)
    if path.suffix in (".jsonl", ".json"):
        return SourceTable(str(path), tuple(_json_rows(path, text)))
    if path.suffix == ".xml":
        return SourceTable(str(path), tuple(_xml_rows(path, text)))
    split = _csv_cells if path.suffix == ".csv" else _tab_cells
    return SourceTable(
        str(path), tuple(_named(path, split(path, text), keys, headerless))
    )


def text_of(path: Path) -> str:
    """Decodes a file as text; errors name the line."""
    refuse_pointer(path)
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: expected UTF-8, got {error.reason}") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if line.strip():
            yield number, line


def _parquet_rows(path: Path) -> Iterator[SourceRow]:
    try:
        from pyarrow import parquet  # pyrefly: ignore[missing-import]
    except ImportError:
        raise ImportError(
            f"{path}: parquet files need `pip install pyarrow`; or write the rows as "
            "JSON lines"
        ) from None
    refuse_pointer(path)
    try:
        values = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected parquet, got {error}") from None
    for number, value in enumerate(values, start=1):
        yield row_of(value, number)


def _json_rows(path: Path, text: str) -> Iterator[SourceRow]:
    if text.lstrip().startswith("["):
        yield from _array_rows(path, text)
        return
    for number, line in _lines(text):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{path}:{number}: expected a JSON object on each line, or one array "
                f"of objects, got {error}"
            ) from None
        if not isinstance(value, dict):
            raise ValueError(
                f"{path}:{number}: expected a JSON object, got {line[:60]}"
            )
        yield row_of(value, number)


def _array_rows(path: Path, text: str) -> Iterator[SourceRow]:
    try:
        values = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ValueError(
            f"{path}:{line}: expected an array of JSON objects, got {error}"
        ) from None
    decoder, end, line = json.JSONDecoder(), 0, 1
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise ValueError(
                f"{path}: expected an array of JSON objects, got element {number} "
                f"{json.dumps(value)[:60]}"
            )
        start = text.index("{", end)
        line += text.count("\n", end, start)
        yield row_of(value, line)
        end = decoder.raw_decode(text, start)[1]
        line += text.count("\n", start, end)


def row_of(values: Mapping[str, Any], line: int) -> SourceRow:
    """Converts a row's values to strings; numbers are formatted as in JSON."""
    columns, no_text = {}, {}
    for name, value in values.items():
        number = isinstance(value, (int, float, Decimal)) and abs(value) < math.inf
        readable = number or isinstance(value, str)
        text = value
        if not isinstance(value, str):
            text = json.dumps(value, default=str).strip('"')  # Decimal is no JSON
        (columns if readable else no_text)[name] = text
    return SourceRow(columns, line, no_text)


def _tab_cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in _lines(text):
        yield number, line.split("\t")


def _csv_cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}:{start}: expected a csv record, got {error}"
        ) from None


def _named(
    path: Path,
    lines: Iterator[tuple[int, list[str]]],
    keys: tuple[str, ...],
    headerless: tuple[tuple[str, ...], ...],
) -> Iterator[SourceRow]:
    """Assigns the column names of a header or layout to the cells of each line."""
    names: tuple[str, ...] | None = None
    for number, cells in lines:
        if names is None:
            if set(cells) & set(keys):
                names = tuple(cells)
                continue
            names = next((n for n in headerless if len(n) == len(cells)), None)
            if names is None:
                raise ValueError(
                    f"{path}:{number}: expected a header with one of "
                    f"{', '.join(keys)}, got {cells}"
                )
        if len(cells) != len(names):
            raise ValueError(
                f"{path}:{number}: expected {len(names)} columns "
                f"({', '.join(names)}), got {len(cells)}"
            )
        yield SourceRow(dict(zip(names, cells, strict=True)), number)


def _xml_rows(path: Path, text: str) -> Iterator[SourceRow]:
    """Reads an XML list of items, with attributes and child texts as columns."""
    rows: list[SourceRow] = []
    inside: list[str] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        inside.append(tag)
        if tag == "item":
            rows.append(SourceRow(dict(attributes), parser.CurrentLineNumber))
        elif "item" in inside:
            rows[-1].columns.setdefault(tag, "")

    def end(tag: str) -> None:
        inside.pop()

    def characters(data: str) -> None:
        if "item" in inside and inside[-1] != "item":
            columns = rows[-1].columns
            columns[inside[-1]] = columns.get(inside[-1], "") + data

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(f"{path}:{error.lineno}: expected XML, got {error}") from None
    yield from rows
