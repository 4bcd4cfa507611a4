"""Tasks of one's own, in Python and in YAML files, and every complaint."""

import dataclasses
import doctest
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import icltheory.bridge.tasks as tasks
from icltheory.bridge.tasks import (
    SCORINGS,
    TASKS,
    File,
    PromptTemplate,
    Split,
    TaskRecipe,
    TaskSpec,
    is_declaration_file,
    load_table,
    load_task,
    read_task_spec,
    task_spec,
)
from icltheory.bridge.tasks.task import fill
from tests.bridge.tasks_data import jsonl, lines
from tests.raising import raises

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tasks.md"
WEATHER = TaskSpec(
    name="weather",
    fields={"text": "{report}"},
    labels=(("label", ("dry", "wet")),),
    recipes=TaskRecipe(
        PromptTemplate("{text!t} It is {label}.\n", "{text!t} It is", ("dry", "wet")),
        Split(per_class=2, validation="rest"),
    ),
)


def reports(labels):
    return [{"report": f"Day {i}. ", "label": label} for i, label in enumerate(labels)]


@pytest.fixture
def folder(tmp_path):
    jsonl(tmp_path / "train.jsonl", reports(["dry", "wet"] * 4))
    jsonl(tmp_path / "test.jsonl", reports(["wet", "dry", "wet"]))
    return tmp_path


def test_ten_lines_declare_a_task(folder):
    task = load_task(WEATHER, folder)
    assert [e.label for e in task.demonstrations] == [0, 1, 0, 1]
    assert task.class_counts("validation") == (2, 2)
    assert task.class_counts("test") == (1, 2)
    first = task.demonstrations[0].index
    assert task.prefix(1) == f"Day {first}. It is dry.\n"
    assert task.query(task.test[1]) == "Day 1. It is"
    assert task.options(task.test[1]) == (" dry", " wet")
    assert task.sources[0].endswith("train.jsonl (8 rows)")
    assert load_task(WEATHER, folder) == task


def test_the_example_of_the_package_runs():
    assert doctest.testmod(tasks).failed == 0
    source = tasks.__doc__.split(">>> weather = ")[1].split(">>> task")[0]
    assert len(source.strip().splitlines()) <= 10


def test_a_single_file_serves_as_training_rows(folder):
    file = folder / "train.jsonl"
    with raises(f"{file}: expected a folder with a test file", FileNotFoundError):
        load_task(WEATHER, file)
    split = Split(per_class=1, validation=2, test="rest")
    recipe = dataclasses.replace(WEATHER.recipes, split=split)
    task = load_task(dataclasses.replace(WEATHER, recipes=recipe), file)
    assert (len(task.validation), len(task.test)) == (4, 2)


def test_order_and_choice_of_demonstrations(folder):
    task = load_task(WEATHER, folder)
    other = task.with_demonstrations(order_seed=3)
    assert other.demonstrations != task.demonstrations
    assert {e.index for e in other.demonstrations} == {
        e.index for e in task.demonstrations
    }
    assert other == task.with_demonstrations(order_seed=3)
    assert other.validation == task.validation
    assert task.with_demonstrations(task.test[:1]).prefix() == "Day 0. It is wet.\n"
    with raises("shots: expected at most 4 for weather, got 5"):
        task.prefix(5)
    with raises("split: expected one of"):
        task.examples("train")


def test_templates_name_their_fields():
    assert fill("{a!t}|{a!e}|{a}|{b}", {"a": " {x} ", "b": "1"}) == "{x}| {x}| {x} |1"
    with raises("template: expected fields among a, got 'c'"):
        fill("{c}", {"a": "1"})
    for value in (None, math.nan, 5, ["a"]):
        with raises("fields: expected a text for 'a', got"):
            fill("{b}", {"b": "x", "a": value})


@pytest.mark.parametrize(
    "broken",
    [
        *("{text!z}", "{text", "text}", "{0}", "{}", "{text.x}"),
        *("{text.upper}", "{text[0]}", "{text:{text.upper}}"),
    ],
)
def test_broken_templates_are_named(broken):
    with pytest.raises(ValueError, match="^template: expected a format") as caught:
        fill(broken, {"text": "a"})
    assert repr(broken) in str(caught.value)
    column = broken.replace("text", "report")
    with pytest.raises(ValueError, match="^fields: expected a format") as caught:
        dataclasses.replace(WEATHER, fields={"text": column})
    assert f"'text' of {WEATHER.name}, got {column!r}" in str(caught.value)


def test_unknown_task_and_profile(folder):
    with pytest.raises(ValueError, match="name: expected one of sst2, agnews.*'imdb'"):
        load_task("imdb", folder)
    for task in ("sst2", WEATHER):
        with raises("profile: expected one of 'paper'"):
            load_task(task, folder, profile="mine")
    for given in ("question_seed", "demonstration_seed", "reserved"):
        with raises(f"{given}: expected an integer >= 0"):
            load_task(WEATHER, folder, **{given: -1})


def test_missing_folder_and_files_and_too_many(folder):
    where = folder / "nowhere"
    with raises(f"{where}: no such folder of files for sst2", FileNotFoundError):
        load_task("sst2", where)
    lines(folder / "train.tsv", ["report\tlabel"])
    with pytest.raises(ValueError, match="one train file .*train.jsonl, train.tsv"):
        load_task(WEATHER, folder)
    (folder / "train.tsv").unlink()
    (folder / "test.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match="expected a test file .*train.jsonl"):
        load_task(WEATHER, folder)


def test_names_that_only_begin_right_and_slices(folder):
    (folder / "train.jsonl").rename(folder / "train_small.jsonl")
    assert len(load_task(WEATHER, folder).validation) == 4
    files = (File("train", "no.*"), File("train", "train*", 2, 7))
    task = load_task(dataclasses.replace(WEATHER, files=files), folder)
    assert len(task.demonstrations) + len(task.validation) == 5


def test_labels_and_columns_that_are_not_there(folder):
    for row, message in (
        ({"report": "x", "label": "hail"}, ".*dry, wet.*'hail'"),
        ({"report": "x"}, "expected a label .*none"),
        ({"label": "wet"}, "expected columns for 'text'"),
        ({"report": " ", "label": "wet"}, "expected a text in text"),
    ):
        jsonl(folder / "test.jsonl", [*reports(["wet"]), row])
        with pytest.raises(ValueError, match=f"test.jsonl:2: {message}"):
            load_task(WEATHER, folder)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (["a", "b"], r'\["a", "b"\]'),
        ({"a": 1}, r'\{"a": 1\}'),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_what_is_no_text_is_named(folder, value, shown):
    row = {"report": "x", "label": "wet"}
    for name, wanted in (("report", "columns"), ("label", "a label")):
        jsonl(folder / "test.jsonl", [row | {name: value}])
        message = f"jsonl:1: expected {wanted} .*{name} is {shown}"
        with pytest.raises(ValueError, match=message):
            load_task(WEATHER, folder)
    jsonl(folder / "test.jsonl", [row | {"source": value}])
    assert len(load_task(WEATHER, folder).test) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((True, "true"), (7, "7"), (0.5, "0.5"), (10**400, str(10**400))),
        *((v, v) for v in ("NaN", "None", "null", "true")),
    ],
)
def test_what_is_text_in_json_is_it_in_a_cell(folder, value, text):
    jsonl(folder / "test.jsonl", [{"report": value, "label": "wet"}])
    assert load_task(WEATHER, folder).test[0].fields == {"text": text}
    (folder / "test.jsonl").unlink()
    lines(folder / "test.csv", ["report,label", f"{text},wet"])
    assert load_task(WEATHER, folder).test[0].fields == {"text": text}


@pytest.mark.usefixtures("as_for_a_user")
def test_labels_may_be_a_mapping_as_in_a_file():
    assert dataclasses.replace(WEATHER, labels=dict(WEATHER.labels)) == WEATHER


def test_too_few_rows(folder):
    jsonl(folder / "train.jsonl", reports(["dry", "wet", "dry"]))
    with raises("weather: expected at least 2 training rows of class 'wet', got 1"):
        load_task(WEATHER, folder)
    lines(folder / "train.tsv", ["sentence\tlabel", "x\t1"])
    (folder / "train.jsonl").unlink()
    with raises("sst2: expected at least 4005 training rows of class 'pos', got 1"):
        load_task("sst2", folder)


def weather(**recipe):
    recipe = TaskRecipe(**{"prompt": WEATHER.recipes.prompt, **recipe})
    return dataclasses.replace(WEATHER, recipes=recipe)


def prompted(*args, **how):
    return weather(prompt=PromptTemplate(*args, **how))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: prompted("d", "q"), "words: expected"),
        (lambda: prompted("d", "q", ("a", "b", "c")), "labels: expected values for 3"),
        (lambda: prompted("d", "q", ("a", "b"), scored=("a",)), "scored: expected 2"),
        (lambda: prompted("d", "q", ("a", "a")), "words: expected different words for"),
        (lambda: prompted("{label}", "{label}", ("a", "b")), "among text, got 'label'"),
        (lambda: prompted("{text}\n", "q", ("a", "b")), r"demonstration: .* \{label\}"),
        (lambda: weather(split=Split(order=(0, 0))), "order: expected each class"),
        (lambda: weather(merge=(0,)), "labels: expected"),
        (lambda: weather(merge=(0, 5)), r"labels: .* 2 .* got .* merged to \(0, 5\)"),
        (lambda: Split(per_class=-1), "per_class: expected an integer >= 0, got -1"),
        (lambda: Split(validation="train"), "validation: expected"),
        (lambda: Split(validation=-1), "validation: expected an integer >= 0, got -1"),
        (lambda: Split(keep=-1), "keep: expected an integer >= 0, got -1"),
        (lambda: Split(seed=-1), "seed: expected an integer >= 0, got -1"),
        (lambda: Split(test="train"), "test: expected"),
        (lambda: TaskRecipe(PromptTemplate("", ""), scoring="f1"), "scoring: expected"),
        (lambda: TaskRecipe(None, denominator="n+1"), "denominator: expected"),
        (lambda: TaskSpec("a", {}, (), {}, kind="span"), "kind: expected"),
        (lambda: File("dev", "dev.tsv"), "split: expected one of 'train'"),
    ],
)
@pytest.mark.usefixtures("as_for_a_user")
def test_declarations_that_do_not_fit_or_name_what_does_not_exist(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def fake_hub(monkeypatch, load_dataset):
    hub = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", hub)


def test_the_hub_gives_the_same_task(monkeypatch, folder):
    local = load_task(WEATHER, folder)
    rows = {"train": reports([0, 1] * 4), "test": reports([1, 0, 1])}
    asked = []

    def load_dataset(*name, split):
        asked.append((*name, split))
        return rows[split]

    fake_hub(monkeypatch, load_dataset)
    labels, name = (
        (*WEATHER.labels, ("label", ("0", "1"))),
        ("someone/weather", "small"),
    )
    spec = dataclasses.replace(WEATHER, labels=labels, hub=name)
    task = load_task(spec)
    assert asked == [(*name, "train"), (*name, "test")]
    assert task.demonstrations == local.demonstrations
    assert task.test == local.test
    assert task.sources[0] == "train: someone/weather/small[train] (8 rows)"
    rows["test"][1]["label"] = -1
    with pytest.raises(ValueError, match=r"weather/small\[test\]:2: .*'-1'"):
        load_task(spec)


def test_a_hub_that_cannot_be_reached_is_named_in_a_line(monkeypatch):
    def load_dataset(*name, split):
        raise ConnectionError("Couldn't reach it on the Hub\nand more")

    fake_hub(monkeypatch, load_dataset)
    with pytest.raises(FileNotFoundError, match="^[^ ]*sst2: expected .* the Hub; or"):
        load_task("sst2")


def test_the_hub_needs_a_name_and_its_package(monkeypatch):
    with pytest.raises(ValueError, match="path: expected a folder .* weather"):
        load_task(WEATHER)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install icltheory\[llm\]"):
        load_task("sst2")


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_with_two_named_columns_is_a_task(tmp_path, ending):
    path = tmp_path / f"reports.{ending}"
    rows = [(f"Day {i}.", ("wet", "dry", "no")[i % 3], i) for i in range(31)]
    if ending == "jsonl":
        jsonl(path, [dict(zip(("said", "sky", "n"), row, strict=True)) for row in rows])
    else:
        mark = "," if ending == "csv" else "\t"
        cells = [("said", "sky", "n"), *rows]
        lines(path, [mark.join(map(str, row)) for row in cells])
    task = load_table(path, text="said", label="sky", per_class=2, seed=3)
    assert (task.name, task.labels) == ("reports", ("dry", "no", "wet"))
    assert [e.label for e in task.demonstrations] == [0, 1, 2, 0, 1, 2]
    # The smallest class has 10 rows: 2, 4 and 4; the class "wet" has one more.
    assert task.class_counts("validation") == (4, 4, 4)
    assert task.class_counts("test") == (4, 4, 5)
    parts = (*task.demonstrations, *task.validation, *task.test)
    assert sorted(example.index for example in parts) == list(range(31))
    for example in parts:
        assert example.fields == {"text": f"Day {example.index}."}
        assert task.labels[example.label] == rows[example.index][1]
    first = task.demonstrations[0].index
    assert task.prefix(1) == f"Day {first}. : dry\n"
    assert task.query(task.test[0]) == f"Day {task.test[0].index}. :"
    how = {"text": "said", "label": "sky", "per_class": 2}
    assert load_table(path, **how, seed=3) == task
    assert load_table(path, **how, seed=4).test != task.test


def test_a_table_that_is_no_task(tmp_path):
    path = tmp_path / "reports.csv"
    lines(path, ["text,label", *["a,wet"] * 9])
    with pytest.raises(ValueError, match="expected two label words or more .* got wet"):
        load_table(path)
    lines(path, ["text,label", *["a,wet"] * 9, *["b,dry"] * 4])
    with pytest.raises(ValueError, match="reports: .* at least 5 .* 'dry', got 4"):
        load_table(path)
    with pytest.raises(ValueError, match="reports.csv:1: expected a header with .*sky"):
        load_table(path, label="sky")
    with pytest.raises(ValueError, match="reports.csv:2: expected columns for 'text'"):
        load_table(path, text="said", per_class=2)


# --- YAML files

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
    tagged = TEXT.replace("split:", "split: !new:os.system").replace("[dry", "[!x dry")
    assert read_task_spec(written(folder, tagged)).recipes == WEATHER.recipes


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
    prompt = PromptTemplate("{text}: {label}", "{text}:", ("no", "yes"))
    recipe = TaskRecipe(prompt, Split(), "average_log_likelihood", merge=(1, 0))
    assert spec == TaskSpec(
        "weather",
        {"text": ("{report}", "{title} {body}")},
        (("label", ("no", "yes")), ("label", ("0", "01"))),
        {"paper": recipe, "authors_code": recipe},
        hub=("someone/weather",),
        files=(File("train", "reports*.tsv", 1, 40), File("test", "held_out.tsv")),
        headerless=(("report", "label"),),
    )
    one = TEXT.replace("prompt:", "recipes:\n  prompt:").split("split:")[0]
    one = re.sub(r"(?m)^  (demonstration|query|words)", r"    \1", one)
    assert read_task_spec(written(folder, one)).recipe("paper").split.per_class == 5
    null = TEXT + "  keep: null\n  order: [1, 0]\n"
    split = read_task_spec(written(folder, null)).recipe("paper").split
    assert (split.keep, split.order) == (None, (1, 0))


ZERO = "  zero: a\n  query"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prompt:", "promt:", " promt: expected a field among name, fields.*prompt"),
        ("  query", "  question", " prompt: .*missing required field `query`"),
        ("  query", ZERO, " prompt.zero: expected a field among demonstration, query"),
        ('fields:\n  text: "{report}"\n', "", " .*missing required field `fields`"),
        ("name: weather", "name: [a]", " name: expected `str`, got `array`"),
        ("name: weather", "hub: a", " hub: expected `array`, got `str`"),
        ("name: weather", "name: a\nname: b", "1: expected YAML, got two entries of"),
        ("words: [dry, wet]", "words: dry", " prompt.words: .* `array`, got `str`"),
        ("per_class: 2", "per_class: 2.5", " split.per_class: .* `int`, got `str`"),
        ("per_class: 2", "per_class: -1", " split: per_class: .* integer >= 0"),
        ("  label: [dry, wet]", "  - [label]", " labels.0.: .* length 2, got 1"),
        ("  label: [dry, wet]", "  label: [dry]", " labels: expected values for 2"),
        ("{text!t} It is {label}", "{text!t It is {label}", " template: expected .*"),
        ('"{report}"', '"{report"', " fields: expected a format string .*'{report'"),
        ("fields:\n", "fields: [\n", "4: expected YAML, got "),
        (TEXT, "", " expected a mapping of fields, got None"),
        (TEXT, "a: 1\n---\n", "2: expected YAML, got but found another document"),
        (TEXT, "a: \x07\n", " expected YAML, got unacceptable character"),
        (TEXT, TEXT + "recipes: {prompt: {query: b}}\n", ".*: expected inside recipes"),
        (TEXT, "fields: {}\nrecipes: paper", " recipes: expected a mapping, got .p"),
    ],
)
def test_what_is_wrong_is_named_with_its_field(folder, old, new, message):
    assert old in TEXT
    path = written(folder, TEXT.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"^{path}:{message}") as caught:
        read_task_spec(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_of_another_kind(folder):
    path = folder / "no.yaml"
    with raises(f"{path}: no such declaration file", FileNotFoundError):
        load_task(path)
    with raises("path: expected a file of .yaml or .yml"):
        read_task_spec(written(folder, "{}", "weather.json"))
    with pytest.raises(
        ValueError, match=r"name: expected one of sst2.*\.yml\), got 'w"
    ):
        load_task("weather.toml", folder)
    path.write_bytes(b"name: a\n\xff\n")
    with raises(f"{path}: expected UTF-8"):
        read_task_spec(path)


@pytest.mark.parametrize("package", ["yaml", "msgspec"])
def test_the_packages_that_read_yaml_are_an_extra(folder, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"msgspec: pip install icltheory\[llm\]"):
        read_task_spec(written(folder, TEXT))


def test_the_example_of_the_page_prints_what_is_shown(tmp_path, monkeypatch, capsys):
    page, _ = PAGE.read_text().split("## Tasks of lm-evaluation-harness")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    texts = [text for kind, text in blocks if kind in ("yaml", "json")]
    names = ("weather.yaml", "train.jsonl", "test.jsonl")
    files = dict(zip(names, texts, strict=True))
    for name, text in files.items():
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
    mistakes = (
        (names[0], "words: [dry, wet]", "words: dry"),
        (names[0], "fields:", "field:"),
        (names[2], '"dry"', '"hail"'),
    )
    for message, (name, old, new) in zip(errors.splitlines(), mistakes, strict=True):
        assert old in files[name]
        written(tmp_path, files[name].replace(old, new), name)
        with pytest.raises(ValueError, match="expected") as caught:
            load_task("weather.yaml")
        assert str(caught.value) == message
        written(tmp_path, files[name], name)
