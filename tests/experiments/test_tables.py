"""Tables of reports in narrow terminals."""

import pytest
from rich.console import Console
from rich.table import Table

from experiments._frame.report import Report
from experiments._frame.tables import as_data, fitting


def a_table(rows, *heads):
    table = Table(title="title", caption="caption")
    for head in heads:
        table.add_column(head, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


ROWS = [
    (task, module, "0.5000\n\\[0.450, 0.550]", "0.6000\n\\[0.550, 0.650]", "0.25")
    for task in ("topic", "sentiment")
    for module in ("mlp", "attn")
]
HEADS = ("task", "module", "validation", "test", "p")


@pytest.mark.parametrize("width", [40, 50, 80])
def test_no_cell_is_cut_and_every_part_tells_its_rows(width):
    table = a_table(ROWS, *HEADS)
    console = Console(width=width)
    parts = fitting(table, console)
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
        Report({}, tables=[table]).print(console)
    text = printed.get()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in (*HEADS, "topic", "sentiment", "[0.450, 0.550]", "0.25"):
        assert word in text


def test_one_column_wider_than_the_terminal_stands_alone():
    table = a_table([("1", "x" * 60, "2")], "k", "wide", "last")
    parts = fitting(table, Console(width=30))
    heads = [[column.header for column in part.columns] for part in parts]
    assert heads == [["k", "wide"], ["k", "last"]]


def test_rows_that_nothing_tells_apart_keep_their_first_column():
    rows = [("same", "y" * 20, "z" * 20)] * 2
    parts = fitting(a_table(rows, "a", "b", "c"), Console(width=40))
    assert [len(part.columns) for part in parts] == [2, 2]


def test_no_word_of_columns_that_wrap_is_cut():
    table = Table()
    for head in ("model", "rule", "validation", "choice"):
        table.add_column(head)
    table.add_row(
        "GPT-2", "exhaustive", "+0.0 %", "attn 0 rank 57, one more and another"
    )
    console = Console(width=46)
    with console.capture() as printed:
        Report({}, tables=[table]).print(console)
    lines = printed.get().splitlines()
    assert max(map(len, lines)) <= 46
    assert "exhaustive" in printed.get()
    assert "validation" in printed.get()
    assert "another" in printed.get()
