"""Prompts that a model cannot answer as they are."""

import zlib

import pytest

from icltheory.bridge.tasks import check_prompt, enforce, label_tokens, load_task
from tests.bridge.tasks_data import WRITERS, shared

FIRST = 1


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


def test_label_tokens_are_those_behind_a_word():
    alone = tuple((words(option)[-1],) for option in (" Yes", " No"))
    assert label_tokens(words, [" Yes", " No"]) == alone
    assert [len(ids) for ids in label_tokens(words, [" business"])] == [2]


def test_the_trailing_space_of_the_scripts_is_found(rte):
    assert rte("paper").lint() == ()
    (finding,) = rte("authors_code").lint()
    assert (finding.level, finding.code) == ("warning", "trailing-space")
    assert finding.where == "rte validation"
    assert len(finding.examples) == 400
    assert f"example {finding.examples[0]}:" in finding.message
    assert "(and 399 more)" in finding.message
    with pytest.warns(UserWarning, match="rte validation example"):
        enforce([finding])


def test_no_space_is_doubled_in_front_of_an_option(tmp_path):
    WRITERS["copa"](tmp_path)
    assert load_task("copa", tmp_path).lint(words, context_length=10**6) == ()
    assert check_prompt("Say: ", ["so"]) == ()
    assert check_prompt("Say: ", [" so"])[0].message.startswith("prompt example 0: ")
    (doubled,) = check_prompt("Say:", ["  so"])
    assert doubled.message == "prompt example 0: two spaces stand before '  so'"


def test_labels_of_several_tokens_and_of_the_same_one(tmp_path, rte):
    folder = tmp_path / "agnews"
    folder.mkdir()
    WRITERS["agnews"](folder)
    task = load_task("agnews", folder)
    found = task.lint(words, split="test")
    assert [f.code for f in found] == ["label-tokens"]
    assert "(and 2 more)" in found[0].message
    assert found[0].message.startswith(
        "agnews: expected one token for the label ' spor"
    )
    with pytest.raises(ValueError, match="agnews: expected one token"):
        enforce(found)
    same = rte("paper").lint(lambda text: [len(word) > 9 for word in text.split(" ")])
    assert [f.message for f in same if f.code == "label-tokens"] == [
        "rte: expected distinct tokens for the labels (' Yes', ' No'), got "
        "[False, False]"
    ]


def test_prompts_longer_than_the_context_are_named(rte):
    task = rte("paper")
    lengths = {
        example.index: max(
            len(words(task.prefix() + task.query(example) + option))
            for option in task.options(example)
        )
        for example in task.test
    }
    limit = sorted(lengths.values())[-1] - 1
    (finding,) = task.lint(words, context_length=limit, split="test")
    assert finding.level == "error"
    assert set(finding.examples) == {i for i, n in lengths.items() if n > limit}
    assert f"expected at most {limit} tokens, got {limit + 1}" in finding.message
    assert task.lint(words, context_length=limit + 1, split="test") == ()
    assert task.lint(words, context_length=limit, split="test", shots=2) == ()
    with pytest.raises(ValueError, match="rte test example"):
        enforce([finding])
    assert len(set(finding.examples)) == len(finding.examples)
    everything = task.lint(words, context_length=1, split="test")[0]
    assert f"(and {len(task.test) - 1} more)" in everything.message


def test_the_prefix_is_encoded_once_where_the_limit_is_far(rte):
    task, asked = rte("paper"), []

    def encode(text):
        asked.append(text)
        return words(text)

    task.lint(encode, context_length=10**6)
    prefix = task.prefix()
    assert sum(text.startswith(prefix) for text in asked) == 1
    assert len(asked) == 1 + 2 * len(task.validation) + 3


def test_rows_of_the_test_set_elsewhere_are_found(rte):
    task = rte("authors_code")
    copy = task.with_demonstrations([task.test[4], task.demonstrations[0]])
    found = [f for f in copy.lint(split="test") if f.code == "overlap"]
    assert [f.where for f in found] == ["rte demonstrations"]
    assert found[0].examples == (task.test[4].index,)


@pytest.mark.slow
def test_the_real_sst2_repeats_phrases_between_its_parts():
    (finding,) = load_task("sst2", shared("sst2")).lint()
    assert finding.code == "overlap"
    assert len(finding.examples) == 77
