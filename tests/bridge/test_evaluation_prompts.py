"""Prompts as tokens: the shared prefix, the labels' tokens, batches, errors."""

import dataclasses
import itertools
import warnings

import pytest

from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.evaluation._split import prefix_tokens
from icltheory.bridge.tasks import Example, PromptTemplate
from tests.bridge.evaluation_tasks import Letters, choice, classification


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


def wholes(prompts):
    return [prompts.prefix + row for row in prompts.rows]


def test_prefix_and_rest_are_the_whole_text_and_the_prefix_is_longest():
    task, tokenizer = classification(12), Letters()
    prompts = tokenize(Reader(tokenizer), task)
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
    with pytest.warns(
        UserWarning, match="the tokenizer merges the option .* with the question"
    ):
        prompts = tokenize(Reader(Pairs()), task, shots=3)
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
    prompts = tokenize(
        Reader(Letters()), dataclasses.replace(task, validation=tuple(same))
    )
    assert [len(row) for row in prompts.rows] == [1] * 4


def test_options_begin_behind_a_token_that_predicts_them():
    task, tokenizer = choice(6), Letters()
    prompts = tokenize(Reader(tokenizer), task)
    assert len(prompts.families[0]) == prompts.num_options == 2
    assert min(prompts.starts) >= 1
    pairs = itertools.product(task.validation, (0, 1))
    for row, start, (example, which) in zip(
        prompts.rows, prompts.starts, pairs, strict=True
    ):
        option = task.options(example)[which]
        assert list(row[start:]) == tokenizer.encode(option, special=False)


def fails(task, match, tokenizer=None, **changes):
    with pytest.raises(ValueError, match=match):
        tokenize(Reader(tokenizer or Letters(), **changes), task)


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
    longest = max(map(len, wholes(tokenize(Reader(Letters()), task))))
    tokenize(Reader(Letters(), longest), task)
    which = next(
        i
        for i, whole in enumerate(wholes(tokenize(Reader(Letters()), task)))
        if len(whole) == longest
    )
    fails(
        task,
        f"validation example {which}: expected at most {longest - 1} tokens, "
        f"got {longest}",
        context_length=longest - 1,
    )
    fails(dataclasses.replace(task, validation=()), "expected examples, got none")
    empty = dataclasses.replace(choice(3).template, options=("{a}", ""))
    fails(choice(3, template=empty), "example 0: expected an option of at least one")


def test_tokens_beyond_the_vocabulary_are_refused():
    task = classification(12)
    prompts = tokenize(Reader(Letters()), task)
    largest = max(max(whole) for whole in wholes(prompts))
    labels = max(prompts.label_ids)
    size = max(largest, labels) + 1
    tokenize(Reader(Letters(), vocab_size=size), task)
    with pytest.raises(
        ValueError, match=rf"example \d+: expected tokens .* got {size - 1}"
    ):
        tokenize(Reader(Letters(), vocab_size=size - 1), task)


def trailing(profile):
    template = PromptTemplate(
        "{text}\n: {label}\n", "{text}\n: ", ("pos", "neg", "odd")
    )
    return classification(6, template=template, profile=profile)


def test_a_space_in_front_of_the_label_is_a_warning_that_names_the_example():
    with pytest.warns(UserWarning, match="example 0: a space stands .*and 5 more"):
        prompts = tokenize(Reader(Letters()), trailing("paper"))
    assert prompts.label_ids == (2, 3, 4)


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
    with (
        pytest.warns(UserWarning, match=merged),
        pytest.warns(UserWarning, match="space"),
    ):
        prompts = tokenize(Reader(Melting()), trailing("authors_code"))
    assert prompts.label_ids == (2, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fails(trailing("paper"), "example 0: the tokenizer merges the label", Melting())


def test_long_prefixes_share_few_lengths():
    padded = [prefix_tokens([0] * size, 2048).ids.shape[1] for size in range(1, 2049)]
    assert all(
        size <= length <= max(size + 31, 1.25 * size)
        for size, length in enumerate(padded, 1)
    )
    assert len(set(padded)) == 8 + 3 * 4
    assert prefix_tokens([0] * 1900, 1950).ids.shape == (1, 1950)
