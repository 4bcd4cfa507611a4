"""Errors of the small language model by position of the special demonstration."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.position.config import Config
from experiments.position.regression import SPECIAL
from experiments.small_lm import vocabulary as v
from experiments.small_lm.language import Language, compose, nonce_labels, sentences
from experiments.small_lm.model import logits
from icltheory.bridge import LanguageModel
from icltheory.training import stream_key

_TOPIC = v.ATTRIBUTES.index("topic")
_CLASSES = v.NUM_CLASSES[_TOPIC]


class Prompts(NamedTuple):
    """Sentences of every prompt, the special one first and the question last.

    Attributes:
        words: ``(S, N + 1, most_words)``.
        length: ``(S, N + 1)``.
        label: Label word of each, ``(S, N + 1)``; the question's is the answer.
        choices: Label words by class, ``(S, classes)``.
        answer: Class of the question, ``(S,)``.
    """

    words: Any
    length: Any
    label: Any
    choices: Any
    answer: Any


def errors(config: Config, model: LanguageModel) -> dict[tuple[str, str], np.ndarray]:
    """Wrong answers as zeros and ones, ``(questions, N)``, by kind of demonstration."""
    run = jax.jit(_wrong, static_argnums=0)
    found = {}
    for special in SPECIAL:
        key = jax.random.fold_in(
            stream_key(config.seed, "evaluation"), SPECIAL.index(special)
        )
        parts = [
            run(model.decoder, model.params, prompts(k, size, config, special))
            for k, size in _batches(key, config.questions)
        ]
        found["language model", special] = np.concatenate(parts).astype(float)
    return found


def prompts(key: Any, count: int, config: Config, special: str) -> Prompts:
    """Draws prompts on four topics with nonce labels, all sentences held out.

    The special demonstration is of the question's class. As the relevant one it has the
    right label, and the others are of the other classes. As the wrong one it has
    another label, and the others are of all classes with their labels.
    """
    keys = jax.random.split(key, 5)
    N = config.demonstrations
    answer = jax.random.randint(keys[0], (count,), 0, _CLASSES, jnp.int32)
    fewest = 1 if special == "relevant" else 0
    turn = jax.random.randint(keys[1], (count, N - 1), fewest, _CLASSES, jnp.int32)
    same = jnp.zeros((count, 1), jnp.int32)
    shift = jnp.concatenate([same, turn, same], axis=1)
    classes = (answer[:, None] + shift) % _CLASSES
    topics = jnp.broadcast_to(classes[..., None], (*classes.shape, v.MOST_CLASSES))
    subject = np.full(classes.shape, _TOPIC)
    said = sentences(keys[2], Language(), subject, held_out=True, topics=topics)
    choices = nonce_labels(keys[3], count, held_out=True)
    label = jnp.take_along_axis(choices, classes, axis=1)
    if special == "wrong":
        other = jax.random.randint(keys[4], (count, 1), 1, _CLASSES, jnp.int32)
        wrong = (answer[:, None] + other) % _CLASSES
        label = label.at[:, :1].set(jnp.take_along_axis(choices, wrong, axis=1))
    return Prompts(said.words, said.length, label, choices, answer)


def _wrong(decoder: Any, params: Any, asked: Prompts) -> jax.Array:
    """Whether the model is wrong, by position of the special demonstration."""
    last = asked.label.shape[1] - 1
    length = 1 + (last + 1) * Language().demo_length()

    def at(place):
        i = jnp.arange(last + 1)
        moved = jnp.where(i == place, 0, jnp.where(i < place, i + 1, i))
        order = jnp.where(i == last, last, moved)
        words, counts, labels = (part[:, order] for part in asked[:3])
        document = compose(words, counts, labels, length)
        every = logits(decoder, params, document.ids, document.mask)
        # The label and the end of the line follow the last colon.
        colon = document.mask.sum(axis=1) - 3
        scores = jnp.take_along_axis(every, colon[:, None, None], axis=1)[:, 0]
        chosen = jnp.take_along_axis(scores, asked.choices, axis=1).argmax(axis=1)
        return chosen != asked.answer

    return jax.lax.map(at, jnp.arange(last)).T


def _batches(key: Any, count: int, size: int = 512):
    """Yields keys and sizes of the batches of questions."""
    for start in range(0, count, size):
        yield jax.random.fold_in(key, start), min(size, count - start)
