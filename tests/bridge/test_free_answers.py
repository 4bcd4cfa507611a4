"""Exact match and F1 of generated answers against loops of one prompt at a time."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.small_lm.tasks import FOLDER, declaration
from icltheory.bridge import evaluate, load_checkpoint, load_task
from icltheory.bridge.evaluation import (
    evaluate_generation,
    exact_match,
    generate_text,
    normalise_answer,
    token_f1,
)
from icltheory.bridge.tasks import PromptTemplate, Split, TaskRecipe, TaskSpec
from icltheory.statistics import bootstrap_interval, proportion_interval
from tests.bridge.evaluation_tasks import classification, tiny
from tests.bridge.tasks_data import jsonl, lines
from tests.bridge.test_evaluation import with_nan, with_rows
from tests.bridge.test_generation import Spoken

ROOT = Path(__file__).parents[2]
RIVERS = TaskSpec(
    name="rivers",
    kind="generation",
    fields={"question": "{question}", "answer": "{answer}", "other": ("{other}", "")},
    labels=(),
    recipes=TaskRecipe(
        PromptTemplate(
            "Q: {question}\nA:{label}\n",
            "Q: {question}\nA:",
            options=(" {answer}", " {other}"),
        ),
        Split(per_class=1),
    ),
)


def section():
    """The part of the page on tasks that is about free answers."""
    page = (ROOT / "docs" / "reference" / "tasks.md").read_text()
    return page.split("## Answers in free text")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel-Tower!", "eiffeltower"),
        ("an apple, a day\n", "apple day"),
        ("theatre and another", "theatre and another"),
        ("U.S.A.", "usa"),
        ("the", ""),
        ("Über „Alles“", "über „alles“"),
    ],
)
def test_normalised_answers(text, expected):
    assert normalise_answer(text) == expected


def f1_by_hand(text, answer):
    """Precision and recall of words, each word of the answer matched once."""
    words, left = text.split(), answer.split()
    total, hits = len(left), 0
    for word in words:
        if word in left:
            left.remove(word)
            hits += 1
    if not words or not total:
        return float(words == answer.split())
    if not hits:
        return 0.0
    precision, recall = hits / len(words), hits / total
    return 2 * precision * recall / (precision + recall)


def test_f1_is_that_of_precision_and_recall():
    rng = np.random.default_rng(0)
    for _ in range(200):
        text, *answers = (
            " ".join(rng.choice(["sea", "sun", "sky", "ice"], rng.integers(0, 6)))
            for _ in range(3)
        )
        expected = max(f1_by_hand(text, answer) for answer in answers)
        assert token_f1(text, answers) == pytest.approx(expected)
        assert exact_match(text, answers) == (text in answers)
    assert token_f1("the", ["a"]) == 1.0
    for measure in (exact_match, token_f1):
        for wrong in ([], "Seine"):
            with pytest.raises(ValueError, match="answers: expected a list of at leas"):
                measure("Seine", wrong)


def test_a_task_of_free_answers(tmp_path):
    rows = [{"question": f"Q{i}", "answer": f"A{i}", "other": ""} for i in range(3)]
    jsonl(tmp_path / "train.jsonl", rows)
    jsonl(tmp_path / "test.jsonl", [{**rows[0], "other": "B0"}, rows[1]])
    lines(tmp_path / "val.tsv", ["question\tanswer", "Q9\tA9"])
    task = load_task(RIVERS, tmp_path)
    number = task.demonstrations[0].fields["question"][1:]
    assert task.prefix() == f"Q: Q{number}\nA: A{number}\n"
    assert [task.options(e) for e in task.test] == [(" A0", " B0"), (" A1",)]
    assert task.options(task.validation[0]) == (" A9",)
    assert task.lint(Spoken().encode, context_length=50) == ()
    with pytest.raises(ValueError, match="task: .* rivers; use evaluate_generation"):
        evaluate(tiny("groups"), task)
    with pytest.raises(
        ValueError, match="labels: expected none for the generation task"
    ):
        dataclasses.replace(RIVERS, labels=(("label", ("0",)),))
    path = tmp_path / "rivers.yaml"
    [text] = re.findall(r"```yaml\n(.*?)```", section(), re.DOTALL)
    path.write_text(text.replace("per_class: 4", "per_class: 1"))
    assert load_task(path) == task


@pytest.mark.slow
def test_texts_and_shares_are_those_of_one_prompt_at_a_time():
    model = tiny("llama", tokenizer=Spoken())
    task = classification(7)
    front = task.prefix(4)  # long enough to run once for all
    alone = [
        generate_text(model, [front + task.query(e)], 5, until=["m"])[0]
        for e in task.validation
    ]
    # The right words of some examples become what is written.
    labels = tuple(alone[i] or "none" for i in range(3))
    task = dataclasses.replace(task, labels=labels)
    seen = []
    found = evaluate_generation(
        model,
        task,
        shots=4,
        max_tokens=5,
        until=["m"],
        batch_size=3,
        buckets=2,
        level=0.9,
        progress=lambda done, total, part: seen.append((done, total)),
    )
    assert found.texts == tuple(alone)
    right = [(f" {labels[example.label]}",) for example in task.validation]
    exact = [exact_match(t, a) for t, a in zip(alone, right, strict=True)]
    f1 = [token_f1(t, a) for t, a in zip(alone, right, strict=True)]
    assert 0 < sum(exact) < 7
    assert found.answers == tuple(right)
    assert found.exact.tolist() == exact
    assert found.exact_match == sum(exact) / 7
    assert found.exact_match_interval == proportion_interval(sum(exact), 7, level=0.9)
    assert found.f1 == pytest.approx(np.mean(f1))
    assert found.f1_interval == bootstrap_interval(f1, level=0.9)
    assert seen[0] == (0, 7)
    assert seen[-1] == (7, 7)


def test_nan_is_wrong_counted_and_stays_with_its_example():
    model = tiny("llama", tokenizer=Spoken(), num_layers=1)
    task = classification(3, longest=1)
    token = Spoken().letter("w")
    hit = ["w" in example.fields["text"] for example in task.validation]
    assert 0 < sum(hit) < 3
    options = {"shots": 0, "max_tokens": 1, "buckets": 1}
    clean = evaluate_generation(model, task, **options)
    found = evaluate_generation(
        with_rows(model, "embed", [token], np.nan), task, **options
    )
    for nan, text, other in zip(hit, found.texts, clean.texts, strict=True):
        assert text == ("" if nan else other)
    assert found.num_nan == sum(hit)
    assert not found.exact[hit].any()
    every = with_rows(model, "embed", [Spoken().letter(":")], np.nan)
    found = evaluate_generation(every, task, **options)
    shares = found.exact_match, *found.exact_match_interval, found.f1
    assert found.num_nan == 3
    assert np.isnan(shares).all()
    assert "num_nan=3" in repr(found)
    with pytest.raises(ValueError, match=r"finite weights, .*\['W_Q'\]"):
        evaluate_generation(with_nan(model, 0, "attn", "W_Q"), task, **options)
    with pytest.raises(ValueError, match="toy test: expected examples, got none"):
        evaluate_generation(model, task, "test")
    with pytest.raises(ValueError, match="prompts: expected 1 to 10 tokens.* prompt 0"):
        evaluate_generation(model, task, max_tokens=150)


@pytest.mark.slow
def test_the_shipped_model_writes_what_it_would_choose(monkeypatch, capsys):
    [code] = re.findall(r"```python\n(.*?)```", section(), re.DOTALL)
    [shown] = re.findall(r"```text\n(.*?)```", section(), re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert capsys.readouterr().out == shown
    model = load_checkpoint(ROOT / "experiments" / "small_lm" / "checkpoint")
    task = load_task(declaration("topic"), FOLDER / "topic")
    task = dataclasses.replace(task, validation=task.validation[:64])
    written = evaluate_generation(model, task, max_tokens=2)
    chosen = evaluate(model, task)
    # A word that is written is the likeliest of all, so also of the label words.
    assert (chosen.correct | ~written.exact).all()
    assert written.exact_match > 0.9
