"""In-context curves: accuracy against the number of demonstrations.

A draw is a set of demonstrations with its label words; its questions share them. All
sentences are held out, and so are all pairs of nonce label words. Predictions compare
the label words of the draw and nothing else. With label noise demonstrations may state
a wrong class; a question is right if it is answered by its true one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.small_lm import ideal
from experiments.small_lm import vocabulary as v
from experiments.small_lm.config import Config
from experiments.small_lm.language import (
    Language,
    Sentences,
    compose,
    meant_labels,
    mislabelled,
    nonce_labels,
    sentences,
)
from experiments.small_lm.model import decoder_of, logits
from icltheory.training import stream_key


class Question(NamedTuple):
    """A kind of task: its attribute, and whether its label words have a meaning."""

    name: str
    attribute: int
    meant: bool


QUESTIONS = (
    Question("sentiment", 0, True),
    Question("topic", 2, True),
    Question("nonce_sentiment", 0, False),
    Question("nonce_season", 1, False),
    Question("nonce_topic", 2, False),
)


def question(name: str) -> Question:
    """Returns the kind of task with this name."""
    return next(q for q in QUESTIONS if q.name == name)


class Curves(NamedTuple):
    """Accuracies of each draw by number of shots, of the model and ideal learners."""

    model: np.ndarray
    ideal: np.ndarray
    informed: np.ndarray


def curves(config: Config, params: Any) -> dict[str, Curves]:
    """Computes the curves of every kind of task."""
    key = stream_key(config.seed, "evaluation")
    run = jax.jit(_last_logits, static_argnums=(0, 1))
    keys = jax.random.split(key, len(QUESTIONS))
    return {
        asked.name: _curves(config, params, asked, own, run)
        for asked, own in zip(QUESTIONS, keys, strict=True)
    }


def _curves(config: Config, params: Any, question: Question, key, run) -> Curves:
    draws, asked = config.demonstration_seeds, config.queries
    most = max(config.shots)
    keys = jax.random.split(key, 3)
    shown, asks = (
        sentences(k, config.language, np.full((draws, count), question.attribute), True)
        for k, count in ((keys[0], most), (keys[1], asked))
    )
    noise_key = jax.random.fold_in(key, len(keys))
    stated = stated_classes(config.language, question, noise_key, shown)
    labels = _label_words(question, keys[2], draws)
    truth = np.asarray(asks.classes[..., question.attribute])
    model, best = [], []
    for k in config.shots:
        scores = _scores(
            config, params, question, (shown, stated, asks, labels), k, run
        )
        model.append((scores.argmax(axis=-1) == truth).mean(axis=1))
        answers = _ideal_answers(config, question, shown, stated[:, :k], asks)
        best.append(ideal.accuracy(answers, truth).mean(axis=1))
    informed = ideal.read(config.language, asks).classes[question.attribute]
    right = ideal.accuracy(informed, truth)
    return Curves(np.stack(model, 1), np.stack(best, 1), right.mean(axis=1))


def stated_classes(
    language: Language, question: Question, key: Any, shown: Sentences
) -> np.ndarray:
    """The class that each demonstration states, which may be wrong, by draw."""
    truth = np.asarray(shown.classes[..., question.attribute])
    if not language.label_noise:
        return truth
    count = np.full(len(truth), v.NUM_CLASSES[question.attribute])
    known = np.tile(np.arange(v.MOST_CLASSES), (len(truth), 1))
    return np.asarray(mislabelled(key, language.label_noise, truth, count, known))


def _label_words(question: Question, key: Any, draws: int) -> np.ndarray:
    """Label words by class, (draws, classes)."""
    if question.meant:
        rows = np.tile(meant_labels()[question.attribute], (draws, 1))
    else:
        rows = np.asarray(nonce_labels(key, draws, held_out=True))
    return rows[:, : v.NUM_CLASSES[question.attribute]]


def _scores(config: Config, params: Any, question: Question, drawn, k: int, run):
    """Logits of the label words behind every question, (draws, questions, classes)."""
    shown, stated, asks, labels = (jax.tree.map(np.asarray, part) for part in drawn)
    truth = asks.classes[..., question.attribute]
    asked = asks.length.shape[1]
    length = 1 + (k + 1) * config.language.demo_length()
    scores = []
    for draw in range(len(labels)):
        pairs = (
            (np.repeat(first[None, draw, :k], asked, axis=0), own[draw][:, None])
            for first, own in zip(shown, asks, strict=True)
        )
        both = Sentences(*(np.concatenate(pair, axis=1) for pair in pairs))
        told = np.repeat(stated[None, draw, :k], asked, axis=0)
        said = labels[draw][np.concatenate([told, truth[draw][:, None]], axis=1)]
        every = run(decoder_of(config), length, params, both.words, both.length, said)
        scores.append(np.asarray(every)[:, labels[draw]])
    return np.stack(scores)


def _last_logits(decoder, length, params, words, count, said):
    """Logits after the last colon of each prompt."""
    prompts = compose(words, count, said, length)
    every = logits(decoder, params, prompts.ids, prompts.mask)
    colon = prompts.mask.sum(axis=1) - 3
    return jnp.take_along_axis(every, colon[:, None, None], axis=1)[:, 0]


def _ideal_answers(config: Config, question: Question, shown, stated, asks):
    language, k = config.language, stated.shape[1]
    before, questions = (ideal.read(language, said) for said in (shown, asks))
    tasks = ideal.tasks_of(language, question.attribute, question.meant)
    return np.stack(
        [
            ideal.learner(
                before.at((draw, slice(k))),
                stated[draw],
                questions.at(draw),
                tasks,
                language.label_noise,
            )
            for draw in range(len(stated))
        ]
    )
