"""Task declarations in YAML files: what they mean, and every complaint in one line."""

import re
import sys
from pathlib import Path

import pytest

from icltheory.bridge.tasks import (
    SCORINGS,
    TASKS,
    File,
    is_declaration_file,
    load_task,
    read_task_spec,
    task_spec,
)
from tests.bridge.tasks_data import jsonl
from tests.bridge.test_tasks_user import WEATHER, reports

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tasks.md"
TEXT = """\
name: weather
fields:
  text: "{report}"
labels:
  label: [dry, wet]
prompt:
  demonstration: "{text!t} It is {label}.\\n"
  query: "{text!t} It is"
  words: [dry, wet]
split:
  per_class: 2
  validation: rest
"""


@pytest.fixture
def folder(tmp_path):
    jsonl(tmp_path / "train.jsonl", reports(["dry", "wet"] * 4))
    jsonl(tmp_path / "test.jsonl", reports(["wet", "dry", "wet"]))
    return tmp_path


def written(folder, text, name="weather.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_is_what_the_declaration_is(folder):
    path = written(folder, TEXT)
    assert load_task(path) == load_task(str(path)) == load_task(WEATHER, folder)
    spec = read_task_spec(path)
    assert spec.folder == str(folder)
    assert spec.recipes == WEATHER.recipes
    assert task_spec(WEATHER) is WEATHER
    assert task_spec("rte") is TASKS["rte"]
    assert is_declaration_file(path)


def test_data_are_relative_to_the_declaration(folder, monkeypatch):
    (folder / "tasks").mkdir()
    path = written(folder / "tasks", TEXT + "folder: ..\n", "weather.yml")
    monkeypatch.chdir("/")
    assert load_task(path).test == load_task(WEATHER, folder).test
    monkeypatch.chdir(folder)
    assert load_task("tasks/weather.yml").test == load_task(WEATHER, folder).test
    inside = written(folder, TEXT.replace("name: weather\n", ""), "rain.yaml")
    assert load_task(inside).name == "rain"
    # A path given beside the declaration comes first.
    assert load_task(path, folder) == load_task(WEATHER, folder)
    with pytest.raises(FileNotFoundError, match="no such folder of files for weather"):
        load_task(path, folder / "nowhere")


def test_every_field_can_be_written(folder):
    text = """
kind: classification
fields: {text: ["{report}", "{title} {body}"]}
labels:
  - [label, [no, yes]]
  - [label, [0, 01]]
hub: [someone/weather]
files:
  - {split: train, pattern: "reports*.tsv", start: 1, stop: 40}
  - {split: test, pattern: held_out.tsv}
headerless: [[report, label]]
recipes:
  paper: &paper
    prompt: {demonstration: "{text}: {label}", query: "{text}:", words: [no, yes]}
    scoring: average_log_likelihood
    merge: [1, 0]
  authors_code: *paper
"""
    spec = read_task_spec(written(folder, text))
    assert (spec.name, spec.folder, spec.hub) == ("weather", "", ("someone/weather",))
    assert spec.fields == {"text": ("{report}", "{title} {body}")}
    assert spec.labels == (("label", ("no", "yes")), ("label", ("0", "01")))
    assert spec.files == (
        File("train", "reports*.tsv", 1, 40),
        File("test", "held_out.tsv"),
    )
    assert spec.headerless == (("report", "label"),)
    recipe = spec.recipe("paper")
    assert recipe == spec.recipe("authors_code")
    assert recipe.prompt.words == ("no", "yes")
    assert (recipe.merge, recipe.split.keep) == ((1, 0), None)
    one = TEXT.replace("prompt:", "recipes:\n  prompt:").split("split:")[0]
    one = re.sub(r"(?m)^  (demonstration|query|words)", r"    \1", one)
    assert read_task_spec(written(folder, one)).recipe("paper").split.per_class == 5
    null = TEXT + "  keep: null\n  order: [1, 0]\n"
    split = read_task_spec(written(folder, null)).recipe("paper").split
    assert (split.keep, split.order) == (None, (1, 0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prompt:", "promt:", " promt: expected a field among name, fields.*prompt"),
        ("  query", "  question", " prompt: .*missing required field `query`"),
        (
            "  query",
            "  zero: a\n  query",
            " prompt.zero: expected a field among demonstration, query",
        ),
        ("per_class: 2", "per_clas: 2", " split.per_clas: expected a field among seed"),
        ('fields:\n  text: "{report}"\n', "", " .*missing required field `fields`"),
        ("name: weather", "name: [a]", " name: expected `str`, got `array`"),
        ("name: weather", "folder: [a]", " folder: expected `str`, got `array`"),
        ("name: weather", "hub: a", " hub: expected `array`, got `str`"),
        ("name: weather", "name: a\nname: b", "1: expected YAML, got two entries of"),
        ("words: [dry, wet]", "words: dry", " prompt.words: .* `array`, got `str`"),
        ("per_class: 2", "per_class: two", " split.per_class: .* `int`, got `str`"),
        ("per_class: 2", "per_class: 2.5", " split.per_class: .* `int`, got `str`"),
        (
            "per_class: 2",
            "per_class: -1",
            " split: per_class: .* integer >= 0",
        ),
        ("validation: rest", "validation: train", " split: validation: .* one of"),
        ("  label: [dry, wet]", "  - [label]", " labels.0.: .* length 2, got 1"),
        ("  label: [dry, wet]", "  label: [dry]", " labels: expected values for 2"),
        ("{text!t} It is {label}", "{text!t It is {label}", " template: expected .*"),
        ('{text!t} It is"', '{txt} It is"', " template: expected fields among text"),
        ('"{report}"', '"{report"', " fields: expected a format string .*'{report'"),
        ("fields:\n", "fields: [\n", "4: expected YAML, got "),
        ("name: weather", "\tname: weather", "1: expected YAML, got found ch"),
    ],
)
def test_what_is_wrong_is_named_with_its_field(folder, old, new, message):
    assert old in TEXT
    path = written(folder, TEXT.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"^{path}:{message}") as caught:
        read_task_spec(path)
    assert "\n" not in str(caught.value)


def test_a_tag_has_no_effect(folder):
    tagged = TEXT.replace("split:", "split: !new:os.system").replace("[dry", "[!x dry")
    assert read_task_spec(written(folder, tagged)).recipes == WEATHER.recipes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a mapping of fields, got None"),
        ("- a\n", r"expected a mapping of fields, got \['a'\]"),
        ("a: 1\n---\nb: 2\n", "expected YAML, got but found another document"),
        ("a: \x07\n", "expected YAML, got unacceptable character"),
    ],
)
def test_what_is_no_declaration(folder, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_task_spec(written(folder, text))
    assert "\n" not in str(caught.value)


def test_a_recipe_stands_in_one_place(folder):
    both = TEXT + "recipes: {prompt: {demonstration: a, query: b}}\n"
    with pytest.raises(ValueError, match="expected inside recipes"):
        read_task_spec(written(folder, both))
    text = "fields: {text: a}\nlabels: {label: [a]}\nrecipes: "
    with pytest.raises(ValueError, match="recipes: expected a mapping, got .paper"):
        read_task_spec(written(folder, text + "paper"))


def test_files_that_are_not_there_or_of_another_kind(folder):
    with pytest.raises(FileNotFoundError, match="no.yaml: no such declaration file"):
        load_task(folder / "no.yaml")
    with pytest.raises(ValueError, match=r"path: expected a file of .yaml or .yml"):
        read_task_spec(written(folder, "{}", "weather.json"))
    with pytest.raises(
        ValueError, match=r"name: expected one of sst2.*\.yml\), got 'w"
    ):
        load_task("weather.toml", folder)
    path = folder / "weather.yaml"
    path.write_bytes(b"name: a\n\xff\n")
    with pytest.raises(ValueError, match="weather.yaml: expected UTF-8"):
        read_task_spec(path)
    with pytest.raises(ValueError, match="split: expected one of 'train'"):
        File("dev", "dev.tsv")


@pytest.mark.parametrize("package", ["yaml", "msgspec"])
def test_the_packages_that_read_yaml_are_an_extra(folder, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"msgspec: pip install icltheory\[llm\]"):
        read_task_spec(written(folder, TEXT))


def test_the_example_of_the_page_prints_what_is_shown(tmp_path, monkeypatch, capsys):
    page, _ = PAGE.read_text().split("## Tasks of lm-evaluation-harness")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    files = [text for kind, text in blocks if kind in ("yaml", "json")]
    names = ("weather.yaml", "train.jsonl", "test.jsonl")
    for name, text in zip(names, files, strict=True):
        written(tmp_path, text, name)
    monkeypatch.chdir(tmp_path)
    code = "".join(text for kind, text in blocks if kind == "python")
    shown, errors = [text for kind, text in blocks if kind == "text"]
    found = {}
    exec(code, found)
    assert found["calibrated"].scoring == "contextual_calibration"
    table = page.split("## Scorings")[1].split("## Errors")[0]
    assert re.findall(r"(?m)^\| `(\w+)` \|", table) == list(SCORINGS)
    assert capsys.readouterr().out == shown
    first, second, third = errors.splitlines()
    mistakes = [
        (first, names[0], "words: [dry, wet]", "words: dry"),
        (second, names[0], "fields:", "field:"),
        (third, names[2], '"dry"', '"hail"'),
    ]
    for message, name, old, new in mistakes:
        whole = dict(zip(names, files, strict=True))[name]
        assert old in whole
        written(tmp_path, whole.replace(old, new), name)
        with pytest.raises(ValueError, match="expected") as caught:
            load_task("weather.yaml")
        assert str(caught.value) == message
        written(tmp_path, whole, name)
