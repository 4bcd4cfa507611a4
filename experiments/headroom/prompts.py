"""Prompts that each have their own demonstrations, and ideal answers to them."""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.headroom.config import Config
from experiments.small_lm import ideal
from experiments.small_lm import vocabulary as v
from experiments.small_lm.curve import question, stated_classes
from experiments.small_lm.language import Language, Sentences, nonce_labels, sentences
from experiments.small_lm.tasks import texts
from experiments.small_lm.words import GROUP
from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate
from icltheory.training import stream_key


class DrawnPrompts(NamedTuple):
    """Prompts of one kind and label noise for one model.

    Attributes:
        task: The prompts as a task without demonstrations: those of a prompt are part
            of its text.
        calibration: Texts of further prompts.
        ideal: Probability that Bayes' rule, told the label words, the language and its
            noise, answers a test prompt rightly.
        informed: The same of who knows the class of each label word.
        groups: Number of the group of each test prompt's label words.
    """

    task: LanguageTask
    calibration: tuple[str, ...]
    ideal: np.ndarray
    informed: np.ndarray
    groups: np.ndarray


def draw(config: Config, seed: int, kind: str, noise: float) -> DrawnPrompts:
    """Draws prompts with sentences and label words never combined in training.

    Each prompt has label words of its own, unless the config says otherwise. It is
    right if the word of the question's true class is the likeliest of them; only labels
    of demonstrations are noisy.

    Args:
        config: Sizes.
        seed: Seed of the model.
        kind: Kind of task.
        noise: Probability that the label of a demonstration is wrong.
    """
    language = config.recipe.language.with_noise(noise)
    asked = question(kind)
    place = config.conditions.index((kind, noise))
    keys = jax.random.split(
        # Key 0 of this stream draws the curves of small_lm.
        jax.random.fold_in(stream_key(seed, "evaluation"), 1 + place),
        4,
    )
    total = config.validation + config.test + config.calibration
    shown, asks = (
        _sentences(k, language, np.full((total, count), asked.attribute), held_out=True)
        for k, count in ((keys[0], config.demonstrations), (keys[1], 1))
    )
    shown, asks = (Sentences(*map(np.asarray, part)) for part in (shown, asks))
    stated = stated_classes(language, asked, keys[2], shown)
    truth = np.asarray(asks.classes[:, 0, asked.attribute])
    count = v.NUM_CLASSES[asked.attribute]
    order = np.argsort(np.asarray(jax.random.uniform(keys[3], (total, count))))
    words = _label_words(config, seed, jax.random.fold_in(keys[3], 1), total)[:, :count]
    said = np.take_along_axis(order, stated, axis=1)
    label = np.take_along_axis(order, truth[:, None], axis=1)[:, 0]
    said_as = [[v.VOCABULARY[word] for word in row] for row in words.tolist()]
    names = [f"word{number}" for number in range(count)]
    examples = [
        Example({"text": text, **dict(zip(names, row, strict=True))}, int(own), number)
        for number, (text, row, own) in enumerate(
            zip(_texts(shown, asks, said, said_as), said_as, label, strict=True)
        )
    ]
    first, last = config.validation, config.validation + config.test
    test = slice(first, last)
    task = LanguageTask(
        f"{kind}, label noise {noise:g}",
        "paper",
        "choice",
        tuple(names),
        (),
        tuple(examples[:first]),
        tuple(examples[test]),
        PromptTemplate(
            "{text} : {label}\n",
            "{text} :",
            options=tuple(f" {{{name}}}" for name in names),
        ),
        scoring="log_likelihood",
    )
    best = _ideal(language, asked.attribute, shown, said, asks, test)
    informed = ideal.read(language, Sentences(*(part[test] for part in asks)))
    known = informed.classes[asked.attribute][:, 0]
    return DrawnPrompts(
        task,
        tuple(task.query(example) for example in examples[last:]),
        ideal.accuracy(best, label[test]),
        ideal.accuracy(known, truth[test]),
        (words[test, 0] - v.FIRST_NONCE) // GROUP,
    )


_sentences = jax.jit(sentences, static_argnames=("language", "held_out"))


def _label_words(config: Config, seed: int, key: Any, num: int) -> np.ndarray:
    """Draws the label words of each prompt from one group of nonce words."""
    if not config.one_pair:
        return np.asarray(nonce_labels(key, num, held_out=True))
    first = v.FIRST_NONCE + GROUP * (seed % v.NUM_GROUPS)
    return np.tile(np.arange(first, first + GROUP), (num, 1))


def _texts(
    shown: Sentences, asks: Sentences, said: np.ndarray, words: list[list[str]]
) -> list[str]:
    """Formats demonstrations ``w w w : LABEL`` and the question without its colon."""
    lines = iter(texts(shown))
    before = [
        "".join(f"{next(lines)} : {own[word]}\n" for word in row)
        for row, own in zip(said.tolist(), words, strict=True)
    ]
    return [a + b for a, b in zip(before, texts(asks), strict=True)]


def _ideal(
    language: Language,
    attribute: int,
    shown: Sentences,
    said: np.ndarray,
    asks: Sentences,
    rows: slice,
) -> np.ndarray:
    """Probability of each label word for some questions by Bayes' rule."""
    before, questions = (ideal.read(language, part) for part in (shown, asks))
    tasks = ideal.tasks_of(language, attribute, meant=False)
    noise = language.label_noise
    return np.stack(
        [
            ideal.learner(before.at(row), said[row], questions.at(row), tasks, noise)[0]
            for row in range(len(said))[rows]
        ]
    )
