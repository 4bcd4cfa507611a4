"""Evaluates the small language model by 0-1 losses on pairs of demonstrations."""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments._frame.looks import plain_words
from experiments.shared import language as v
from experiments.shared.language import (
    Language,
    compose,
    logits,
    meant_labels,
    nonce_labels,
    sentences,
)
from experiments.supersample.config import TASKS, Config
from experiments.supersample.measure import Case, judge
from icltheory.bridge import LanguageModel

_BATCH = 64


def language(config: Config, model: LanguageModel) -> Iterator[Case]:
    """Evaluates every task with every number of pairs."""
    for task in config.language_tasks:
        family = f"language model, {plain_words(task)}"
        for shots in config.language_shots:
            yield judge(
                config,
                family,
                f"{family}, N = {shots}",
                shots,
                functools.partial(_losses, config, model, task, shots),
                None,
            )


def _losses(config, model, task, shots, key):
    parts = []
    for start in range(0, config.language_prompts, _BATCH):
        size = min(_BATCH, config.language_prompts - start)
        own = jax.random.fold_in(key, start)
        parts.append(_run(model.decoder, task, shots, size, model.params, own))
    losses, chosen = (np.concatenate(part) for part in zip(*parts, strict=True))
    return losses, chosen


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run(decoder, task, shots, count, params, key):
    """Computes losses (count, N, 2) and coins (count, N) for one batch of prompts."""
    subject, meant = TASKS[task]
    place = v.ATTRIBUTES.index(subject)
    keys = jax.random.split(key, 3)
    asked = np.full((count, 2 * shots), place)
    said = sentences(keys[0], Language(), asked, held_out=True)
    choices = nonce_labels(keys[1], count, held_out=True)
    if meant:
        choices = jnp.broadcast_to(
            jnp.asarray(meant_labels())[place][None], choices.shape
        )
    choices = choices[:, : v.NUM_CLASSES[place]]
    answer = said.classes[..., place]
    label = jnp.take_along_axis(choices, answer, axis=1)
    chosen = jax.random.bernoulli(keys[2], shape=(count, shots)).astype(int)
    rows = 2 * jnp.arange(shots)[None] + chosen
    length = 1 + (shots + 1) * Language().demo_length()

    def wrong(query):
        order = jnp.concatenate([rows, jnp.full((count, 1), query)], axis=1)
        words = jnp.take_along_axis(said.words, order[..., None], axis=1)
        counts, labels = (
            jnp.take_along_axis(part, order, axis=1) for part in (said.length, label)
        )
        document = compose(words, counts, labels, length)
        every = logits(decoder, params, document.ids, document.mask)
        # The label and the end of the line follow the last colon.
        colon = document.mask.sum(axis=1) - 3
        scores = jnp.take_along_axis(every, colon[:, None, None], axis=1)[:, 0]
        best = jnp.take_along_axis(scores, choices, axis=1).argmax(axis=1)
        return (best != answer[:, query]).astype(jnp.float32)

    losses = jax.lax.map(wrong, jnp.arange(2 * shots)).T
    return losses.reshape(count, shots, 2), chosen
