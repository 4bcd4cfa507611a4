"""The model: the package's own decoder in the shape of a small LLaMA."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from experiments.small_lm.config import Config
from experiments.small_lm.vocabulary import VOCABULARY
from icltheory.bridge import Decoder, LanguageModel, Tokens, load_checkpoint
from icltheory.bridge.families import read_architecture

_ROOT = Path(__file__).parents[2]


def load(checkpoint: str, name: str = "checkpoint") -> LanguageModel:
    """Loads the small language model from a path here or in the repository.

    Args:
        checkpoint: Folder of the checkpoint.
        name: Option that gave it, for errors.

    Raises:
        ValueError: If the checkpoint is another model's.
    """
    path = Path(checkpoint)
    model = load_checkpoint(path if path.exists() else _ROOT / path, "float32")
    if model.arch.vocab_size != len(VOCABULARY):
        raise ValueError(
            f"{name}: expected the small language model's {len(VOCABULARY)} words, got "
            f"{model.arch.vocab_size}"
        )
    return model


def decoder_of(config: Config) -> Decoder:
    """Returns the decoder described by the checkpoint's ``config.json``."""
    return Decoder(read_architecture(config.hugging_face()))


def start(config: Config, key: Array) -> Any:
    """Draws initial parameters that preserve the scale of activations.

    The token table is also the head. The last norm makes up for its size, so that all
    words are about equally likely at first.
    """
    decoder = decoder_of(config)
    params = decoder.init(key)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    paths = jax.tree_util.tree_leaves_with_path(params)
    drawn = [
        _drawn(config, k, [getattr(part, "key", None) for part in path], leaf)
        for k, (path, leaf) in zip(keys, paths, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)


def _drawn(config: Config, key: Array, path: list[Any], leaf: Array) -> Array:
    if leaf.ndim == 1:
        last = path[0] == "final_norm"
        size = 1 / (config.embed_std * config.width**0.5) if last else 1.0
        return jnp.full_like(leaf, size)
    std = leaf.shape[1] ** -0.5
    if "tokens" in path:
        std = config.embed_std
    if "W_O" in path or "W_out" in path:
        std *= (2 * config.num_layers) ** -0.5
    return std * jax.random.normal(key, leaf.shape, leaf.dtype)


def logits(decoder: Decoder, params: Any, ids: Array, mask: Array) -> Array:
    """Logits of the next token at every position."""
    stream = decoder.embed(params, Tokens(ids, mask))
    for layer in range(decoder.num_layers):
        stream = decoder.block(layer, params, stream)
    return decoder.read_out(params, stream)
