"""Prompts that give wrong numbers: how wrong they are, and that they are found."""

import dataclasses
import zlib

import numpy as np
import pytest

from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.tasks import (
    check_overlap,
    check_prompt,
    enforce,
    label_tokens,
    load_task,
)
from tests.bridge.evaluation_tasks import classification, tiny
from tests.bridge.tasks_data import WRITERS, shared

FIRST = 1
WIDTH = 96


def words(text):
    """A tokenizer with a first token: words of up to six letters, spaces in front."""
    pieces = []
    for part in text.replace(" ", "\0 ").split("\0"):
        pieces += [part[i : i + 6] for i in range(0, len(part), 6)]
    return [FIRST, *(zlib.crc32(piece.encode()) for piece in pieces)]


@pytest.fixture
def rte(tmp_path):
    WRITERS["rte"](tmp_path)
    return lambda profile: load_task("rte", tmp_path, profile)


def findings(task):
    """Findings of ``check_prompt`` for all validation examples."""
    return [
        finding
        for example in task.validation
        for finding in check_prompt(
            task.query(example), task.options(example), example=("here", example.index)
        )
    ]


def test_label_tokens_are_those_behind_a_word():
    alone = tuple((words(option)[-1],) for option in (" Yes", " No"))
    assert label_tokens(words, [" Yes", " No"]) == alone
    assert [len(ids) for ids in label_tokens(words, [" business"])] == [2]


def answers(model, task):
    """The label word of the largest logit after each question."""
    encode = model.tokenizer.encode
    rows = [encode(task.prefix() + task.query(e)) for e in task.validation]
    ids = np.zeros((len(rows), WIDTH), int)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    options = task.options(task.validation[0])
    words = [token for (token,) in label_tokens(encode, options)]
    logits = np.asarray(model.logits(ids))[:, :, words]
    return [logits[n, len(row) - 1].argmax() for n, row in enumerate(rows)]


def test_a_space_too_many_changes_answers_and_is_found():
    model, task = tiny("groups"), classification(12)
    query = dataclasses.replace(task.template, query="{text}\n : ")
    spaced = dataclasses.replace(task, template=query)
    changed = np.not_equal(answers(model, task), answers(model, spaced))
    assert changed.mean() > 0.2
    with pytest.warns(UserWarning, match="a space stands before .*and 11 more"):
        tokenize(model, spaced)


def copied(task):
    """Share of right answers of a reader that only copies from the demonstrations."""
    right = 0
    for example in task.test:
        texts = [task.query(example) + option for option in task.options(example)]
        seen = [text in task.prefix() for text in texts]
        right += seen.index(True) == example.label if any(seen) else 0
    return right / len(task.test)


def test_test_examples_among_the_demonstrations_can_be_copied_and_are_found(rte):
    task = rte("paper")
    seen = task.with_demonstrations(task.test)
    assert (copied(task), copied(seen)) == (0, 1)
    assert check_overlap("here", task.demonstrations, task.test) == ()
    found = check_overlap("here", seen.demonstrations, task.test)
    assert [f.examples for f in found] == [(e.index,) for e in task.test]
    with pytest.warns(UserWarning, match="the same text is in the test set .*14 more"):
        enforce(found)


def test_the_trailing_space_of_the_scripts_is_found(rte):
    assert findings(rte("paper")) == []
    found = findings(rte("authors_code"))
    assert {(f.level, f.code) for f in found} == {("warning", "trailing-space")}
    assert len(found) == 400
    with pytest.warns(UserWarning, match=r"here example \d+: .*\(and 399 more\)"):
        enforce(found)


def test_no_space_is_doubled_in_front_of_an_option(tmp_path):
    WRITERS["copa"](tmp_path)
    assert findings(load_task("copa", tmp_path)) == []
    assert check_prompt("Say: ", ["so"]) == ()
    assert check_prompt("Say: ", [" so"])[0].message.startswith("prompt example 0: ")
    (doubled,) = check_prompt("Say:", ["so", "  so"])
    assert doubled.message.endswith(
        "a space stands before the space of the answer '  so'"
    )


def test_errors_come_before_warnings():
    (warning,) = check_prompt("Say: ", [" so"])
    error = warning._replace(level="error", code="too-long", message="too long")
    with pytest.raises(ValueError, match="too long"):
        enforce([warning, error])


@pytest.mark.slow
def test_the_real_sst2_repeats_phrases_between_its_parts():
    task = load_task("sst2", shared("sst2"))
    assert len(check_overlap("here", task.validation, task.test)) == 77
