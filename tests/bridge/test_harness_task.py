"""Task files of lm-evaluation-harness: what they mean here, and what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from icltheory.bridge import evaluate, load_checkpoint, load_task
from icltheory.bridge.tasks import read_harness_task
from tests.bridge.tasks_data import jsonl

CHECKPOINT = Path(__file__).parents[2] / "experiments" / "small_lm" / "checkpoint"
COMMON = """\
task: pick
dataset_path: json
dataset_kwargs:
  data_files: {train: data/train.jsonl, dev: data/dev.jsonl, test: data/test.jsonl}
output_type: multiple_choice
training_split: train
validation_split: dev
test_split: test
"""
WORDS = """\
doc_to_text: "{{ text.strip() }} :"
doc_to_choice: ["blick", "dax", "wug"]
doc_to_target: label
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - metric: acc_norm
  - metric: acc_bytes
metadata: {version: 1.0}
tag: [mine]
"""
# White space in front of the answer, options of each row, and braces.
ENDINGS = """\
doc_to_text: "{{text}} {x} :\\n"
doc_to_choice: "{{[first, second.strip()]}}"
doc_to_target: "{{label}}"
target_delimiter: ""
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    vocabulary = json.loads((CHECKPOINT / "tokenizer.json").read_text())["model"]
    plain = sorted(word for word in vocabulary["vocab"] if word.isalpha())
    for split, count in (("train", 4), ("dev", 4), ("test", 12)):
        rows = [
            {
                "text": " ".join(rng.choice(plain, rng.integers(2, 5))),
                "first": str(rng.choice(plain)),
                "second": " ".join(rng.choice(plain, 2)),
                "label": i % 2,
            }
            for i in range(count)
        ]
        (tmp_path / "data").mkdir(exist_ok=True)
        jsonl(tmp_path / "data" / f"{split}.jsonl", rows)
    return tmp_path


def written(folder, text, name="pick.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def test_fixed_choices(folder):
    spec = read_harness_task(written(folder, COMMON + WORDS), "acc_norm")
    assert spec.labels == (
        ("label", ("0", "1", "2")),
        ("label", ("blick", "dax", "wug")),
    )
    task = load_task(spec)
    assert (task.name, task.scoring) == ("pick", "log_likelihood_per_character")
    assert task.demonstrations == ()
    assert (len(task.validation), len(task.test)) == (4, 12)
    example = task.test[3]
    assert task.query(example) == f"{example.fields['text']} :"
    assert task.options(example) == (" blick", " dax", " wug")
    assert example.label == 1
    # As the harness writes demonstrations.
    shown = task.with_demonstrations(task.validation[:1])
    assert shown.prefix() == f"{task.query(task.validation[0])} blick\n\n"


def test_the_path_stands_where_a_name_does(folder):
    path = written(folder, COMMON + WORDS)
    assert load_task(path) == load_task(read_harness_task(path))
    # A file without this entry is a declaration of this library.
    other = written(folder, (COMMON + WORDS).replace("doc_to_text", "text"), "o.yaml")
    with pytest.raises(
        ValueError, match="1: task: expected a field among name, fields"
    ):
        load_task(other)


def test_choices_of_each_row_and_white_space_before_the_answer(folder):
    task = load_task(read_harness_task(written(folder, COMMON + ENDINGS)))
    example = task.test[0]
    assert task.scoring == "log_likelihood"
    assert task.query(example) == f"{example.fields['text']} {{x}} :"
    first, second = (example.fields[name] for name in ("first", "second"))
    assert task.options(example) == (f"\n{first}", f"\n{second}")


def test_splits_and_files(folder):
    text = (COMMON + WORDS).replace("training_split: train\n", "")
    (folder / "data" / "train.jsonl").unlink()
    assert load_task(read_harness_task(written(folder, text))).demonstrations == ()
    only = text.replace("test_split: test\n", "")
    task = load_task(read_harness_task(written(folder, only)))
    assert len(task.test) == 4
    only = text.replace("validation_split: dev\n", "")
    task = load_task(read_harness_task(written(folder, only)))
    assert (task.validation, len(task.test)) == ((), 12)
    whole = text.replace("data/test.jsonl", os.fspath(folder / "data" / "test.jsonl"))
    (folder / "other").mkdir()
    path = written(folder / "other", whole.replace("data/dev", "../data/dev"))
    assert load_task(read_harness_task(path)).test == task.test
    (folder / "data" / "test.jsonl").unlink()
    jsonl(folder / "test.jsonl", [{"text": "a", "label": 0}])
    with pytest.raises(
        FileNotFoundError, match="data/test.jsonl: no such file of pick"
    ):
        read_harness_task(written(folder, text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: pick", "include: base.yaml\ntask: pick", "1: include: expected a fiel"),
        ("task: pick", "task: [a, b]", "1: task: expected a text, got a list"),
        ("tag: [mine]", "filter_list: []", "17: filter_list: expected a field among"),
        (
            "tag: [mine]",
            "process_docs: !function u.f",
            "17: process_docs: expected a fi",
        ),
        ("tag: [mine]", "description: Say it.", "17: description: expected '', got 'S"),
        (
            "tag: [mine]",
            "num_fewshot: 5",
            "17: num_fewshot: expected 0, since .* got 5",
        ),
        ("tag: [mine]", "repeats: 2", "17: repeats: expected 1, got 2"),
        ("multiple_choice", "generate_until", "5: output_type: .*got 'generate_until'"),
        ("path: json", "path: super_glue", "2: dataset_path: expected 'json', got 'su"),
        (
            "test: data/test",
            "tests: data/test",
            "3: dataset_kwargs: .* file for 'test'",
        ),
        ("{{ text.strip() }}", "{{ text | upper }}", r"9: doc_to_text: .*text | upper"),
        ("{{ text.strip() }}", "{{ text[0] }}", r"9: doc_to_text: .*text\[0\]"),
        ("{{ text.strip() }}", "{% if x %}a{% endif %}", "9: doc_to_text: .*got {%"),
        ("{{ text.strip() }}", "{{ text", "9: doc_to_text: .*got {{"),
        ('"{{ text.strip() }} :"', "!function u.f", "9: doc_to_text: .*the tag !func"),
        ('["blick", "dax", "wug"]', "[no, yes]", "10: doc_to_choice: .*quotation .*no"),
        ('["blick", "dax", "wug"]', "choices", "10: doc_to_choice: .*got 'choices'"),
        ('"wug"', '"{{text}}"', "10: doc_to_choice: expected plain words"),
        ('["blick", "dax", "wug"]', '["1", "2"]', "11: doc_to_target: .*could be a nu"),
        ("get: label", 'get: "{{[a][0]}}"', "11: doc_to_target: expected a column or"),
        ("metric: acc,", "metric: f1,", "12: metric_list: expected acc, got f1, acc_n"),
        ("n: mean", "n: median", "12: metric_list: expected the aggregation mean"),
    ],
)
def test_what_is_not_represented_is_named(folder, old, new, message):
    whole = COMMON + WORDS
    assert old in whole
    path = written(folder, whole.replace(old, new, 1))
    with pytest.raises(ValueError, match=message) as caught:
        read_harness_task(path)
    assert str(caught.value).startswith(f"{path}:")
    assert "\n" not in str(caught.value)


def test_further_refusals(folder):
    text = COMMON + WORDS
    with pytest.raises(ValueError, match="metric: expected one of 'acc', 'acc_norm'"):
        read_harness_task(written(folder, text), "f1")
    neither = text.replace("validation_split: dev\ntest_split: test\n", "")
    with pytest.raises(
        ValueError, match="test_split: expected test_split or validation"
    ):
        read_harness_task(written(folder, neither))
    delimiter = written(folder, text + 'target_delimiter: " -> "\n')
    assert read_harness_task(delimiter).recipe("paper").prompt.options[0] == " -> blick"
    with pytest.raises(
        ValueError, match="target_delimiter: expected white space for a"
    ):
        read_harness_task(delimiter, "acc_norm")
    empty = text.replace('"{{ text.strip() }} :"', '" "')
    with pytest.raises(
        ValueError, match="doc_to_text: expected a text that is not blank"
    ):
        read_harness_task(written(folder, empty))
    # A choice that is a number could be meant by its place.
    digits = text.replace('["blick", "dax", "wug"]', '["0", "7"]')
    path = written(folder, digits.replace("get: label", 'get: "{{label}}"'))
    assert read_harness_task(path).labels == (("label", ("0", "1")),)


@pytest.mark.slow
@pytest.mark.parametrize("text", [WORDS, ENDINGS], ids=["words", "endings"])
def test_the_numbers_are_those_of_the_harness(folder, text):
    lm_eval = pytest.importorskip("lm_eval", reason="needs the extra lm-eval")
    from lm_eval.tasks import TaskManager

    from icltheory.bridge.harness import harness_model

    files = {s: str(folder / "data" / f"{s}.jsonl") for s in ("train", "dev", "test")}
    listed = "{train: data/train.jsonl, dev: data/dev.jsonl, test: data/test.jsonl}"
    path = written(folder, (COMMON + text).replace(listed, json.dumps(files)))
    model = load_checkpoint(CHECKPOINT)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    theirs = lm_eval.simple_evaluate(
        harness_model(model), tasks=["pick"], task_manager=manager, bootstrap_iters=0
    )
    samples = sorted(theirs["samples"]["pick"], key=lambda s: s["doc_id"])
    expected = [[choice[0] for (choice,) in s["resps"]] for s in samples]
    metrics = ("acc", "acc_norm", *["acc_bytes"] * (text is WORDS))
    for metric in metrics:
        task = load_task(read_harness_task(path, metric))
        found = evaluate(model, task, "test", buckets=1)
        assert found.accuracy == theirs["results"]["pick"][f"{metric},none"]
        if metric == "acc":
            np.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-4)
