"""Prompts as tokens: the shared prefix, the labels' tokens, errors, warnings."""

import dataclasses
import itertools
import warnings

import pytest

from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.evaluation._split import prefix_tokens
from icltheory.bridge.tasks import (
    Example,
    PromptTemplate,
    check_overlap,
    check_prompt,
    enforce,
    label_tokens,
    load_task,
)
from tests.bridge.evaluation_tasks import Letters, choice, classification
from tests.bridge.tasks_data import WRITERS, shared


@dataclasses.dataclass
class Reader:
    """What tokenize asks of a model."""

    tokenizer: object
    context_length: int = 160
    vocab_size: int = 10**9


class Pairs:
    """Any two characters from the left are one token: every boundary may melt."""

    def encode(self, text, special=True):
        pairs = (text[i : i + 2] for i in range(0, len(text), 2))
        return [1000 * ord(pair[0]) + ord(pair[-1]) for pair in pairs]


def read(task, tokenizer=None, shots=None, **changes):
    return tokenize(Reader(tokenizer or Letters(), **changes), task, shots=shots)


def wholes(prompts):
    return [prompts.prefix + row for row in prompts.rows]


def test_prefix_and_rest_are_the_whole_text_and_the_prefix_is_longest():
    task, tokenizer = classification(12), Letters()
    prompts = read(task)
    texts = [task.prefix() + task.query(e) for e in task.validation]
    assert wholes(prompts) == [tuple(tokenizer.encode(text)) for text in texts]
    assert len({row[0] for row in prompts.rows}) > 1
    assert len(prompts.prefix) >= len(tokenizer.encode(task.prefix()))
    assert prompts.label_ids == (2, 3, 4)
    assert prompts.labels.tolist() == [0, 1, 2] * 4
    assert prompts.starts == tuple(len(row) for row in prompts.rows)


def test_a_boundary_inside_a_token_shortens_the_prefix():
    template = PromptTemplate(
        "{text}\n: {label}!\n", "{text}\n :", ("pos", "neg", "odd")
    )
    task = classification(12, template=template, scoring="average_log_likelihood")
    # An odd number of characters: the last one melts into each question.
    prefix = task.prefix(3)
    assert len(prefix) % 2
    with pytest.warns(UserWarning, match="merges the option .* with the question"):
        prompts = read(task, Pairs(), 3)
    texts = [
        prefix + task.query(example) + option
        for example in task.validation
        for option in task.options(example)
    ]
    assert wholes(prompts) == [tuple(Pairs().encode(text)) for text in texts]
    assert len(prompts.prefix) == len(prefix) // 2


def test_identical_prompts_keep_a_token_each():
    task = classification(4)
    same = [Example({"text": "red"}, 0, i) for i in range(4)]
    prompts = read(dataclasses.replace(task, validation=tuple(same)))
    assert [len(row) for row in prompts.rows] == [1] * 4


def test_options_begin_behind_a_token_that_predicts_them():
    task, tokenizer = choice(6), Letters()
    prompts = read(task)
    assert len(prompts.families[0]) == prompts.num_options == 2
    assert min(prompts.starts) >= 1
    pairs = itertools.product(task.validation, (0, 1))
    places = zip(prompts.rows, prompts.starts, pairs, strict=True)
    for row, start, (example, which) in places:
        option = task.options(example)[which]
        assert list(row[start:]) == tokenizer.encode(option, special=False)


def fails(task, match, tokenizer=None, **changes):
    with pytest.raises(ValueError, match=match):
        read(task, tokenizer, **changes)


def test_labels_of_several_tokens_or_the_same_one():
    task = classification(12)
    fails(
        task,
        "toy validation example 0: expected one token for the label ' odd', got 4; "
        ".*scoring=.average_log_likelihood",
        Letters(("pos", "neg")),
    )

    class Alike(Letters):
        def encode(self, text, special=True):
            return super().encode(text.replace("odd", "pos"), special)

    fails(task, "toy validation example 0: expected distinct tokens", Alike())


def test_words_and_labels_that_no_evaluation_can_count():
    task = classification(12)
    with pytest.raises(ValueError, match="labels: expected different words, got 'pos'"):
        dataclasses.replace(task, labels=("pos", "neg", "pos"))
    for label in ("pos", 3, -1, True, 1.0):
        wrong = task.validation[1]._replace(label=label)
        message = f"validation example 1: expected a label from 0 to 2, got {label!r}"
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(task, validation=(task.validation[0], wrong))


def test_prompts_that_are_too_long_or_missing():
    task = classification(12)
    sizes = [*map(len, wholes(read(task)))]
    longest = max(sizes)
    read(task, context_length=longest)
    said = f"expected at most {longest - 1} tokens, got {longest}"
    said = f"validation example {sizes.index(longest)}: {said}"
    fails(task, said, context_length=longest - 1)
    fails(dataclasses.replace(task, validation=()), "expected examples, got none")
    empty = dataclasses.replace(choice(3).template, options=("{a}", ""))
    fails(choice(3, template=empty), "example 0: expected an option of at least one")


def test_tokens_beyond_the_vocabulary_are_refused():
    task = classification(12)
    prompts = read(task)
    size = 1 + max(*prompts.label_ids, *map(max, wholes(prompts)))
    read(task, vocab_size=size)
    said = rf"example \d+: expected tokens .* got {size - 1}"
    fails(task, said, vocab_size=size - 1)


def test_a_space_too_many_is_found():
    task = classification(12)
    query = dataclasses.replace(task.template, query="{text}\n : ")
    spaced = dataclasses.replace(task, template=query)
    with pytest.warns(UserWarning, match="example 0: a space stands .*and 11 more"):
        prompts = read(spaced)
    assert prompts.label_ids == (2, 3, 4)


def trailing(profile):
    template = PromptTemplate(
        "{text}\n: {label}\n", "{text}\n: ", ("pos", "neg", "odd")
    )
    return classification(6, template=template, profile=profile)


class Melting(Letters):
    """Two spaces are one token, so that a trailing space melts into the label's."""

    def encode(self, text, special=True):
        first, *rest = text.split("  ")
        ids = super().encode(first, special)
        for part in rest:
            ids += [99, *super().encode(part, False)]
        return ids


def test_a_label_that_melts_is_an_error_unless_the_profile_asks_for_it():
    # " :  pos" is "two spaces" and then letters: not the token of " pos".
    merged = "example 0: the tokenizer merges the label ' pos' with the prompt"
    with pytest.warns(UserWarning, match=merged), pytest.warns(match="space"):
        prompts = read(trailing("authors_code"), Melting())
    assert prompts.label_ids == (2, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fails(trailing("paper"), "example 0: the tokenizer merges the label", Melting())


class Backwards(Letters):
    """Every token depends on the whole text."""

    def encode(self, text, special=True):
        return super().encode(text, special)[::-1]


def test_the_first_token_of_a_row_is_never_predicted():
    with pytest.warns(UserWarning, match="the tokenizer merges the option"):
        prompts = read(choice(6), Backwards())
    assert set(prompts.starts) == {1}


def test_long_prefixes_share_few_lengths():
    padded = [prefix_tokens([0] * size, 2048).ids.shape[1] for size in range(1, 2049)]
    assert all(
        size <= length <= max(size + 31, 1.25 * size)
        for size, length in enumerate(padded, 1)
    )
    assert len(set(padded)) == 8 + 3 * 4
    assert prefix_tokens([0] * 1900, 1950).ids.shape == (1, 1950)


# --- problems of whole tasks


@pytest.fixture
def rte(tmp_path):
    WRITERS["rte"](tmp_path)
    return lambda profile: load_task("rte", tmp_path, profile)


def findings(task):
    """Findings of ``check_prompt`` for all validation examples."""
    return [
        finding
        for e in task.validation
        for finding in check_prompt(
            task.query(e), task.options(e), example=("here", e.index)
        )
    ]


def test_label_tokens_are_those_behind_a_word():
    encode = Letters().encode
    assert label_tokens(encode, [" neg", " pos"]) == ((3,), (2,))
    assert [len(ids) for ids in label_tokens(encode, [" business"])] == [9]


def test_test_examples_among_the_demonstrations_are_found(rte):
    task = rte("paper")
    seen = task.with_demonstrations(task.test)
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
    (doubled,) = check_prompt("Say:", ["so", "  so"])
    said = "a space stands before the space of the answer '  so'"
    assert doubled.message == f"prompt example 0: {said}"


def test_errors_come_before_warnings():
    (warning,) = check_prompt("Say: ", [" so"])
    error = warning._replace(level="error", code="too-long", message="too long")
    with pytest.raises(ValueError, match="too long"):
        enforce([warning, error])


@pytest.mark.slow
def test_the_real_sst2_repeats_phrases_between_its_parts():
    task = load_task("sst2", shared("sst2"))
    assert len(check_overlap("here", task.validation, task.test)) == 77
