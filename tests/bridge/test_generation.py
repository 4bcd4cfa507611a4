"""Greedy generation with a cache against the whole sequence read anew each time."""

import numpy as np
import pytest

from icltheory.bridge.evaluation import generate, generate_text
from tests.bridge.evaluation_tasks import FAMILIES, Letters, tiny
from tests.bridge.test_evaluation import with_nan, with_rows
from tests.bridge.tiers import quick


def plain(model, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        # Read with padding to one length, so that one program serves all steps.
        row, mask = np.zeros((1, 24), int), np.arange(24)[None] < len(ids)
        row[0, : len(ids)] = ids
        logits = np.asarray(model.logits(row, mask)[0, len(ids) - 1])
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


@pytest.mark.slow
@pytest.mark.parametrize("family", quick(["groups"], list(FAMILIES)))
def test_a_cache_writes_what_reading_anew_does(family):
    model = tiny(family)
    prompts = [[1, 5, 77, 9, 14, 3, 60, 2, 8, 11], [4, 4, 90], [31]]
    found = generate(model, prompts, 9)
    assert found == [plain(model, prompt, 9) for prompt in prompts]
    stopped = generate(model, prompts, 9, ended=lambda i, new: i == 1 and len(new) > 3)
    assert stopped == [found[0], found[1][:4], found[2]]


class Spoken(Letters):
    """Letters that are written back, one for each token."""

    eos_id = None

    def decode(self, ids):
        return "".join(chr(97 + i % 26) for i in ids if i != self.eos_id)


@pytest.mark.parametrize(
    ("prompts", "until", "message"),
    [
        ("One", (), "prompts: expected a sequence, got 'One'"),
        (["One"], "red", "until: expected a sequence, got 'red'"),
        ([None], (), "prompts: expected texts, got None"),
        (["One"], [3], "until: expected texts, got 3"),
    ],
)
@pytest.mark.usefixtures("as_for_a_user")
def test_texts_are_several(prompts, until, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        generate_text(tiny("llama", tokenizer=Spoken()), prompts, 4, until=until)


def test_an_empty_text_begins_with_the_token_that_begins_or_ends_one():
    tokenizer = Spoken(bos=False)
    model = tiny("llama", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="got 0 in prompt 1"):
        generate_text(model, ["a", ""], 2)
    for name in ("eos_id", "bos_id"):  # the second comes before the first
        number = {"eos_id": 9, "bos_id": 1}[name]
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
    first = min(whole.find(whole[5:7]), whole.find(whole[3:5]))
    assert cut == whole[:first]
    ids = generate(model, [tokenizer.encode("the sea")], 8)[0]
    ending = Spoken()
    ending.eos_id = ids[4]
    stop = ids.index(ids[4])
    (ended,) = generate_text(model.replace(tokenizer=ending), ["the sea"], 8)
    assert ended == ending.decode(ids[:stop])


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "prompts: expected at least one, got none"),
        ([[1], []], "prompts: expected 1 to 150 tokens, .* got 0 in prompt 1"),
        ([[1] * 151], "since 10 more are generated, got 151 in prompt 0"),
        ([[128]], "prompts: expected tokens 0 to 127, got 128 in row 0"),
    ],
)
def test_prompts_that_cannot_go_on_are_named(prompts, message):
    with pytest.raises(ValueError, match=message):
        generate(tiny("gpt2"), prompts, 10)


def test_more_new_tokens_than_the_context_holds_are_named():
    with pytest.raises(
        ValueError, match="^max_tokens: expected at most 159, .*got 400"
    ):
        generate(tiny("gpt2"), [[1]], 400)


def test_nan_logits_are_no_token():
    model, rows = tiny("groups"), [[1, 5, 77], [4, 9, 90]]
    poisoned = with_rows(model, "embed", [90], np.nan)
    with pytest.raises(ValueError, match="NaN after prompt 1; a row"):
        generate(poisoned, rows, 3)
    with pytest.raises(ValueError, match=r"finite weights, .*\['W_Q'\]"):
        generate(with_nan(model, 0, "attn", "W_Q"), rows, 3)
