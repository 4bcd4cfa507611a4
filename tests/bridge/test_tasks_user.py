"""Tasks of one's own, where files are looked for, the hub, and every complaint."""

import dataclasses
import doctest
import math
import sys
from types import SimpleNamespace

import pytest

import icltheory.bridge.tasks as tasks
from icltheory.bridge.tasks import (
    File,
    PromptTemplate,
    Split,
    TaskRecipe,
    TaskSpec,
    load_table,
    load_task,
)
from icltheory.bridge.tasks.task import fill
from tests.bridge.tasks_data import jsonl, lines

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
    with pytest.raises(
        FileNotFoundError, match="train.jsonl: expected a folder with a"
    ):
        load_task(WEATHER, folder / "train.jsonl")
    spec = TaskSpec(
        "weather",
        WEATHER.fields,
        WEATHER.labels,
        TaskRecipe(
            WEATHER.recipes.prompt, Split(per_class=1, validation=2, test="rest")
        ),
    )
    task = load_task(spec, folder / "train.jsonl")
    assert (len(task.validation), len(task.test)) == (4, 2)


def test_order_and_choice_of_demonstrations(folder):
    task = load_task(WEATHER, folder)
    other = task.with_demonstrations(order_seed=3)
    assert sorted(e.index for e in other.demonstrations) == sorted(
        e.index for e in task.demonstrations
    )
    assert other.demonstrations != task.demonstrations
    assert other == task.with_demonstrations(order_seed=3)
    assert other.validation == task.validation
    assert task.with_demonstrations(task.test[:1]).prefix() == "Day 0. It is wet.\n"
    with pytest.raises(
        ValueError, match="shots: expected at most 4 for weather, got 5"
    ):
        task.prefix(5)
    with pytest.raises(ValueError, match="split: expected one of"):
        task.examples("train")


def test_templates_name_their_fields():
    assert fill("{a!t}|{a!e}|{a}|{b}", {"a": " {x} ", "b": "1"}) == "{x}| {x}| {x} |1"
    with pytest.raises(ValueError, match="template: expected fields among a, got 'c'"):
        fill("{c}", {"a": "1"})


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
        with pytest.raises(ValueError, match="profile: expected one of 'paper'"):
            load_task(task, folder, profile="mine")
    for given in ("question_seed", "demonstration_seed", "reserved"):
        with pytest.raises(ValueError, match=f"^{given}: expected an integer >= 0"):
            load_task(WEATHER, folder, **{given: -1})


def test_missing_folder_and_file(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder .* sst2"):
        load_task("sst2", tmp_path / "nowhere")
    (folder / "test.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match="expected a test file .*train.jsonl"):
        load_task(WEATHER, folder)


def test_two_files_for_one_split(folder):
    lines(folder / "train.tsv", ["report\tlabel"])
    with pytest.raises(ValueError, match="one train file .*train.jsonl, train.tsv"):
        load_task(WEATHER, folder)


def test_names_that_only_begin_right_and_slices(folder):
    (folder / "train.jsonl").rename(folder / "train_small.jsonl")
    assert len(load_task(WEATHER, folder).validation) == 4
    spec = TaskSpec(
        "weather",
        WEATHER.fields,
        WEATHER.labels,
        WEATHER.recipes,
        files=(File("train", "no.*"), File("train", "train*", 2, 7)),
    )
    task = load_task(spec, folder)
    assert len(task.demonstrations) + len(task.validation) == 5


def test_labels_and_columns_that_are_not_there(folder):
    jsonl(folder / "test.jsonl", [*reports(["wet"]), {"report": "x", "label": "hail"}])
    with pytest.raises(ValueError, match=r"test.jsonl:2: .*dry, wet.*'hail'"):
        load_task(WEATHER, folder)
    jsonl(folder / "test.jsonl", [{"report": "x"}])
    with pytest.raises(ValueError, match=r"test.jsonl:1: expected a label .*none"):
        load_task(WEATHER, folder)
    jsonl(folder / "test.jsonl", [{"label": "wet"}])
    with pytest.raises(ValueError, match=r"test.jsonl:1: expected columns for 'text'"):
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
    jsonl(folder / "test.jsonl", [{"report": value, "label": "wet"}])
    with pytest.raises(
        ValueError, match=rf"jsonl:1: expected columns .*report is {shown}"
    ):
        load_task(WEATHER, folder)
    jsonl(folder / "test.jsonl", [{"report": "x", "label": value}])
    with pytest.raises(
        ValueError, match=rf"jsonl:1: expected a label .*label is {shown}"
    ):
        load_task(WEATHER, folder)
    more = {"report": "x", "label": "wet", "source": value}
    jsonl(folder / "test.jsonl", [more])
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


@pytest.mark.parametrize("value", [None, math.nan, 5, ["a"]])
def test_a_template_is_filled_with_texts_alone(value):
    with pytest.raises(ValueError, match="^fields: expected a text for 'a', got"):
        fill("{b}", {"b": "x", "a": value})


def test_an_example_without_text_is_refused(folder):
    jsonl(folder / "test.jsonl", [*reports(["wet"]), {"report": " ", "label": "wet"}])
    with pytest.raises(ValueError, match=r"test.jsonl:2: expected a text in text"):
        load_task(WEATHER, folder)


def test_too_few_rows(folder):
    jsonl(folder / "train.jsonl", reports(["dry", "wet", "dry"]))
    with pytest.raises(
        ValueError, match="weather: expected at least 2 .* 'wet', got 1"
    ):
        load_task(WEATHER, folder)
    lines(folder / "train.tsv", ["sentence\tlabel", "x\t1"])
    (folder / "train.jsonl").unlink()
    with pytest.raises(
        ValueError, match="sst2: expected at least 4005 .* 'pos', got 1"
    ):
        load_task("sst2", folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": PromptTemplate("d", "q")}, "words: expected"),
        (
            {"prompt": PromptTemplate("d", "q", ("a", "b", "c"))},
            "labels: expected values for 3",
        ),
        (
            {"prompt": PromptTemplate("d", "q", ("a", "b"), scored=("a",))},
            "scored: expected 2",
        ),
        ({"split": Split(order=(0, 0))}, "order: expected each class"),
        ({"merge": (0,)}, "labels: expected"),
        (
            {"merge": (0, 5)},
            r"labels: expected values for 2 .* weather, got .* merged to \(0, 5\)",
        ),
        (
            {"prompt": PromptTemplate("{label}", "{label}", ("a", "b"))},
            "template: expected fields among text, got 'label'",
        ),
        (
            {"prompt": PromptTemplate("{text}\n", "q", ("a", "b"))},
            r"demonstration: expected a template with \{label\} for weather",
        ),
    ],
)
def test_declarations_that_do_not_fit_together(change, message):
    recipe = {"prompt": WEATHER.recipes.prompt, **change}
    with pytest.raises(ValueError, match=message):
        TaskSpec("weather", WEATHER.fields, WEATHER.labels, TaskRecipe(**recipe))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Split(per_class=-1), "per_class: expected an integer >= 0, got -1"),
        (lambda: Split(validation="train"), "validation: expected"),
        (lambda: Split(validation=-1), "validation: expected an integer >= 0, got -1"),
        (lambda: Split(keep=-1), "keep: expected an integer >= 0, got -1"),
        (lambda: Split(seed=-1), "seed: expected an integer >= 0, got -1"),
        (lambda: Split(test="train"), "test: expected"),
        (lambda: TaskRecipe(PromptTemplate("", ""), scoring="f1"), "scoring: expected"),
        (
            lambda: TaskRecipe(PromptTemplate("", ""), denominator="n+1"),
            "denominator: expected",
        ),
        (lambda: TaskSpec("a", {}, (), {}, kind="span"), "kind: expected"),
    ],
)
def test_declarations_that_name_what_does_not_exist(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_hub_gives_the_same_task(monkeypatch, folder):
    local = load_task(WEATHER, folder)
    rows = {
        "train": reports([0, 1] * 4),
        "test": reports([1, 0, 1]),
    }
    asked = []

    def load_dataset(*name, split):
        asked.append((*name, split))
        return rows[split]

    monkeypatch.setitem(
        sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset)
    )
    spec = TaskSpec(
        "weather",
        WEATHER.fields,
        (*WEATHER.labels, ("label", ("0", "1"))),
        WEATHER.recipes,
        hub=("someone/weather", "small"),
    )
    task = load_task(spec)
    assert asked == [
        ("someone/weather", "small", "train"),
        ("someone/weather", "small", "test"),
    ]
    assert task.demonstrations == local.demonstrations
    assert task.test == local.test
    assert task.sources[0] == "train: someone/weather/small[train] (8 rows)"
    rows["test"][1]["label"] = -1
    with pytest.raises(ValueError, match=r"weather/small\[test\]:2: .*'-1'"):
        load_task(spec)


def test_a_hub_that_cannot_be_reached_is_named_in_a_line(monkeypatch):
    def load_dataset(*name, split):
        raise ConnectionError("Couldn't reach it on the Hub\nand more")

    hub = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", hub)
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
    again, other = (
        load_table(path, text="said", label="sky", per_class=2, seed=seed)
        for seed in (3, 4)
    )
    assert again == task
    assert other.test != task.test


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
