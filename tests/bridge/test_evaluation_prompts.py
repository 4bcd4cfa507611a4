"""Prompts as tokens: the shared prefix, the labels' tokens, batches, errors."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest

from icltheory.bridge.evaluation import Batches, padded_lengths, tokenize
from icltheory.bridge.evaluation._branches import prefix_tokens
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
    assert prompts.rows_per_example == prompts.num_options == 2
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


@pytest.mark.parametrize("most", [1, 2, 3, 9])
@pytest.mark.parametrize("seed", range(4))
def test_padded_lengths_against_every_choice(most, seed):
    sizes = np.random.default_rng(seed).integers(1, 30, 25)
    distinct = np.unique(sizes)[:8]
    sizes = sizes[sizes <= distinct[-1]]

    def padded(lengths):
        return np.array(lengths)[np.searchsorted(lengths, sizes)].sum()

    best = min(
        padded([*chosen, distinct[-1]])
        for count in range(min(most, len(distinct)))
        for chosen in itertools.combinations(distinct[:-1].tolist(), count)
    )
    found = padded_lengths(sizes, most)
    assert len(found) <= most
    assert padded(found.tolist()) == best


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize(
    "task", [classification(13), choice(7)], ids=["label", "choice"]
)
def test_batches_hold_every_row_once_and_know_the_answers(task, padding):
    prompts = tokenize(Reader(Letters()), task)
    batches, seen = Batches(prompts, 160, 4, 2, padding), []
    for batch in batches():
        ids, mask, *_ = batch.tokens
        assert ids.shape[1] % 8 == 0
        numbers = batch.examples[:, None] * prompts.rows_per_example
        numbers = (numbers + np.arange(prompts.rows_per_example)[None]).ravel()
        seen += batch.examples.tolist()
        for i, number in enumerate(numbers):
            row, start = prompts.rows[number], prompts.starts[number]
            # The last token of an answer is predicted and not read.
            read = row if start == len(row) else row[:-1]
            assert tuple(ids[i, mask[i]]) == read
            edge = mask[i, 0] if padding == "right" else mask[i, -1]
            assert edge
            counted = batch.answers.counted[i, :, 0]
            assert tuple(batch.answers.tokens[i, counted]) == row[start:]
            places = batch.answers.places[i, counted]
            assert tuple(ids[i, places]) == row[start - 1 : -1][: len(places)]
    assert sorted(seen) == list(range(prompts.num_examples))


def test_long_prefixes_share_few_lengths():
    padded = [prefix_tokens([0] * size, 2048).ids.shape[1] for size in range(1, 2049)]
    assert all(
        size <= length <= max(size + 31, 1.25 * size)
        for size, length in enumerate(padded, 1)
    )
    assert len(set(padded)) == 8 + 3 * 4
    assert prefix_tokens([0] * 1900, 1950).ids.shape == (1, 1950)


def test_some_examples_share_few_shapes():
    prompts = tokenize(Reader(Letters()), classification(40, 2))
    with pytest.raises(
        ValueError, match="^buckets: expected a positive integer, got 0"
    ):
        Batches(prompts, 160, 8, 0)
    batches, rng = Batches(prompts, 160, 8, 2), np.random.default_rng(0)
    shapes = set()
    for _ in range(30):
        chosen = rng.permutation(40)[: rng.integers(0, 40)]
        seen = []
        for batch in batches(chosen):
            shapes.add(batch.tokens.ids.shape)
            seen += batch.examples.tolist()
        assert sorted(seen) == sorted(chosen.tolist())
    assert len(shapes) <= 2 * 4


def test_batches_are_smaller_where_tokens_would_make_too_many_pairs():
    prompts = tokenize(Reader(Letters()), choice(7))
    batches, each = Batches(prompts, 160, 6, 1), prompts.rows_per_example
    (length,) = {batch.tokens.ids.shape[1] for batch in batches()}
    pairs = each * length * (len(prompts.prefix) + length)
    for most, largest in ((2 * pairs, 2), (2 * pairs - 1, 1), (1, 1), (9 * pairs, 6)):
        found = [*Batches(prompts, 160, 6, 1, most_pairs=most)()]
        assert max(len(batch.tokens.ids) for batch in found) <= largest * each
        assert sorted(n for batch in found for n in batch.examples.tolist()) == list(
            range(prompts.num_examples)
        )
    assert max(len(batch.tokens.ids) for batch in batches()) > 2 * each


def test_nothing_is_padded_beyond_the_context():
    prompts = tokenize(Reader(Letters()), classification(6))
    longest = max(map(len, prompts.rows))
    assert longest % 8
    (batch,) = Batches(prompts, longest, 6, 1)()
    assert batch.tokens.ids.shape == (6, longest)
