"""Attention heads of the small language model, and its loss by context length."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.mechanisms.circuit import blocks, on_cpu
from experiments.mechanisms.config import Heads
from experiments.shared import language as v
from experiments.shared.language import Documents, Language, documents, logits
from icltheory import induction
from icltheory.bridge import LanguageModel, Tokens
from icltheory.layered import attention_patterns
from icltheory.training import stream_key

# Number of tokens of the longest training documents.
LENGTH = 101


class LanguageCurves(NamedTuple):
    """Head scores and losses of the small language model.

    Attributes:
        repeated: Scores of its heads on blocks of random words, repeated.
        colons: On documents, at colons: prefix matching is then attention on the label
            words of the demonstrations before.
        right: At colons, the share of the attention on label words that goes to the
            word that is the answer, (layers, heads).
        by_count: The share of that word among them, what attention that is alike on
            all would have.
        copying: Copying scores by eigenvalues, (layers, heads).
        losses: Loss on repeated blocks by position, (T,).
        in_context: Loss in the last block minus loss in the first.
        labels: Loss of the label of demonstration 1, 2, ... of a document, (D,).
        labels_error: Its standard errors, (D,).
        label_score: Loss of the last label minus loss of the second, over documents
            that hold both, with its standard error.
    """

    repeated: induction.HeadScores
    colons: induction.HeadScores
    right: np.ndarray
    by_count: float
    copying: np.ndarray
    losses: np.ndarray
    in_context: float
    labels: np.ndarray
    labels_error: np.ndarray
    label_score: tuple[float, float]


def measure(config: Heads, seed: int, model: LanguageModel) -> LanguageCurves:
    """Computes all scores on fresh sequences."""
    keys = jax.random.split(stream_key(seed, "evaluation"))
    words = jnp.arange(v.FIRST_WORD, len(v.VOCABULARY))
    ids = blocks(keys[0], words, config, config.sequences)
    ids = jnp.pad(ids, ((0, 0), (1, 0)), constant_values=v.START)
    every, n = jnp.ones(ids.shape, bool), config.block
    losses = np.asarray(_losses(model, ids, every).mean(axis=0))
    last = (config.repeats - 1) * n
    sizes = config.documents, config.demonstrations, LENGTH
    drawn = jax.jit(lambda key: documents(key, Language(), *sizes))(keys[1])
    labels = _label_losses(model, drawn, config.demonstrations)
    paired = labels[:, _last(labels)] - labels[:, 1]
    right, by_count = _right(model, drawn)
    return LanguageCurves(
        right=right,
        by_count=by_count,
        repeated=_heads(model, ids, every, ids != v.START),
        colons=_heads(model, drawn.ids, drawn.mask, drawn.ids == v.COLON),
        copying=_copying(model),
        losses=losses,
        in_context=float(induction.in_context_score(losses, (0, n), (last, last + n))),
        labels=_mean(labels),
        labels_error=_error(labels),
        label_score=(float(_mean(paired)), float(_error(paired))),
    )


def _heads(model: LanguageModel, ids: Array, mask: Array, rows: Array):
    def run(params, ids, mask, rows):
        tokens = Tokens(ids, mask)
        return induction.head_scores(model.decoder, params, tokens, ids, rows & mask)

    return jax.tree.map(np.asarray, jax.jit(run)(model.params, ids, mask, rows))


def _right(model: LanguageModel, drawn: Documents) -> tuple[np.ndarray, float]:
    """Attention from colons to the right label word, over that to all label words."""
    label = drawn.is_label & drawn.mask
    answer = jnp.roll(drawn.ids, -1, axis=1)
    before = jnp.tril(jnp.ones((LENGTH, LENGTH), bool), -1)[None] & label[:, None]
    same = before & (drawn.ids[:, None] == answer[:, :, None])
    rows = (drawn.ids == v.COLON) & jnp.any(same, axis=-1)
    rows = rows & jnp.any(before & ~same, axis=-1)

    @jax.jit
    def run(params):
        tokens = Tokens(drawn.ids, drawn.mask)
        patterns = attention_patterns(model.decoder, params, tokens)
        weights = jnp.stack(patterns)  # (layers, B, heads, T, T)
        on = [jnp.sum(weights * m[None, :, None], axis=-1) for m in (same, before)]
        share = on[0] / jnp.maximum(on[1], jnp.finfo(weights.dtype).tiny)
        return jnp.mean(share, axis=(1, 3), where=rows[None, :, None])

    by_count = np.asarray(same.sum(-1) / np.maximum(before.sum(-1), 1))
    return np.asarray(run(model.params)), float(by_count[np.asarray(rows)].mean())


def _copying(model: LanguageModel) -> np.ndarray:
    @jax.jit
    def run(params):
        maps = model.decoder.token_maps(params)
        return induction.head_copying(model.decoder, params, *maps)

    with on_cpu():
        return np.asarray(run(jax.tree.map(np.asarray, model.params)))


def _losses(model: LanguageModel, ids: Array, mask: Array) -> Array:
    """Loss of every token except the first, (sequences, T - 1)."""

    @jax.jit
    def run(params, ids, mask):
        each = logits(model.decoder, params, ids[:, :-1], mask[:, :-1])
        each = jax.nn.log_softmax(each)
        return -jnp.take_along_axis(each, ids[:, 1:, None], axis=-1)[..., 0]

    return run(model.params, ids, mask)


def _label_losses(model: LanguageModel, drawn: Documents, most: int) -> np.ndarray:
    """Loss of each label in order; NaN beyond the end of a document."""
    losses = np.asarray(_losses(model, drawn.ids, drawn.mask))
    is_label = np.asarray(drawn.is_label & drawn.mask)[:, 1:]
    found = np.full((len(losses), most), np.nan)
    row, place = np.nonzero(is_label)
    found[row, is_label.cumsum(axis=1)[row, place] - 1] = losses[row, place]
    return found[:, : _last(found) + 1]


def _last(labels: np.ndarray) -> int:
    """Index of the last demonstration that most documents contain."""
    held = np.isfinite(labels).mean(axis=0) > 0.5
    return int(np.flatnonzero(held)[-1])


def _mean(values: np.ndarray) -> np.ndarray:
    return np.nanmean(values, axis=0)


def _error(values: np.ndarray) -> np.ndarray:
    count = np.isfinite(values).sum(axis=0)
    return np.nanstd(values, axis=0, ddof=1) / np.sqrt(count)
