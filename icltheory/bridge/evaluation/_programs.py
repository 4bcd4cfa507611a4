"""The compiled programs of an evaluation, shared by layers and rates.

``names`` and ``specs`` aside they depend on shapes only. A stream behind a pruned block
has the rates as leading axis of ``h``, and its prefix as that of keys and values.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.batching import in_turns
from icltheory.bridge.streams import KV, Stream
from icltheory.layered import replace_matrix

RATES = Stream._make((0, None, None, None, None))
RATES_KV = KV._make((0, 0, None))
SHARED_KV = KV._make((None, None, None))
_TOKENS = 1024  # Most tokens whose logits are in memory together.


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def fan_out(decoder, specs, last_only, layer, matrices, stream, prefix):
    """Applies the pruned block: one input stream, one output stream per rate."""
    keys = RATES_KV if changes_keys(specs) else SHARED_KV

    def at(matrices, prefix):
        pruned = layer
        for spec, W in zip(specs, matrices, strict=True):
            pruned = replace_matrix(pruned, spec, W)
        return decoder.run_block(pruned, stream, prefix, last_only=last_only)

    axes = (0, None if prefix is None else keys)
    rates = matrices[0].shape[0] if matrices else 1
    at_rates = jax.vmap(at, in_axes=axes, out_axes=(RATES, keys), axis_size=rates)
    return at_rates(matrices, prefix)


@functools.partial(jax.jit, static_argnums=(0, 1))
def above(decoder, last_only, layer, stream, prefix):
    """Applies a block above the pruned one, with the same weights for every rate."""

    def at(stream, prefix):
        return decoder.run_block(layer, stream, prefix, last_only=last_only)

    axes = (RATES, None if prefix is None else RATES_KV)
    return jax.vmap(at, in_axes=axes, out_axes=(RATES, RATES_KV))(stream, prefix)


def changes_keys(specs):
    """Whether the keys and values of a prefix differ between rates."""
    return any(spec.name in ("W_K", "W_V") for spec in specs)


@functools.partial(jax.jit, static_argnums=(0, 1))
def score(decoder, measure, ends, stream, answers, before):
    """Returns the measures of all sequences of B rows, (R, B S, K) or (R, B S, 1)."""
    with jax.default_matmul_precision("highest"):
        found = _MEASURES[measure](decoder, ends, stream, answers, before)
    # A row may hold several sequences, each with its own measures.
    return found.reshape(len(found), -1, found.shape[-1])


def _label_token(decoder, ends, stream, answers, before):
    return _few(decoder, ends, stream)


def _log_likelihood(decoder, ends, stream, answers, before):
    def at(h):
        return _likelihoods(decoder, ends, stream._replace(h=h), answers)[0]

    # Rates are computed one after the other.
    return jax.lax.map(at, stream.h)[..., None]


def _likelihoods(decoder, ends, stream, answers):
    """Log-likelihood (B, S) of each answer, and whether greedy decoding returns it.

    An answer with a NaN logit does not count as greedy, although argmax takes NaN for
    the largest.
    """

    def at(row):
        h, (tokens, places, counted) = row
        picked = Stream(h[places][None], places[None], counted.any(axis=1)[None])
        logits = decoder.read_out(ends, picked)[0]
        logp = jax.nn.log_softmax(logits, axis=-1)
        found = jnp.take_along_axis(logp, tokens[:, None], axis=-1)
        same = jnp.argmax(logits, axis=-1) == tokens
        # The mask is not multiplied, since padding may be NaN.
        total = jnp.where(counted, found, 0).sum(axis=0)
        return total, jnp.all(same[:, None] | ~counted, axis=0) & ~jnp.isnan(total)

    # Logits of the whole vocabulary at every token are large: few rows at once.
    at_once = max(_TOKENS // answers.tokens.shape[1], 1)
    return in_turns(at, (stream.h, answers), at_once)


def _mean_logit(decoder, ends, stream, answers, before):
    means = _few(decoder, ends, stream)  # (R, B, T, 1)
    means = jnp.take_along_axis(means, answers.places[None, :, :, None], axis=2)
    total = jnp.where(answers.counted[None], means, 0).sum(axis=2)
    count = answers.counted.sum(axis=1)
    before_total, before_count = before
    found = (total + before_total[:, None, None]) / (count + before_count)[None]
    return found[..., None]


@functools.partial(jax.jit, static_argnums=0)
def prefix_logits(decoder, ends, stream):
    """Sum of mean logits over a prefix's tokens at each rate, and their number."""
    means = _few(decoder, ends, stream)[:, 0, :, 0]
    return jnp.where(stream.mask, means, 0).sum(axis=1), stream.mask.sum()


def _few(decoder, ends, stream):
    """Logits (R, B, T, K) of the few vocabulary rows in ``ends``."""
    rates, rows, length, width = stream.h.shape
    flat = stream._replace(h=stream.h.reshape(-1, length, width))
    table = ends["embed"]["tokens"] if decoder.arch.tied else ends["head"]["weight"]
    logits = decoder.label_logits(ends, flat, jnp.arange(table.shape[0]))
    return logits.reshape(rates, rows, length, -1)


@functools.partial(jax.jit, static_argnums=0)
def row_likelihoods(decoder, ends, stream, answers):
    """Log-likelihoods of the answers of rows, and whether they are greedy."""
    with jax.default_matmul_precision("highest"):
        return _likelihoods(decoder, ends, stream, answers)


@functools.partial(jax.jit, static_argnames="tokens")
def lengthened(cache, tokens):
    """Extends a cache to hold ``tokens`` more tokens."""

    def more(leaf):
        width = [(0, 0), (0, tokens)] + [(0, 0)] * (leaf.ndim - 2)
        return jnp.pad(leaf, width)

    return jax.tree.map(more, cache)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=3)
def continued(decoder, layer, stream, cache, place):
    """Applies one block to one more token per row and writes its keys and values."""
    stream, own = decoder.run_block(layer, stream, cache)

    def put(kept, new):
        return jax.lax.dynamic_update_slice_in_dim(kept, new, place, axis=1)

    return stream, jax.tree.map(put, cache, own)


@functools.partial(jax.jit, static_argnums=0)
def likeliest(decoder, ends, stream):
    """Returns the most likely next token of each row; -1 if a logit is NaN."""
    last = stream._replace(h=stream.h[:, -1:])
    with jax.default_matmul_precision("highest"):
        logits = decoder.read_out(ends, last)[:, 0]
    return jnp.where(jnp.isnan(logits).any(axis=-1), -1, jnp.argmax(logits, axis=-1))


_MEASURES = {
    "label_token": _label_token,
    "log_likelihood": _log_likelihood,
    "mean_logit": _mean_logit,
}


def ends_for(params, measure, label_ids):
    """Returns the final norm and the vocabulary rows that a measure needs.

    Label tokens need their own rows. The mean over the vocabulary of all logits is the
    logit of one row, the mean one.
    """
    ends = {"final_norm": params["final_norm"]}
    tables = {"embed": {"tokens": params["embed"]["tokens"]}, "head": params["head"]}
    if measure == "label_token":
        rows = np.asarray(label_ids)
        tables = jax.tree.map(lambda leaf: leaf[rows], tables)
    elif measure == "mean_logit":
        tables = jax.tree.map(_mean_row, tables)
    return ends | tables


def _mean_row(table):
    wide = jnp.promote_types(table.dtype, jnp.float32)
    return jnp.mean(table, axis=0, keepdims=True, dtype=wide)
