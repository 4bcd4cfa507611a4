"""Generates sentences with three hidden classes, and documents of demonstrations.

A sentence has a class of sentiment, of season and of topic, and a subject: the one of
the three that decides its label. A word speaks of the subject with the probability
``focus``, else of any of the three or of nothing. It is of a wrong class with the
probability ``noise``. The numbers of a sentence's words add up to a multiple of five
exactly if the sentence is held out: training never sees those.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._frame.fields import check_at_least
from experiments.small_lm import vocabulary as v
from experiments.small_lm.words import GROUP, LIST_LENGTH

_KINDS = len(v.ATTRIBUTES)
_MODULUS = 5
_TOPIC = v.ATTRIBUTES.index("topic")


@dataclasses.dataclass(frozen=True)
class Language:
    """How sentences and documents are drawn.

    Attributes:
        fewest_words: Words of the shortest sentence.
        most_words: Words of the longest, at least two.
        focus: Probability that a word speaks of the subject in any case.
        noise: Probability that a word is of a wrong class.
        meant: Share of training documents whose label words mean what they say.
        two_topics: Share of the training documents on topics that know only two of
            them, any two.
        attribute_odds: How often sentiment, season and topic decide, relatively.
        label_noise: Probability that the label of a demonstration is that of another
            class of its document, each equally likely; in training documents times the
            hardness, as the noise of the words.
    """

    fewest_words: int = 2
    most_words: int = 3
    focus: float = 0.9
    noise: float = 0.02
    meant: float = 0.25
    two_topics: float = 0.5
    attribute_odds: tuple[float, ...] = (1.0, 1.0, 1.5)
    label_noise: float = 0.0

    def __post_init__(self):
        check_at_least(self, 1, "fewest_words")
        check_at_least(self, max(2, self.fewest_words), "most_words")
        for name in ("focus", "noise", "meant", "two_topics", "label_noise"):
            if not 0 <= getattr(self, name) < 1:
                value = getattr(self, name)
                raise ValueError(f"{name}: expected a value in [0, 1), got {value}")

    def with_noise(self, label_noise: float) -> "Language":
        """Returns the language with another share of wrong labels."""
        return dataclasses.replace(self, label_noise=label_noise)

    def demo_length(self) -> int:
        """Largest number of tokens of a demonstration with label and end of line."""
        return self.most_words + 3


Numbers = Array | np.ndarray


class Sentences(NamedTuple):
    """Word numbers of sentences, their lengths, and their classes by attribute."""

    words: Numbers
    length: Numbers
    classes: Numbers


class Documents(NamedTuple):
    """Token numbers of documents, the mask of tokens, and the mask of labels."""

    ids: Array
    mask: Array
    is_label: Array


def sentences(
    key: Array,
    language: Language,
    subject: Numbers,
    held_out: bool,
    spread: Array | float = 1.0,
    hardness: Array | float = 1.0,
    topics: Array | None = None,
) -> Sentences:
    """Draws one sentence per subject, either all held out or none.

    A word is any of its list with the probability ``spread``, else the list's first.
    The smaller the hardness, from 1 to 0, the shorter a sentence is, the more of its
    words speak of its subject, and the fewer are of a wrong class. A row of ``topics``
    names four topics of which a sentence has one; all there are, if not given.
    """
    subject = jnp.asarray(subject)
    shape = subject.shape
    keys = jax.random.split(key, 10)
    n, slots = language.most_words, (*shape, language.most_words)
    hard = jnp.broadcast_to(jnp.asarray(hardness, jnp.float32), shape)
    classes = jnp.stack(
        [
            _integers(k, shape, 0, count)
            for k, count in zip(
                jax.random.split(keys[0], _KINDS), v.NUM_CLASSES, strict=True
            )
        ],
        axis=-1,
    )
    if topics is not None:
        topic = jnp.take_along_axis(topics, classes[..., -1:], axis=-1)
        classes = jnp.concatenate([classes[..., :-1], topic], axis=-1)
    least = jnp.round(1 + (language.fewest_words - 1) * hard).astype(int)
    most = jnp.round(2 + (n - 2) * hard).astype(int)
    length = _integers(keys[1], shape, least, most + 1)
    kind = _integers(keys[2], slots, 0, _KINDS + 1)
    strays = _happens(keys[9], (1 - language.focus) * hard[..., None], slots)
    kind = jnp.where(strays, kind, subject[..., None])
    meant = jnp.take_along_axis(classes, jnp.minimum(kind, _KINDS - 1), axis=-1)
    counts = jnp.asarray(v.NUM_CLASSES)[jnp.minimum(kind, _KINDS - 1)]
    wrong = (meant + 1 + _integers(keys[3], slots, 0, counts - 1)) % counts
    astray = _happens(keys[4], language.noise * hard[..., None], slots)
    first = jnp.asarray((*v.FIRST_LIST, v.FILLER))[kind]
    filler = _integers(keys[5], slots, 0, 2)
    chosen = first + jnp.where(kind == _KINDS, filler, jnp.where(astray, wrong, meant))
    any_word = _integers(keys[6], slots, 0, LIST_LENGTH)
    place = jnp.where(_happens(keys[7], spread, slots), any_word, 0)
    word = v.FIRST_WORD + LIST_LENGTH * chosen + place
    return Sentences(_moved(keys[8], word, length, held_out), length, classes)


def _moved(key: Array, word: Array, length: Array, held_out: bool) -> Array:
    """Changes the last word within its list so that the sum of words is as required."""
    slot = _slots(word.shape[-1], word.ndim)
    counted = slot < length[..., None]
    last = slot == length[..., None] - 1
    total = jnp.where(counted, word, 0).sum(axis=-1)
    allowed = _integers(key, length.shape, 1, _MODULUS)
    remainder = jnp.zeros_like(length) if held_out else allowed
    change = (remainder - total) % _MODULUS
    # Each list of words begins at a multiple of five.
    within = word % _MODULUS
    moved = word - within + (within + change[..., None]) % _MODULUS
    return jnp.where(last, moved, word)


def nonce_labels(key: Array, num_documents: int, held_out: bool) -> Array:
    """Draws four nonce words per document, one for each class.

    Words of one group never meet in a training document, words of a held-out one are
    all of one group: the pairs are new although every word is known.
    """
    group_key, word_key = jax.random.split(key)
    shape = (num_documents, v.MOST_CLASSES)
    if held_out:
        group = _integers(group_key, (num_documents, 1), 0, v.NUM_GROUPS)
        member = jnp.argsort(_uniform(word_key, (num_documents, GROUP)))
        return v.FIRST_NONCE + GROUP * group + member
    odds = _uniform(group_key, (num_documents, v.NUM_GROUPS))
    groups = jnp.argsort(odds, axis=-1)[:, : v.MOST_CLASSES]
    member = _integers(word_key, shape, 0, GROUP)
    return v.FIRST_NONCE + GROUP * groups + member


def meant_labels() -> np.ndarray:
    """Conventional label words (attribute, class); short lists repeat the last."""
    rows = [[v.ID[w] for w in words] for words in v.MEANT.values()]
    return np.array([row + row[-1:] * (v.MOST_CLASSES - len(row)) for row in rows])


def documents(
    key: Array,
    language: Language,
    num: int,
    demos: int,
    length: int,
    spread: Array | float = 1.0,
    hardest: Array | float = 1.0,
) -> Documents:
    """Draws training documents of ``demos`` demonstrations, truncated to ``length``."""
    keys = jax.random.split(key, 6)
    odds = jnp.log(jnp.asarray(language.attribute_odds, jnp.float32))
    attribute = jax.random.categorical(keys[0], odds, shape=(num,))
    meant = _happens(keys[1], language.meant, (num, 1))
    labels = jnp.where(
        meant,
        jnp.asarray(meant_labels())[attribute],
        nonce_labels(keys[2], num, held_out=False),
    )
    reach = jnp.full((num, 1), hardest, jnp.float32)
    less = _uniform(keys[4], (num, 1))
    hard = reach * jnp.where(jnp.arange(num)[:, None] % 2 == 0, 1.0, less)
    subject = jnp.broadcast_to(attribute[:, None], (num, demos))
    every = jnp.arange(v.MOST_CLASSES)[None]
    some = _topics(keys[5], language, num)
    known = jnp.where(attribute[:, None] == _TOPIC, some, every)
    topics = jnp.broadcast_to(known[:, None], (num, demos, v.MOST_CLASSES))
    said = sentences(keys[3], language, subject, False, spread, hard, topics)
    decided = jnp.take_along_axis(said.classes, attribute[:, None, None], axis=-1)
    decided = decided[..., 0]
    if language.label_noise:
        # A separate key keeps the other draws the same as without noise.
        noise_key = jax.random.fold_in(key, len(keys))
        two = known[:, 0] == known[:, 2]
        count = jnp.where(two, 2, jnp.asarray(v.NUM_CLASSES)[attribute])
        share = language.label_noise * hard
        decided = mislabelled(noise_key, share, decided, count, known)
    label = jnp.take_along_axis(labels, decided, axis=-1)
    return compose(said.words, said.length, label, length)


def mislabelled(
    key: Array,
    share: Array | float,
    classes: Numbers,
    count: Numbers,
    known: Numbers,
) -> Array:
    """Changes a share of the stated classes to others of the same document.

    Args:
        key: Random key.
        share: Probability of a wrong label: a number, or one of each document,
            (documents, 1).
        classes: True classes, (documents, demonstrations).
        count: How many classes each document has, (documents,).
        known: Which they are: the first ones of each row, (documents, most classes).

    Returns:
        The stated classes.
    """
    classes, count = jnp.asarray(classes), jnp.asarray(count)[:, None]
    happens_key, other_key = jax.random.split(key)
    place = (jnp.asarray(known)[:, None] == classes[..., None]).argmax(axis=-1)
    other = place + 1 + _integers(other_key, classes.shape, 0, count - 1)
    other = jnp.take_along_axis(jnp.asarray(known), other % count, axis=-1)
    wrong = _happens(happens_key, share, classes.shape)
    return jnp.where(wrong, other, classes)


def _topics(key: Array, language: Language, num: int) -> Array:
    """Draws topics of documents in random order; some documents have only two."""
    order_key, pair_key = jax.random.split(key)
    order = jnp.argsort(_uniform(order_key, (num, v.MOST_CLASSES)), axis=-1)
    pairs = jnp.tile(order[:, :2], (1, v.MOST_CLASSES // 2))
    return jnp.where(_happens(pair_key, language.two_topics, (num, 1)), pairs, order)


def compose(words: Numbers, count: Numbers, label: Numbers, length: int) -> Documents:
    """Joins demonstrations ``w w w : LABEL`` and ends of lines into documents."""
    num, demos, most = words.shape
    ends = jnp.broadcast_to(
        jnp.stack(
            jnp.broadcast_arrays(
                jnp.asarray(v.COLON)[None, None], label, jnp.asarray(v.LINE)[None, None]
            ),
            axis=-1,
        ),
        (num, demos, 3),
    )
    grid = jnp.concatenate([words, ends], axis=-1).astype(jnp.int32)
    place = _slots(most + 3, 3)
    there = (place < count[..., None]) | (place >= most)
    target = place == most + 1
    grid, there = grid.reshape(num, -1), there.reshape(num, -1)
    target = jnp.broadcast_to(target, (num, demos, most + 3)).reshape(num, -1)
    # Position 0 is the start token; absent and excess tokens are dropped at the end.
    where = jnp.where(there, jnp.cumsum(there, axis=-1), length)
    row = jnp.arange(num)[:, None]
    ids = jnp.zeros((num, length), jnp.int32).at[:, 0].set(v.START)
    ids = ids.at[row, where].set(grid, mode="drop")
    mask = _slots(length, 2) <= there.sum(axis=-1, keepdims=True)
    is_label = jnp.zeros((num, length), bool)
    return Documents(ids, mask, is_label.at[row, where].set(target, mode="drop"))


# Dtypes are explicit, so that draws do not change in 64-bit mode.
def _integers(key: Array, shape: tuple[int, ...], low: Any, high: Any) -> Array:
    return jax.random.randint(key, shape, low, high, jnp.int32)


def _uniform(key: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, jnp.float32)


def _happens(key: Array, probability: Any, shape: tuple[int, ...]) -> Array:
    return _uniform(key, shape) < probability


def _slots(count: int, ndim: int) -> Array:
    """Indices along the last axis, shaped to broadcast against ``ndim`` axes."""
    return jnp.arange(count).reshape((1,) * (ndim - 1) + (count,))
