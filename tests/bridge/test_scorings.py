"""Every scoring against a float64 loop over prompts; published scores as counts."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.small_lm import FOLDER, declaration
from icltheory.bridge import (
    Evaluator,
    Example,
    algorithm1,
    evaluate,
    evaluate_naive,
    load_checkpoint,
    load_task,
    prune_model,
)
from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.tasks import SCORINGS, possible_counts
from icltheory.bridge.tasks.scorings import (
    answer_prefix,
    calibrated,
    pointwise_mutual_information,
    reference_task,
    without_content,
)
from icltheory.pruning import Intervention
from tests.bridge.evaluation_tasks import (
    Letters,
    choice,
    classification,
    tiny,
    with_test,
)
from tests.bridge.tiers import quick
from tests.raising import raises

CHECKPOINT = Path(__file__).parents[2] / "experiments" / "small_lm" / "checkpoint"
SHAPES = {"batch_size": 8}
FREE = ("N/A", "", "[MASK]")
SHOTS, EXAMPLES = 4, 6
WIDTH = 96  # All prompts are padded to one length, so that the oracle compiles once.
DERIVED = ("pmi", "contextual_calibration")


@functools.cache
def shipped():
    model = load_checkpoint(CHECKPOINT)
    wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), model.params)
    return model.replace(params=wide)


@functools.cache
def topic(scoring):
    task = load_task(declaration("topic"), FOLDER / "topic")
    some = task.validation[:EXAMPLES]
    return dataclasses.replace(task, validation=some, scoring=scoring)


@functools.cache
def endings(scoring):
    """A task whose options are texts of one word and of more, each example's own."""
    base = topic(scoring)
    texts = [example.fields["text"] for example in base.validation]
    rows = [
        Example(
            {"text": text, "a": text.split()[-1], "b": texts[number - 1]}, 0, number
        )
        for number, text in enumerate(texts)
    ]
    template = dataclasses.replace(
        base.template,
        demonstration="{text} : {label}\n",
        query="{text} : ",
        words=(),
        options=("{a}", "{b}"),
    )
    return dataclasses.replace(
        base,
        kind="choice",
        labels=("1", "2"),
        template=template,
        validation=tuple(rows),
        test=(),
        demonstrations=tuple(rows[:2]),
    )


def log_likelihood(model, prompt, option):
    """Sum of log p of the option's tokens, and their number."""
    encode = model.tokenizer.encode
    before, row = list(encode(prompt)), list(encode(prompt + option))
    assert row[: len(before)] == before
    ids = np.zeros((1, WIDTH), int)
    ids[0, : len(row)] = row
    logits = np.asarray(model.logits(ids), np.float64)[0, : len(row)]
    assert logits.dtype == np.float64
    total = 0.0
    for place in range(len(before), len(row)):
        exps = np.exp(logits[place - 1] - logits[place - 1].max())
        total += np.log(exps[row[place]] / exps.sum())
    return total, len(row) - len(before)


def loop(model, scoring, front, questions, mark):
    """Scores of every example from texts alone, which a mark makes questions."""
    found = []
    for text, options in questions:
        pairs = [log_likelihood(model, front + text + mark, o) for o in options]
        sums, tokens = np.array(pairs).T
        words = [option.strip() for option in options]
        if scoring == "log_likelihood":
            row = sums
        elif scoring == "average_log_likelihood":
            row = sums / tokens
        elif scoring == "log_likelihood_per_character":
            row = sums / [len(word) for word in words]
        elif scoring == "log_likelihood_per_byte":
            row = sums / [len(word.encode()) for word in words]
        elif scoring == "pmi":
            row = sums - [log_likelihood(model, mark[1:], o)[0] for o in options]
        else:
            free = [front + content + mark for content in FREE]
            free = [[log_likelihood(model, q, o)[0] for o in options] for q in free]
            p_free = np.exp(free).mean(axis=0)
            # Zhao et al.: W = diag(p_free)^-1 after p_free is normalised.
            W = np.linalg.inv(np.diag(p_free / p_free.sum()))
            p = np.exp(sums) / np.exp(sums).sum()
            row = np.log(W @ p / (W @ p).sum())
        found.append(row)
    return np.array(found)


def rows_of(name):
    lines = (FOLDER / "topic" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


SUMS = [name for name, row in SCORINGS.items() if row.measure == "log_likelihood"]


@pytest.mark.parametrize("scoring", quick(["pmi"], SUMS))
def test_label_words_are_scored_as_by_a_plain_loop(scoring):
    model, task = shipped(), topic(scoring)
    words = ("world", "sports", "business", "science")
    front = "".join(
        f"{example.fields['text']} : {words[example.label]}\n"
        for example in task.demonstrations[:SHOTS]
    )
    options, texts = [f" {word}" for word in words], rows_of("validation")
    questions = [(texts[example.index], options) for example in task.validation]
    expected = loop(model, scoring, front, questions, " :")
    found = evaluate(model, task, shots=SHOTS, **SHAPES)
    np.testing.assert_allclose(found.scores, expected, atol=1e-8, rtol=0)
    np.testing.assert_array_equal(found.predictions, expected.argmax(axis=1))
    assert np.ptp(expected, axis=1).min() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("scoring", SUMS)
def test_options_of_each_example_are_scored_as_by_a_plain_loop(scoring):
    model, task = shipped(), endings(scoring)
    texts = [example.fields for example in task.validation]
    front = "".join(f"{f['text']} : {f['a']}\n" for f in texts[:2])
    questions = [(f["text"], [f["a"], f["b"]]) for f in texts]
    expected = loop(model, scoring, front, questions, " : ")
    found = evaluate(model, task, **SHAPES)
    np.testing.assert_allclose(found.scores, expected, atol=1e-8, rtol=0)


@pytest.mark.slow
def test_reference_prompts_are_answered_by_the_pruned_model():
    model, rates = tiny("groups", num_layers=2), (0.0, 0.5, 0.75)
    task = classification(5, longest=1, scoring="contextual_calibration")
    task = with_test(task, classification(5, seed=5, longest=1).validation)
    models = [Intervention(1, "mlp", rate) for rate in rates]
    plain = [evaluate_naive(prune_model(model, one), task) for one in models]
    found = Evaluator(model, task, **SHAPES)
    some = found.correct("validation", [models[2], ()], [4, 1])
    for row, place in zip(some, (2, 0), strict=True):
        np.testing.assert_array_equal(row, plain[place].correct[[4, 1]])
    for row, slow in zip(found.scores("validation", models), plain, strict=True):
        np.testing.assert_allclose(row, slow.scores, atol=1e-9)
    chosen = algorithm1(found, 1, "mlp", rates)
    assert list(chosen.tried.values()) == [slow.accuracy for slow in plain]


def test_formulas():
    rng = np.random.default_rng(0)
    p, free = rng.random((2, 5, 3)), rng.random((2, 5, 4, 3))
    bar = free.mean(axis=2)
    q = (p / bar) / (p / bar).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.exp(calibrated(np.log(p), np.log(free))), q)
    # An input without content becomes uniform by itself.
    alone = calibrated(np.log(p), np.log(p[..., None, :]))
    np.testing.assert_allclose(np.exp(alone), 1 / 3)
    found = pointwise_mutual_information(np.log(p), np.log(free[..., :1, :]))
    np.testing.assert_allclose(found, np.log(p / free[..., 0, :]))
    halves = np.array([[-1.0, -2.0]], np.float32), np.zeros((1, 1, 2), np.float32)
    assert calibrated(*halves).dtype == np.float32


def test_what_a_measure_is_divided_by():
    options = {"text": "sea", "a": " é ice", "b": "far"}
    task = choice(2)
    task = dataclasses.replace(task, validation=(Example(options, 0, 0),))
    model = tiny("groups")
    for scoring, expected in {
        "log_likelihood": None,
        "average_log_likelihood": [6, 3],
        "log_likelihood_per_character": [5, 3],
        "log_likelihood_per_byte": [6, 3],
        "pmi": None,
        "contextual_calibration": None,
    }.items():
        found = tokenize(model, dataclasses.replace(task, scoring=scoring)).lengths
        np.testing.assert_array_equal(found, [expected] if expected else None)


def test_reference_prompts():
    task = classification(6)
    assert answer_prefix(task) == "\n :"
    asked = without_content(task, "N/A", "validation", 2)
    assert asked.query(asked.validation[0]) == "N/A\n :"
    assert asked.prefix() == task.prefix(2)
    # Options keep their texts.
    own = without_content(choice(4), "N/A", "validation", None)
    assert [own.options(e) for e in own.validation] == [
        choice(4).options(e) for e in choice(4).validation
    ]
    # Each prompt is asked once.
    model = tiny("groups")
    for scoring, count in zip(DERIVED, (1, 3), strict=True):
        own = classification(6, scoring=scoring)
        asked, numbers = reference_task(own, "validation")
        assert len(asked.validation) == tokenize(model, asked).num_examples == count
        assert numbers.tolist() == [list(range(count))] * 6
    zero = dataclasses.replace(task.template, zero_shot="Of {text} the mood is")
    assert answer_prefix(dataclasses.replace(task, template=zero), 0) == "the mood is"


def test_what_cannot_be_scored():
    model, task = tiny("groups"), classification(4, scoring="pmi")
    bare = dataclasses.replace(task.template, query="{text}")
    with raises("scoring: expected a question with words after its last field"):
        evaluate(model, dataclasses.replace(task, template=bare))
    with pytest.raises(ValueError, match=r"scoring: expected one of .*'pmi'"):
        dataclasses.replace(task, scoring="f1")
    empty = choice(2, scoring="log_likelihood_per_character")
    nothing = Example({"text": "sea", "a": "\n", "b": "ice"}, 0, 0)
    with pytest.raises(ValueError, match="an option with characters, got '.n'"):
        evaluate(model, dataclasses.replace(empty, validation=(nothing,)))
    # Without a token in front there is nothing that predicts the first of an answer.
    model = tiny("groups", tokenizer=Letters(bos=False))
    mute = dataclasses.replace(empty.template, query="")
    task = dataclasses.replace(empty, template=mute, scoring="log_likelihood")
    with pytest.raises(ValueError, match="at least one token in front of the answer"):
        evaluate(model, task, shots=0)


# --- published scores as counts

# Tables 6 and 7: score, test examples, count over one less.
SHORT = [
    (0.56884, 277, 157),
    (0.57971, 277, 160),
    (0.56159, 277, 155),
    (0.57608, 277, 159),
    (0.58181, 56, 32),
    (0.67272, 56, 37),
    (0.83636, 56, 46),
    (0.85454, 56, 47),
    (0.87272, 56, 48),
]
# Tables 3, 4 and 5: score, test examples, digits, count over all.
WHOLE = [
    (0.76434, 7600, 5, 5809),
    (0.77026, 7600, 5, 5854),
    (0.84881, 7600, 5, 6451),
    (0.69032, 5509, 5, 3803),
    (0.77110, 5509, 5, 4248),
    (0.66492, 1725, 5, 1147),
    (0.666666, 1725, 6, 1150),
]


def test_which_published_scores_were_divided_by_one_less():
    """Those of RTE and CB; those of AGNEWS, EmoC and MRPC were divided by all."""
    for score, n, count in SHORT:
        assert possible_counts(score, n, 5) == {"n-1": (count,)}
    for score, n, digits, count in WHOLE:
        assert possible_counts(score, n, digits)["n"] == (count,)
        assert count / n == pytest.approx(score, abs=10.0**-digits)
    for score, n, digits, _ in (WHOLE[0], *WHOLE[-2:]):
        assert list(possible_counts(score, n, digits)) == ["n"]


def test_every_count_is_found_printed_either_way():
    for n in (2, 9, 57):
        for k in range(n + 1):
            for score in (round(k / n, 6), int(k / n * 10**6) / 10**6):
                assert k in possible_counts(score, n, 6)["n"]


def test_few_digits_decide_nothing_and_wrong_ones_fit_nothing():
    # Table 2's four digits over 59,339 examples
    assert list(possible_counts(0.7527, 59339, 4)) == ["n", "n-1"]
    assert possible_counts(0.51, 3, 2) == {}
    assert possible_counts(1, 7, 0)["n"] == (4, 5, 6, 7)
    for arguments, message in (
        ((0.123, 10, 2), "score: expected at most 2 digits"),
        ((1.2, 10, 2), "score: expected a number in [0, 1]"),
        ((0.5, 1, 2), "n: expected an integer >= 2, got 1"),
        ((0.5, 10, -1), "digits: expected"),
    ):
        with raises(message):
            possible_counts(*arguments)
