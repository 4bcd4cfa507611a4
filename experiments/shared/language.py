"""A small language: its words, sentences, documents of demonstrations, and its model.

A sentence has a class of sentiment, of season and of topic, and a subject: the one of
the three that decides its label. A word speaks of the subject with the probability
``focus``, else of any of the three or of nothing. It is of a wrong class with the
probability ``noise``. The numbers of a sentence's words add up to a multiple of five
exactly if the sentence is held out: training never sees those.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import check_at_least, check_each, expect
from icltheory.bridge import Decoder, LanguageModel, Tokens, load_checkpoint

LIST_LENGTH = 20
# The words of each class, by attribute.
WORDS: dict[str, dict[str, str]] = {
    "sentiment": {
        "positive": """good great lovely superb charming brilliant delightful wonderful
            excellent pleasant happy graceful splendid enjoyable clever amazing
            beautiful perfect joyful sweet""",
        "negative": """bad awful dreadful terrible boring dull nasty horrible poor ugly
            sad clumsy miserable tedious stupid annoying broken rotten gloomy bitter""",
    },
    "season": {
        "summer": """sunshine beach sandals heat picnic swimming lemonade tan shorts
            barbecue fan shade pool meadow swallow harvest bees berries daylight
            sunflower""",
        "winter": """snow frost gloves ice fireplace skiing cocoa sledge coat blizzard
            scarf heater icicle chimney owl firewood boots soup darkness fir""",
    },
    "topic": {
        "world": """minister treaty border embassy war election president parliament
            army refugees summit sanctions diplomat protest capital coup envoy truce
            nation vote""",
        "sports": """match goal team coach league striker final medal race stadium
            referee tennis score captain record season champion sprint penalty cup""",
        "business": """shares profit market bank merger investor price company sales
            debt shareholder loan retailer budget stock tariff supplier earnings
            currency trade""",
        "science": """planet gene telescope laser vaccine physics atom fossil robot
            satellite cell experiment enzyme galaxy theory microscope species reactor
            proton comet""",
    },
    "none": {
        "this": """the a this that it one some every each another which what here there
            now then again still also just""",
        "of": """of in on with by from for about over under near after before during
            through between behind beside against along""",
    },
}
# Nonce label words: eight groups of four.
_NONCE = """blick dax wug toma zorp fendle gavix plim
    quorn rindle skeb tazzle ullot vorn wibbon xand
    yurple zimbo brask clome drint eggle frobe glunt
    harn ismo jask klep lurb mosk nerf ovik"""
NONCE = _NONCE.split()
GROUP = 4
# Label words with a conventional meaning, by attribute.
MEANT = {
    "sentiment": ("positive", "negative"),
    "season": ("positive", "negative"),
    "topic": ("world", "sports", "business", "science"),
}
_LISTS = [words.split() for classes in WORDS.values() for words in classes.values()]
_LABELS = dict.fromkeys(word for words in MEANT.values() for word in words)
_SPECIAL = ("<unk>", "<s>", "</s>", ":", "\n")
VOCABULARY = [*_SPECIAL, *(w for words in _LISTS for w in words), *_LABELS, *NONCE]
ID = {word: index for index, word in enumerate(VOCABULARY)}
START, END, COLON, LINE = (ID[word] for word in ("<s>", "</s>", ":", "\n"))
FIRST_WORD, FIRST_NONCE = len(_SPECIAL), ID[NONCE[0]]
# Attributes that can decide the label, with their numbers of classes and first lists.
ATTRIBUTES = tuple(MEANT)
NUM_CLASSES = tuple(len(WORDS[name]) for name in ATTRIBUTES)
FIRST_LIST = tuple(sum(NUM_CLASSES[:place]) for place in range(len(ATTRIBUTES)))
FILLER, MOST_CLASSES = sum(NUM_CLASSES), max(NUM_CLASSES)
_KINDS, _TOPIC = len(ATTRIBUTES), ATTRIBUTES.index("topic")
_MODULUS = 5

assert FIRST_WORD % _MODULUS == 0
assert {len(words) for words in _LISTS} == {LIST_LENGTH}
assert len(ID) == len(VOCABULARY)

Numbers = Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class Language:
    """How sentences and documents are drawn."""

    fewest_words: int = 2  # words of the shortest sentence
    most_words: int = 3  # words of the longest, at least two
    focus: float = 0.9  # probability that a word speaks of the subject in any case
    noise: float = 0.02  # probability that a word is of a wrong class
    # share of training documents whose label words mean what they say
    meant: float = 0.25
    # share of the training documents on topics that know only two of them, any two
    two_topics: float = 0.5
    # how often sentiment, season and topic decide, relatively
    attribute_odds: tuple[float, ...] = (1.0, 1.0, 1.5)
    # probability that the label of a demonstration is that of another class of its
    # document, each equally likely; in training times the hardness, as the other noise
    label_noise: float = 0.0

    def __post_init__(self):
        check_at_least(self, 1, "fewest_words")
        check_at_least(self, max(2, self.fewest_words), "most_words")
        shares = ("focus", "noise", "meant", "two_topics", "label_noise")
        check_each(self, "in [0, 1)", *shares)

    def demo_length(self) -> int:
        """Largest number of tokens of a demonstration with label and end of line."""
        return self.most_words + 3


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

    A word is any of its list with the probability ``spread``, else the list's first. At
    a smaller hardness, from 1 to 0, sentences are shorter and plainer. A row of
    ``topics`` names four topics of which a sentence has one; all there are by default.
    """
    subject = jnp.asarray(subject)
    shape, n = subject.shape, language.most_words
    keys, slots = jax.random.split(key, 10), (*shape, n)
    hard = jnp.broadcast_to(jnp.asarray(hardness, jnp.float32), shape)
    each = zip(jax.random.split(keys[0], _KINDS), NUM_CLASSES, strict=True)
    classes = jnp.stack([_integers(k, shape, 0, count) for k, count in each], axis=-1)
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
    counts = jnp.asarray(NUM_CLASSES)[jnp.minimum(kind, _KINDS - 1)]
    wrong = (meant + 1 + _integers(keys[3], slots, 0, counts - 1)) % counts
    astray = _happens(keys[4], language.noise * hard[..., None], slots)
    first = jnp.asarray((*FIRST_LIST, FILLER))[kind]
    filler = _integers(keys[5], slots, 0, 2)
    chosen = first + jnp.where(kind == _KINDS, filler, jnp.where(astray, wrong, meant))
    any_word = _integers(keys[6], slots, 0, LIST_LENGTH)
    place = jnp.where(_happens(keys[7], spread, slots), any_word, 0)
    word = FIRST_WORD + LIST_LENGTH * chosen + place
    return Sentences(_moved(keys[8], word, length, held_out), length, classes)


def _moved(key, word, length, held_out):
    """Changes the last word within its list so that the sum of words is as required."""
    slot = _slots(word.shape[-1], word.ndim)
    last = slot == length[..., None] - 1
    total = jnp.where(slot < length[..., None], word, 0).sum(axis=-1)
    allowed = _integers(key, length.shape, 1, _MODULUS)
    change = (jnp.where(held_out, 0, allowed) - total) % _MODULUS
    # Each list of words begins at a multiple of five.
    within = word % _MODULUS
    moved = word - within + (within + change[..., None]) % _MODULUS
    return jnp.where(last, moved, word)


def nonce_labels(key: Array, num_documents: int, held_out: bool) -> Array:
    """Draws four nonce words per document, one for each class.

    Held-out ones are of one group, whose words never meet in a training document.
    """
    group_key, word_key = jax.random.split(key)
    shape, count = (num_documents, MOST_CLASSES), len(NONCE) // GROUP
    if held_out:
        group = _integers(group_key, (num_documents, 1), 0, count)
        member = jnp.argsort(_uniform(word_key, (num_documents, GROUP)))
        return FIRST_NONCE + GROUP * group + member
    odds = _uniform(group_key, (num_documents, count))
    groups = jnp.argsort(odds, axis=-1)[:, :MOST_CLASSES]
    return FIRST_NONCE + GROUP * groups + _integers(word_key, shape, 0, GROUP)


def meant_labels() -> np.ndarray:
    """Conventional label words (attribute, class); short lists repeat the last."""
    rows = [[ID[w] for w in words] for words in MEANT.values()]
    return np.array([row + row[-1:] * (MOST_CLASSES - len(row)) for row in rows])


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
    nonce = nonce_labels(keys[2], num, held_out=False)
    labels = jnp.where(meant, jnp.asarray(meant_labels())[attribute], nonce)
    reach = jnp.full((num, 1), hardest, jnp.float32)
    less = _uniform(keys[4], (num, 1))
    hard = reach * jnp.where(jnp.arange(num)[:, None] % 2 == 0, 1.0, less)
    subject = jnp.broadcast_to(attribute[:, None], (num, demos))
    every, some = jnp.arange(MOST_CLASSES)[None], _topics(keys[5], language, num)
    known = jnp.where(attribute[:, None] == _TOPIC, some, every)
    topics = jnp.broadcast_to(known[:, None], (num, demos, MOST_CLASSES))
    said = sentences(keys[3], language, subject, False, spread, hard, topics)
    decided = jnp.take_along_axis(said.classes, attribute[:, None, None], axis=-1)
    decided = decided[..., 0]
    if language.label_noise:
        # A separate key keeps the other draws the same as without noise.
        noise_key = jax.random.fold_in(key, len(keys))
        two = known[:, 0] == known[:, 2]
        count = jnp.where(two, 2, jnp.asarray(NUM_CLASSES)[attribute])
        share = language.label_noise * hard
        decided = mislabelled(noise_key, share, decided, count, known)
    label = jnp.take_along_axis(labels, decided, axis=-1)
    return compose(said.words, said.length, label, length)


def mislabelled(
    key: Array, share: Array | float, classes: Numbers, count: Numbers, known: Numbers
) -> Array:
    """Changes a share of the stated classes to others of the same document.

    It may be (documents, 1); the classes are the first ``count`` of a row of ``known``.
    """
    classes, count = jnp.asarray(classes), jnp.asarray(count)[:, None]
    happens_key, other_key = jax.random.split(key)
    place = (jnp.asarray(known)[:, None] == classes[..., None]).argmax(axis=-1)
    other = place + 1 + _integers(other_key, classes.shape, 0, count - 1)
    other = jnp.take_along_axis(jnp.asarray(known), other % count, axis=-1)
    return jnp.where(_happens(happens_key, share, classes.shape), other, classes)


def _topics(key, language, num):
    """Draws topics of documents in random order; some documents have only two."""
    order_key, pair_key = jax.random.split(key)
    order = jnp.argsort(_uniform(order_key, (num, MOST_CLASSES)), axis=-1)
    pairs = jnp.tile(order[:, :2], (1, MOST_CLASSES // 2))
    return jnp.where(_happens(pair_key, language.two_topics, (num, 1)), pairs, order)


def compose(words: Numbers, count: Numbers, label: Numbers, length: int) -> Documents:
    """Joins demonstrations ``w w w : LABEL`` and ends of lines into documents."""
    num, demos, most = words.shape
    colon, line = (jnp.asarray(token)[None, None] for token in (COLON, LINE))
    ends = jnp.stack(jnp.broadcast_arrays(colon, label, line), axis=-1)
    ends = jnp.broadcast_to(ends, (num, demos, 3))
    grid = jnp.concatenate([words, ends], axis=-1).astype(jnp.int32).reshape(num, -1)
    place = _slots(most + 3, 3)
    there = ((place < count[..., None]) | (place >= most)).reshape(num, -1)
    target = jnp.broadcast_to(place == most + 1, (num, demos, most + 3))
    # Position 0 is the start token; absent and excess tokens are dropped at the end.
    where = jnp.where(there, jnp.cumsum(there, axis=-1), length)
    row = jnp.arange(num)[:, None]
    ids = jnp.zeros((num, length), jnp.int32).at[:, 0].set(START)
    ids = ids.at[row, where].set(grid, mode="drop")
    mask = _slots(length, 2) <= there.sum(axis=-1, keepdims=True)
    is_label = jnp.zeros((num, length), bool)
    is_label = is_label.at[row, where].set(target.reshape(num, -1), mode="drop")
    return Documents(ids, mask, is_label)


# Dtypes are explicit, so that draws do not change in 64-bit mode.
def _integers(key, shape, low, high):
    return jax.random.randint(key, shape, low, high, jnp.int32)


def _uniform(key, shape):
    return jax.random.uniform(key, shape, jnp.float32)


def _happens(key, probability, shape):
    return _uniform(key, shape) < probability


def _slots(count, ndim):
    """Indices along the last axis, shaped to broadcast against ``ndim`` axes."""
    return jnp.arange(count).reshape((1,) * (ndim - 1) + (count,))


# --- the model


def load(checkpoint: str, name: str = "checkpoint") -> LanguageModel:
    """Loads the small language model from a path here or in the repository."""
    path, root = Path(checkpoint), Path(__file__).parents[2]
    model = load_checkpoint(path if path.exists() else root / path, "float32")
    words, expected = model.arch.vocab_size, len(VOCABULARY)
    expect(
        words == expected, name, f"the small language model's {expected} words", words
    )
    return model


def logits(decoder: Decoder, params: Any, ids: Array, mask: Array) -> Array:
    """Logits of the next token at every position."""
    stream = decoder.embed(params, Tokens(ids, mask))
    for layer in range(decoder.num_layers):
        stream = decoder.block(layer, params, stream)
    return decoder.read_out(params, stream)


def answer_logits(
    decoder: Decoder, length: int, params: Any, words: Any, count: Any, label: Any
) -> Array:
    """Logits after the last colon of each document of up to ``length`` tokens."""
    document = compose(words, count, label, length)
    every = logits(decoder, params, document.ids, document.mask)
    # The label and the end of the line follow the last colon.
    colon = document.mask.sum(axis=1) - 3
    return jnp.take_along_axis(every, colon[:, None, None], axis=1)[:, 0]
