"""Predictors of labels, and the response of a language model to relabelling."""

import dataclasses

import numpy as np
import pytest

from icltheory import microscope as ms
from icltheory.bridge import evaluate_naive
from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate
from tests.bridge.evaluation_tasks import choice, classification, tiny

TEXTS = ["good fun film", "bad dull film", "good good story", "dull plot"]
LABELS = [0, 1, 0, 1]
QUESTIONS = ["a good film", "dull day", "nothing known"]
RULES = ms.label_rules()


def rows(texts, labels):
    pairs = zip(texts, labels, strict=True)
    return tuple(Example({"text": t}, k, i) for i, (t, k) in enumerate(pairs))


TASK = LanguageTask(
    "films",
    "paper",
    "classification",
    ("pos", "neg"),
    rows(TEXTS, LABELS),
    (),
    rows(QUESTIONS, [0, 1, 0]),
    PromptTemplate("{text}: {label}\n", "{text}:", ("pos", "neg")),
)


def test_rules_are_those_of_their_definitions():
    given = {name: rule(TASK, "test") for name, rule in RULES.items()}
    for q in given.values():
        np.testing.assert_allclose(q.sum(axis=1), 1)
    np.testing.assert_allclose(given["uniform"], 1 / 2)
    np.testing.assert_allclose(given["label prior"], [[3 / 6, 3 / 6]] * 3)
    np.testing.assert_allclose(given["copy the last"], [[0.25, 0.75]] * 3)
    # Jaccard: 2/4 with the first; 1/3 with the last and 1/4 with the second.
    near = [[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]]
    np.testing.assert_allclose(given["nearest neighbour"], near)


def test_naive_bayes_counts_words():
    """Smoothed counts: 7 words; good 4, film 2 of 13 words against 1 and 2 of 12."""
    words = {w for text in TEXTS for w in text.split()}
    assert len(words) == 7
    totals = 6 + 7, 5 + 7
    good, film = (4 / totals[0], 1 / totals[1]), (2 / totals[0], 2 / totals[1])
    odds = (good[0] * film[0]) / (good[1] * film[1])
    found = RULES["naive Bayes"](TASK, "test")[0]
    np.testing.assert_allclose(found[0] / found[1], odds, rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in RULES if n != "label prior"])
def test_a_rule_is_closest_to_itself(name):
    found = ms.identify_labels(lambda task: np.log(RULES[name](task, "test")), TASK)
    assert found.candidates[0].distance.mean < 1e-20
    assert found.candidates[0].name == name
    assert found.responses.shape == (3, 4)


def test_responses_are_those_to_each_demonstration():
    def model(task):
        return np.log(RULES["copy the last"](task, "test"))

    found = ms.identify_labels(model, TASK)
    np.testing.assert_allclose(found.responses, [[0, 0, 0, 0.5]] * 3)
    np.testing.assert_allclose(found.mean_responses.mean, [0, 0, 0, 0.5])
    assert "by 0.500 for the last one" in found.summary
    # Without relabelling one evaluation, and no word of responses.
    alone = ms.identify_labels(model, TASK, relabel=False)
    assert alone.responses.shape == (3, 0)
    assert "raises" not in str(alone)
    assert [row["candidate"] for row in alone.rows()][0] == "copy the last"


@pytest.mark.slow
def test_a_language_model_is_scored_as_by_plain_evaluation():
    task = classification(5, demonstrations=3)
    model = tiny("gptj")
    found = ms.identify_labels(model, task, split="validation")
    plain = evaluate_naive(model, task, split="validation").scores
    p = np.exp(plain) / np.exp(plain).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities, p, atol=1e-9)
    shown, own = list(task.demonstrations), task.demonstrations[1].label
    expected = 0
    for other in {0, 1, 2} - {own}:
        shown[1] = shown[1]._replace(label=other)
        moved = dataclasses.replace(task, demonstrations=tuple(shown))
        plain = evaluate_naive(model, moved, split="validation").scores
        q = np.exp(plain) / np.exp(plain).sum(axis=1, keepdims=True)
        expected = expected + (p[:, own] - q[:, own]) / 2
    np.testing.assert_allclose(found.responses[:, 1], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (len, choice(4), "task: expected a classification task, got a choice"),
        (len, dataclasses.replace(TASK, test=()), "task: expected demonstrations"),
        (lambda task: np.zeros((3, 3)), TASK, "expected shape"),
        (lambda task: np.full((3, 2), np.nan), TASK, "expected numbers, got NaN"),
    ],
)
def test_wrong_arguments_are_refused(model, task, message):
    with pytest.raises(ValueError, match=message):
        ms.identify_labels(model, task)
