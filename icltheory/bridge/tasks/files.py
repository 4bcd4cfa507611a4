"""Finds and reads the files of a task: JSON, TSV, CSV, XML items, parquet, the hub.

Text files are UTF-8, with or without a byte order mark. Every error names the file and
the line, or the row of a JSON array, XML, parquet or the hub. Numbers, true and false
are written as in JSON; null, NaN, infinity, lists and objects are no text. A cell of
TSV, CSV or XML has no type and is a text as it stands, also ``None`` and ``NaN``.
Lines end at a line feed alone: a stray carriage return or a Unicode line separator
inside a text is part of the text.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from icltheory.bridge.tasks.declare import TaskSpec
from icltheory.bridge.tasks.task import names_of
from icltheory.models._files import refuse_pointer

FORMATS = (".jsonl", ".json", ".tsv", ".csv", ".txt", ".xml", ".parquet")
# File names of each split; the first that exists is used.
_NAMES = {
    "train": ("train",),
    "validation": ("validation", "val", "dev"),
    "test": ("test",),
}


class SourceRow(NamedTuple):
    """One row of a task file.

    Args:
        columns: Text of each column.
        line: Line of the file, or number of the row, from 1.
        no_text: Columns that hold no text, such as null, NaN or a list, as JSON.
    """

    columns: dict[str, str]
    line: int
    no_text: Mapping[str, str] = {}


class SourceTable(NamedTuple):
    """The rows of one file, in its order, and its path or its name on the hub."""

    origin: str
    rows: tuple[SourceRow, ...]


def local_source(spec: TaskSpec, path: Any) -> Callable[[str], SourceTable]:
    """Returns a function from the name of a split to its rows in a folder.

    A split is the file that the declaration names for it, or the one called ``train``,
    ``validation`` (``val``, ``dev``) or ``test``, or else the only one whose name
    begins so. A single file in place of a folder serves as the training rows.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: no such folder of files for {spec.name}")
    keys = {column for column, _ in spec.labels} or {
        name
        for field in spec.fields
        for template in spec.templates(field)
        for name in names_of(template)
    }

    def read(split: str) -> SourceTable:
        file, start, stop = _find(spec, folder, split)
        table = read_table(file, keys=tuple(sorted(keys)), headerless=spec.headerless)
        return table._replace(rows=table.rows[start:stop])

    return read


def _find(spec: TaskSpec, folder: Path, split: str) -> tuple[Path, int, int | None]:
    """Returns the file of a split and which of its rows belong to it."""
    if folder.is_file():
        if split == "train":
            return folder, 0, None
        raise FileNotFoundError(
            f"{folder}: expected a folder with a {split} file for {spec.name}"
        )
    named, usual = [file for file in spec.files if file.split == split], _NAMES[split]
    tried = [([file.pattern], file.start, file.stop) for file in named]
    tried += [([name + end for end in FORMATS], 0, None) for name in usual]
    tried += [([f"{name}*{end}" for name in usual for end in FORMATS], 0, None)]
    for patterns, start, stop in tried:
        found = sorted({file for pattern in patterns for file in folder.glob(pattern)})
        if len(found) > 1:
            got = ", ".join(file.name for file in found)
            wanted = f"one {split} file for {spec.name}"
            raise ValueError(f"{folder}: expected {wanted}, got {got}")
        if found:
            return found[0], start, stop
    expected = [file.pattern for file in named] + [f"{name}.*" for name in usual]
    present = sorted(file.name for file in folder.iterdir())
    raise FileNotFoundError(
        f"{folder}: expected a {split} file for {spec.name} "
        f"({', '.join(expected)}), found {', '.join(present) or 'nothing'}"
    )


def hub_source(spec: TaskSpec) -> Callable[[str], SourceTable]:
    """Returns a function from the name of a split to its rows on the hub."""
    if not spec.hub:
        wanted = f"a folder of files for {spec.name}, which is not on the hub"
        raise ValueError(f"path: expected {wanted}")
    try:
        import datasets  # pyrefly: ignore[missing-import]
    except ImportError as error:
        raise ImportError(
            f"reading {spec.name} from the hub needs the package datasets: "
            "pip install icltheory[llm], or give the path of local files"
        ) from error
    name = "/".join(spec.hub)

    def read(split: str) -> SourceTable:
        try:
            rows = datasets.load_dataset(*spec.hub, split=split)
        except Exception as error:  # any error means that it cannot be had
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise FileNotFoundError(
                f"{name}: expected a data set on the hub or in its cache, got {said}; "
                "or give the path of local files"
            ) from error
        return SourceTable(f"{name}[{split}]", tuple(_rows_of(rows)))

    return read


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
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: expected one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file, found none")
    refuse_pointer(path)
    if path.suffix == ".parquet":
        rows = _parquet_rows(path)
    elif path.suffix in (".jsonl", ".json"):
        rows = _json_rows(path, _text_of(path))
    elif path.suffix == ".xml":
        rows = _xml_rows(path, _text_of(path))
    else:
        cells = _csv_cells if path.suffix == ".csv" else _tab_cells
        rows = _named(path, cells(path, _text_of(path)), keys, headerless)
    return SourceTable(str(path), tuple(rows))


def _text_of(path: Path) -> str:
    """Decodes a file as text; errors name the line."""
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
    try:
        values = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected parquet, got {error}") from None
    return _rows_of(values)


def _json_rows(path: Path, text: str) -> Iterator[SourceRow]:
    whole = text.lstrip().startswith("[")
    for number, part in [(1, text)] if whole else _lines(text):
        try:
            value = json.loads(part)
        except ValueError as error:
            line = getattr(error, "lineno", 1) + number - 1
            raise ValueError(
                f"{path}:{line}: expected a JSON object on each line, or one array of "
                f"objects, got {error}"
            ) from None
        values = enumerate(value, start=1) if whole else [(number, value)]
        for line, each in values:
            if not isinstance(each, dict):
                got = json.dumps(each)[:60]
                raise ValueError(f"{path}:{line}: expected a JSON object, got {got}")
            yield _row_of(each, line)


def _rows_of(values: Iterable[Mapping[str, Any]]) -> Iterator[SourceRow]:
    return (_row_of(value, number) for number, value in enumerate(values, start=1))


def _row_of(values: Mapping[str, Any], line: int) -> SourceRow:
    """Converts a row's values to strings; numbers are formatted as in JSON."""
    columns, no_text = {}, {}
    for name, value in values.items():
        number = isinstance(value, (int, float, Decimal)) and abs(value) < math.inf
        if isinstance(value, str):
            columns[name] = value
        else:
            text = json.dumps(value, default=str).strip('"')  # Decimal is no JSON
            (columns if number else no_text)[name] = text
    return SourceRow(columns, line, no_text)


def _tab_cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in _lines(text))


def _csv_cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        said = f"expected a csv record, got {error}"
        raise ValueError(f"{path}:{start}: {said}") from None


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
                wanted = f"a header with one of {', '.join(keys)}"
                raise ValueError(f"{path}:{number}: expected {wanted}, got {cells}")
        if len(cells) != len(names):
            wanted = f"{len(names)} columns ({', '.join(names)})"
            raise ValueError(f"{path}:{number}: expected {wanted}, got {len(cells)}")
        yield SourceRow(dict(zip(names, cells, strict=True)), number)


def _xml_rows(path: Path, text: str) -> Iterator[SourceRow]:
    """Reads XML items, with attributes and the texts of children as columns."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        line = error.position[0]
        raise ValueError(f"{path}:{line}: expected XML, got {error}") from None
    for number, item in enumerate(root.iter("item"), start=1):
        texts = {child.tag: "".join(child.itertext()) for child in item}
        yield SourceRow(item.attrib | texts, number)
