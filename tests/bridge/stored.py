"""Stored checkpoints and torch's logits on them, and short ways to run a decoder."""

import functools
import shutil

import jax
import numpy as np

from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.decoder import Decoder, Tokens
from tests.bridge.fixture_models import FIXTURES, LENGTHS, STORED

STYLES = ("config", "config_old")


def checkpoint(name, folder, style="config", weights="model.safetensors"):
    """Lays out a fixture as a checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIXTURES / name / f"{style}.json", folder / "config.json")
    pointer = FIXTURES / name / "weights_from"
    source = pointer.read_text().strip() if pointer.exists() else name
    shutil.copy(FIXTURES / source / weights, folder)
    return folder


def load(name, folder, style="config", dtype="float32"):
    """Loads a fixture as a user would."""
    return load_checkpoint(checkpoint(name, folder / name / style, style), dtype)


def expected(name):
    """Tokens ``(3, 17)`` and torch's logits behind them, NaN where none are stored."""
    stored = np.load(FIXTURES / name / "expected.npz")
    known = stored["logits"]
    logits = np.full((*stored["ids"].shape, known.shape[-1]), np.nan, known.dtype)
    logits[:, STORED] = known
    return stored["ids"], logits


def difference(ours, logits):
    """Largest difference from stored logits, which has to be a number."""
    known = ~np.isnan(logits)
    assert known.any()
    found = np.abs(np.asarray(ours, np.float64)[known] - logits[known]).max()
    assert not np.isnan(found)
    return float(found)


def pad(rows, side, lengths=LENGTHS):
    """Rows cut to lengths and pushed to one side; padding is an arbitrary token."""
    size = rows.shape[1]
    mask = np.zeros(rows.shape[:2], bool)
    out = np.flip(rows, axis=1).copy()
    for i, n in enumerate(lengths):
        place = slice(size - n, size) if side == "left" else slice(0, n)
        mask[i, place] = True
        out[i, place] = rows[i, :n]
    return out, mask


@functools.partial(jax.jit, static_argnums=(0, 4))
def run_block(decoder, layer_params, stream, prefix=None, last_only=False):
    """One block; compiled once for all layers."""
    return decoder.run_block(layer_params, stream, prefix, last_only=last_only)


embed = jax.jit(Decoder.embed, static_argnums=0)
embed_after = jax.jit(Decoder.embed_after, static_argnums=(0, 3))
embed_after_rows = jax.jit(Decoder.embed_after, static_argnums=0)
read_out = jax.jit(Decoder.read_out, static_argnums=0)
label_logits = jax.jit(Decoder.label_logits, static_argnums=0)


def run(model, ids, mask):
    """Streams at every depth, and every block's own keys and values."""
    streams, caches = [embed(model.decoder, model.params, Tokens(ids, mask))], []
    for number, layer in enumerate(model.params["layers"]):
        decoder = model.decoder.of_layer(number)
        stream, cache = run_block(decoder, layer, streams[-1])
        streams.append(stream)
        caches.append(cache)
    return streams, caches
