"""Rows of tokens against the logits of one at a time: likelihoods and generation."""

import jax
import numpy as np
import pytest

from icltheory.bridge.evaluation import generate, generate_text, log_likelihoods
from icltheory.bridge.evaluation import rows as rows_module
from icltheory.bridge.tokenizer import read_rows
from tests.bridge.evaluation_tasks import FAMILIES, Letters, tiny
from tests.bridge.test_evaluation import EMBED, with_nan, with_rows
from tests.bridge.tiers import quick
from tests.raising import raises


def logits_of(model, row):
    """Logits of a row alone, padded so that one program serves all rows."""
    ids = np.zeros((1, 160), int)
    ids[0, : len(row)] = row
    mask = np.arange(160)[None] < len(row)
    return np.asarray(model.logits(ids, mask)[0, : len(row)])


# --- log-likelihoods


def assert_plain(model, rows, starts, found):
    """Log-likelihoods and greedy answers are those of all logits of each row alone."""
    for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
        logits = logits_of(model, row[:-1])[start - 1 :]
        logp = np.asarray(jax.nn.log_softmax(logits, axis=-1))
        total = logp[np.arange(len(logp)), row[start:]].sum()
        np.testing.assert_allclose(found.log_likelihood[number], total, 1e-9)
        assert found.greedy[number] == (logits.argmax(1) == row[start:]).all()
        assert found.num_tokens[number] == len(row) - start


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_those_of_one_row_at_a_time(family):
    model, rng = tiny(family), np.random.default_rng(3)
    sizes = rng.integers(2, 16, 7)
    rows = [rng.integers(0, 128, size).tolist() for size in sizes]
    starts = [int(rng.integers(1, len(row))) for row in rows]
    # A row that the model itself would have written.
    rows.append([*rows[0], int(logits_of(model, rows[0])[-1].argmax())])
    starts.append(len(rows[0]))
    found = log_likelihoods(model, rows, starts, batch_size=3)
    assert_plain(model, rows, starts, found)
    assert found.greedy[-1]


@pytest.mark.parametrize("family", quick(["groups"], list(FAMILIES)))
def test_rows_that_begin_alike_are_read_as_one_line(family, monkeypatch):
    """Options of 1 to 6 tokens, two of them alike in front, behind three contexts.

    Two contexts begin with the same 12 tokens, as questions behind demonstrations do.
    """
    model, rng, lines = tiny(family), np.random.default_rng(4), []
    run = rows_module._run

    def counted(model, tokens, answers):
        lines.append(int(tokens.mask.sum()))
        return run(model, tokens, answers)

    monkeypatch.setattr(rows_module, "_run", counted)
    contexts = [rng.integers(0, 128, size).tolist() for size in (12, 12)]
    contexts.append([*contexts[1], 5, 9])
    tails = [rng.integers(0, 128, size).tolist() for size in (1, 3, 6)]
    tails.append([*tails[1], 7])
    rows = [[*front, *tail] for tail in tails for front in contexts]
    starts = [len(front) for _ in tails for front in contexts]
    assert_plain(model, rows, starts, log_likelihoods(model, rows, starts))
    assert sum(lines) < 0.45 * sum(len(row) - 1 for row in rows)


def test_rows_are_whole_numbers():
    """Read before they become integers, which would cut 1.5 down to 1."""
    for row in ([1.5, 2.0], "ab", 3, [[1, 2]], [True, False]):
        with raises("rows: expected a sequence of whole numbers"):
            read_rows("rows", [row], 128)
    (row, empty) = read_rows("rows", [np.array([5, 127], np.uint8), []], 128)
    assert (row.tolist(), empty.tolist()) == ([5, 127], [])


def test_nothing_is_greedy_where_a_log_likelihood_is_nan():
    model, rows = tiny("groups"), [[1, 5, 0], [4, 9, 0]]
    poisoned = with_rows(model, EMBED, [9], np.nan)
    for some in (rows, [[1, 5, 0], [1, 5, 9, 0]]):  # Of two contexts, and of one.
        found = log_likelihoods(poisoned, some, [2, 2])
        assert np.isnan(found.log_likelihood).tolist() == [False, True]
        assert not found.greedy[1]
        plainly = log_likelihoods(model, some, [2, 2])
        assert found.log_likelihood[0] == pytest.approx(plainly.log_likelihood[0])
    with pytest.raises(ValueError, match=r"finite weights, .*\['W_out'\]"):
        log_likelihoods(with_nan(model, 2, "mlp", "W_out"), rows, [2, 2])


# --- generation


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_cache_writes_what_reading_anew_does(family):
    model = tiny(family)
    prompts = [[1, 5, 77, 9, 14, 3, 60, 2, 8, 11], [4, 4, 90], [31]]
    found = generate(model, prompts, 9)
    for prompt, new in zip(prompts, found, strict=True):
        ids = list(prompt)
        for _ in range(9):
            ids.append(int(logits_of(model, ids)[-1].argmax()))
        assert new == ids[len(prompt) :]
    stopped = generate(model, prompts, 9, ended=lambda i, new: i == 1 and len(new) > 3)
    assert stopped == [found[0], found[1][:4], found[2]]


class Spoken(Letters):
    """Letters that are written back, one for each token."""

    eos_id = None

    def decode(self, ids):
        return "".join(chr(97 + i % 26) for i in ids if i != self.eos_id)


def test_an_empty_text_begins_with_the_token_that_begins_or_ends_one():
    tokenizer = Spoken(bos=False)
    model = tiny("llama", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="got 0 in prompt 1"):
        generate_text(model, ["a", ""], 2)
    # The token that begins a text comes before the one that ends it.
    for name, number in (("eos_id", 9), ("bos_id", 1)):
        setattr(tokenizer, name, number)
        new = generate(model, [tokenizer.encode("a"), [number]], 2)
        assert 9 not in new[1]
        expected = [tokenizer.decode(tokens) for tokens in new]
        assert generate_text(model, ["a", ""], 2) == expected


def test_each_of_several_ends_ends_a_text():
    tokenizer = Spoken(bos=False)
    model = tiny("llama", tokenizer=tokenizer)
    (new,) = generate(model, [tokenizer.encode("a")], 2)
    for ends in ({new[0], 127}, {127, new[1]}, {127}):
        tokenizer.eos_ids = frozenset(ends)
        kept = next((i for i, token in enumerate(new) if token in ends), 2)
        assert generate_text(model, ["a"], 2) == [tokenizer.decode(new[:kept])]


@pytest.mark.slow
def test_texts_end_before_the_first_of_the_strings():
    tokenizer = Spoken()
    model = tiny("llama", tokenizer=tokenizer)
    (whole,) = generate_text(model, ["the sea"], 8)
    assert len(whole) == 8
    (cut,) = generate_text(model, ["the sea"], 8, until=[whole[5:7], whole[3:5], ""])
    assert cut == whole[: min(whole.find(whole[5:7]), whole.find(whole[3:5]))]
    (ids,) = generate(model, [tokenizer.encode("the sea")], 8)
    ending = Spoken()
    ending.eos_id = ids[4]
    (ended,) = generate_text(model.replace(tokenizer=ending), ["the sea"], 8)
    assert ended == ending.decode(ids[: ids.index(ids[4])])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: log_likelihoods(m, [], []), "starts: .* least one row, got 0 for"),
        (lambda m: log_likelihoods(m, [[1, 2]], [2]), "rows: .* 2 and start 2 in row"),
        (lambda m: log_likelihoods(m, [[1, 2], [3]], [1, 1]), "1 and start 1 in row 1"),
        (lambda m: log_likelihoods(m, [[1, 128]], [1]), "rows: .* 0 to 127, got 128"),
        (lambda m: log_likelihoods(m, [[1] * 162], [1]), "at most 161 .* got 162"),
        (lambda m: log_likelihoods(m, [[1]], [1], batch_size=0), "batch_size: expect"),
        (lambda m: generate(m, [], 10), "prompts: expected at least one, got none"),
        (lambda m: generate(m, [[1], []], 10), "prompts: .* 1 to 150 .* 0 in prompt 1"),
        (lambda m: generate(m, [[1] * 151], 10), "10 more are .*, got 151 in prompt 0"),
        (lambda m: generate(m, [[128]], 10), "prompts: .* tokens 0 to 127, got 128 in"),
        (lambda m: generate(m, [[1]], 400), "max_tokens: .* 159, since a prompt has"),
        (lambda m: generate_text(m, "One", 4), "prompts: .* a sequence, got 'One'"),
        (lambda m: generate_text(m, [None], 4), "prompts: expected texts, got None"),
        (lambda m: generate_text(m, ["a"], 4, until="b"), "until: expected a sequence"),
        (lambda m: generate_text(m, ["a"], 4, until=[3]), "until: .* texts, got 3"),
    ],
)
@pytest.mark.usefixtures("as_for_a_user")
def test_what_cannot_be_read_or_continued_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(tiny("gpt2", tokenizer=Spoken()))


def test_nan_logits_are_no_token():
    model, rows = tiny("groups"), [[1, 5, 77], [4, 9, 90]]
    poisoned = with_rows(model, EMBED, [90], np.nan)
    with pytest.raises(ValueError, match="NaN after prompt 1; a row"):
        generate(poisoned, rows, 3)
    with pytest.raises(ValueError, match=r"finite weights, .*\['W_Q'\]"):
        generate(with_nan(model, 0, "attn", "W_Q"), rows, 3)
