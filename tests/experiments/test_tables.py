"""Tables of reports in narrow terminals."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from experiments import frame
from experiments.frame import Report, table
from experiments.frame.report import as_data, fitting


def a_table(rows, *heads):
    made = table(rows, [*heads], "title")
    made.caption = "caption"
    return made


ROWS = [
    (task, module, "0.5000\n\\[0.450, 0.550]", "0.6000\n\\[0.550, 0.650]", "0.25")
    for task in ("topic", "sentiment")
    for module in ("mlp", "attn")
]
HEADS = ("task", "module", "validation", "test", "p")


@pytest.mark.parametrize("width", [40, 50, 80])
def test_no_cell_is_cut_and_every_part_tells_its_rows(width):
    made = a_table(ROWS, *HEADS)
    console = Console(width=width)
    parts = fitting(made, console)
    assert len(parts) == {40: 3, 50: 2, 80: 1}[width]
    found = [as_data(part) for part in parts]
    assert all(part["columns"][:2] == ["task", "module"] for part in found)
    columns = [head for part in found for head in part["columns"][2:]]
    assert columns == list(HEADS[2:])
    assert [row[2] for row in found[0]["rows"]] == ["0.5000\n[0.450, 0.550]"] * 4
    assert found[0]["title"] == "title"
    assert found[-1]["caption"] == "caption"
    assert "title" not in [part["title"] for part in found[1:]]
    with console.capture() as printed:
        Report({}, tables=[made]).print(console)
    text = printed.get()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in (*HEADS, "topic", "sentiment", "[0.450, 0.550]", "0.25"):
        assert word in text


def test_one_column_wider_than_the_terminal_stands_alone():
    made = a_table([("1", "x" * 60, "2")], "k", "wide", "last")
    parts = fitting(made, Console(width=30))
    heads = [[column.header for column in part.columns] for part in parts]
    assert heads == [["k", "wide"], ["k", "last"]]


def test_rows_that_nothing_tells_apart_keep_their_first_column():
    rows = [("same", "y" * 20, "z" * 20)] * 2
    parts = fitting(a_table(rows, "a", "b", "c"), Console(width=40))
    assert [len(part.columns) for part in parts] == [2, 2]


@pytest.mark.parametrize("width", [80, 120])
def test_no_word_of_the_stored_tables_is_cut(width):
    """Also not where columns have to wrap."""
    results = Path(frame.__file__).parents[1] / "results"
    stored = [json.loads(p.read_text()) for p in results.glob("*/result.json")]
    tables = [t for one in stored for t in one["tables"] if isinstance(t, dict)]
    assert len(tables) > 50
    for one in tables:
        made = Table(title=escape(one["title"]))
        for place, head in enumerate(one["columns"]):
            made.add_column(escape(head), no_wrap=not place)
        for row in one["rows"]:
            made.add_row(Text(row[0]), *map(escape, row[1:]))
        console = Console(width=width, file=io.StringIO())
        Report({}, tables=[made]).print(console)
        printed = console.file.getvalue()
        cells = [cell for row in [one["columns"], *one["rows"]] for cell in row]
        words = {word for cell in cells for word in cell.split()}
        assert "…" not in printed
        assert not [word for word in words if word not in printed]


def test_rows_are_formatted_by_columns_or_written_as_they_are():
    rows = [{"k": 1, "risk": 0.25}, {"k": 2, "risk": 0.125}]
    made = table(rows, {"examples": "{k}", "error": "{risk:.2f}"}, "risks")
    found = {"columns": ["examples", "error"], "rows": [["1", "0.25"], ["2", "0.12"]]}
    assert as_data(made) == {"title": "risks", **found, "caption": ""}
    plain = as_data(table(rows))
    assert plain["columns"] == ["k", "risk"]
    assert plain["rows"] == [["1", "0.25"], ["2", "0.125"]]
    assert as_data(table([]))["rows"] == []
