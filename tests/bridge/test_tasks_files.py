"""Reading task files, and complaints that name the file and the line."""

import json
import re
import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest

from icltheory.bridge.tasks.files import read_table
from tests.bridge.tasks_data import lines


def columns(table):
    return [row.columns for row in table.rows]


def test_jsonl_with_a_mark_and_blank_lines(tmp_path):
    path = tmp_path / "train.jsonl"
    lines(path, ['{"text": "a\u2028b", "label": 1}', "", '{"label": true}'], "\ufeff")
    table = read_table(path)
    assert columns(table) == [{"text": "a\u2028b", "label": "1"}, {"label": "true"}]
    assert [row.line for row in table.rows] == [1, 3]
    assert table.origin == str(path)


def test_tabs_keep_quotation_marks_and_lines_end_at_line_feeds(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_bytes(b'text\tlabel\r\n"one\t0\r\ntwo "\rtoo\t1\n')
    assert columns(read_table(path)) == [
        {"text": '"one', "label": "0"},
        {"text": 'two "\rtoo', "label": "1"},
    ]


def test_csv_takes_quotation_marks_away_and_counts_lines(tmp_path):
    path = tmp_path / "train.csv"
    lines(path, ["text,label", '"a ""b""', 'c",1', "d,0"])
    table = read_table(path)
    assert columns(table)[0] == {"text": 'a "b"\nc', "label": "1"}
    assert [row.line for row in table.rows] == [2, 4]


def test_a_layout_is_taken_by_its_number_of_columns(tmp_path):
    path = tmp_path / "train.csv"
    lines(path, ['"3","title"', '"1","other"'])
    layouts = (("a", "b", "c"), ("class_index", "title"))
    table = read_table(path, keys=("class_index", "label"), headerless=layouts)
    assert columns(table)[1] == {"class_index": "1", "title": "other"}


def test_items_of_xml_are_attributes_and_children(tmp_path):
    path = tmp_path / "train.xml"
    lines(path, ["<list>", '<item id="1">', "<p>a &amp; b</p>", "</item>", "</list>"])
    table = read_table(path)
    assert columns(table) == [{"id": "1", "p": "a & b"}]
    assert table.rows[0].line == 1


@pytest.mark.parametrize(
    ("name", "content", "line", "complaint"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', 2, "expected a JSON object"),
        ("a.jsonl", '{"a": 1}\n\n[1]\n', 3, "expected a JSON object, got [1]"),
        ("a.json", '{\n "a": 1}', 1, "on each line, or one array of objects, got"),
        ("a.json", '[{"a": 1},\n{"a": ]', 2, "one array of objects, got"),
        ("a.json", "1" * 5000, 1, "expected a JSON object"),
        ("a.tsv", "x\tlabel\nx\t1\ny\n", 3, "expected 2 columns (x, label), got 1"),
        ("a.txt", "label\tx\n1\t2\t3\n", 2, "expected 2 columns (label, x), got 3"),
        ("a.csv", 'label,x\n1,2\n3,"4\n', 3, "expected a csv record"),
        ("a.csv", "x,y\n", 1, "expected a header with one of label"),
        ("a.xml", "<list>\n<item>\n</list>\n", 3, "expected XML"),
    ],
)
def test_broken_lines_are_named(tmp_path, name, content, line, complaint):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(complaint)) as error:
        read_table(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert path.read_text() == content


def test_a_broken_byte_is_named_with_its_line(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"text\tlabel\nx\t1\n\xff\t0\n")
    with pytest.raises(ValueError, match="a.tsv:3: expected UTF-8"):
        read_table(path)


def test_an_unknown_ending(tmp_path):
    with pytest.raises(ValueError, match="a.xlsx: expected one of .jsonl"):
        read_table(tmp_path / "a.xlsx")


@pytest.mark.parametrize(("ending", "indent"), [("json", None), ("jsonl", 1)])
def test_an_array_of_objects_is_read_with_its_rows(tmp_path, ending, indent):
    values = [{"a": "}{"}, {"a": "[\\n"}, {"a": 2.5}]
    path = tmp_path / f"a.{ending}"
    path.write_text("\ufeff" + json.dumps(values, indent=indent), "utf-8")
    table = read_table(path)
    assert columns(table) == [{"a": "}{"}, {"a": "[\\n"}, {"a": "2.5"}]
    assert [row.line for row in table.rows] == [1, 2, 3]
    path.write_text('[{"a": 1}, [2]]')
    with pytest.raises(ValueError, match=r":2: expected a JSON object, got \[2\]"):
        read_table(path)


def test_parquet_is_read_where_pyarrow_is(tmp_path, monkeypatch):
    path, values = tmp_path / "a.parquet", [{"a": "x", "n": Decimal("1.5"), "z": None}]
    path.write_bytes(b"PAR1")
    table = SimpleNamespace(to_pylist=lambda: values)
    parquet = SimpleNamespace(read_table=lambda file: table)
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(parquet=parquet))
    (row,) = read_table(path).rows
    assert row == ({"a": "x", "n": "1.5"}, 1, {"z": "null"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=f"{path}: parquet .*pip install pyarrow"):
        read_table(path)


def test_an_empty_child_of_xml_is_an_empty_text(tmp_path):
    path = tmp_path / "a.xml"
    lines(path, ["<list>", "<item><p/><q> </q></item>", "</list>"])
    assert columns(read_table(path)) == [{"p": "", "q": " "}]
