r"""Ideal learners of this language, which apply Bayes' rule to the prompt.

A text's words are independent given its subject s and its classes c. With f the focus,
A attributes and e the noise, a word speaks of attribute a with probability

    f [a = s] + (1 - f) / (A + 1),

of nothing with (1 - f) / (A + 1), and is of class c_a with probability 1 - e, of each
of the C_a - 1 others with e / (C_a - 1).

Whoever knows the task (the subject and the label of each class) answers the likeliest
class. Whoever does not, but knows the label words, weighs every subject and order of
labels by how likely it makes the texts and their labels.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from experiments.small_lm import vocabulary as v
from experiments.small_lm.language import Language, Sentences
from experiments.small_lm.words import LIST_LENGTH


class Reading(NamedTuple):
    """Posterior probabilities of classes and log-likelihoods of subjects of texts.

    Attributes:
        classes: For each attribute, the probability of every class, (..., C_a).
        subject: Log-likelihood of the text for each subject, (..., A).
    """

    classes: tuple[np.ndarray, ...]
    subject: np.ndarray

    def at(self, index: Any) -> "Reading":
        """Selects some of the texts."""
        return Reading(tuple(p[index] for p in self.classes), self.subject[index])


class LanguageTask(NamedTuple):
    """A possible task: its subject, the class of each label word, and its odds."""

    subject: int
    order: tuple[int, ...]
    odds: float


def read(language: Language, said: Sentences) -> Reading:
    """Computes the posterior over classes of texts by Bayes' rule."""
    words, length = np.asarray(said.words), np.asarray(said.length)
    counted = np.arange(words.shape[-1]) < length[..., None]
    lists = np.where(counted, (words - v.FIRST_WORD) // LIST_LENGTH, -1)
    votes = [
        (lists[..., None] == first + np.arange(count)).sum(axis=-2)
        for first, count in zip(v.FIRST_LIST, v.NUM_CLASSES, strict=True)
    ]
    return Reading(
        tuple(_class_probabilities(own, language.noise) for own in votes),
        _subject_likelihood(votes, length, language.focus),
    )


def _class_probabilities(votes: np.ndarray, noise: float) -> np.ndarray:
    wrong = np.log(noise / (votes.shape[-1] - 1)) if noise else -1e3
    scores = votes * (np.log1p(-noise) - wrong)
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def _subject_likelihood(
    votes: list[np.ndarray], length: np.ndarray, focus: float
) -> np.ndarray:
    own = np.stack([own.sum(axis=-1) for own in votes], axis=-1)
    other = (1 - focus) / (len(votes) + 1)
    return own * np.log(focus + other) + (length[..., None] - own) * np.log(other)


def tasks_of(language: Language, subject: int, meant: bool) -> list[LanguageTask]:
    """Lists the possible tasks: a subject, and a class for each label word.

    Words that mean what they say stand for their classes; ``positive`` and ``negative``
    speak of sentiment or of season. Nonce words stand in any order for the classes of
    any attribute with as many of them.
    """
    classes = v.NUM_CLASSES[subject]
    if meant:
        words = v.MEANT[v.ATTRIBUTES[subject]]
        subjects = [a for a, name in enumerate(v.ATTRIBUTES) if v.MEANT[name] == words]
        orders = [tuple(range(classes))]
    else:
        subjects = [a for a, count in enumerate(v.NUM_CLASSES) if count == classes]
        orders = list(itertools.permutations(range(classes)))
    return [
        LanguageTask(a, o, language.attribute_odds[a]) for o in orders for a in subjects
    ]


def learner(
    shown: Reading,
    labels: np.ndarray,
    asked: Reading,
    tasks: list[LanguageTask],
    label_noise: float = 0.0,
) -> np.ndarray:
    """Probability of each label word for each question, given demonstrations.

    Of C label words that of a demonstration is right with probability 1 - p, and each
    other one with p / (C - 1).

    Args:
        shown: What the k demonstrations say.
        labels: Number of the label word of each.
        asked: What the questions say, each of them alone.
        tasks: The tasks that there may be.
        label_noise: Probability p that the label of a demonstration is wrong.

    Returns:
        (questions, label words): how likely each is the one of the question's class.
    """
    weights, answers = [], []
    for task in tasks:
        told = shown.classes[task.subject][:, list(task.order)]
        stated = told + label_noise * (1 - told * told.shape[-1]) / (told.shape[-1] - 1)
        seen = np.log(stated[np.arange(len(labels)), labels]).sum()
        seen += shown.subject[:, task.subject].sum() + np.log(task.odds)
        weights.append(seen + asked.subject[:, task.subject])
        answers.append(asked.classes[task.subject][:, list(task.order)])
    weight = np.exp(np.stack(weights) - np.max(weights, axis=0))
    weight = weight / weight.sum(axis=0)
    return (weight[..., None] * np.stack(answers)).sum(axis=0)


def accuracy(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Probability of a correct answer when equally likely answers are drawn at random.

    Args:
        probabilities: (..., classes).
        truth: The right class of each.

    Returns:
        One number for each.
    """
    best = probabilities > probabilities.max(axis=-1, keepdims=True) - 1e-9
    right = np.take_along_axis(best, truth[..., None], axis=-1)[..., 0]
    return right / best.sum(axis=-1)
