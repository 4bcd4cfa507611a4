"""Writes the model as a Hugging Face folder: config, weights and tokenizer."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.small_lm.config import Config
from experiments.small_lm.model import decoder_of
from experiments.small_lm.vocabulary import ID
from icltheory.bridge import LanguageModel
from icltheory.bridge.export import save_checkpoint

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def save(config: Config, params: Any, folder: Path) -> Path:
    """Writes the four files of the checkpoint and replaces existing ones."""
    described = config.hugging_face()
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    model = LanguageModel(decoder_of(config), params, config=described)
    save_checkpoint(model, folder, overwrite=True)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **SPECIAL,
        "add_bos_token": True,
        "model_max_length": described["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer.json").write_text(tokenizer_json())
    text = json.dumps(settings, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text)
    return folder


def rounded(params: Any) -> Any:
    """Rounds parameters to bfloat16 and returns them as float32.

    Their archive is half as large, and products in float32 stay as they were.
    """
    return jax.tree.map(lambda leaf: leaf.astype("bfloat16").astype("float32"), params)


def tokenizer_json() -> str:
    """Returns a word-level tokenizer, in which colons and line ends are words too."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        models,
        pre_tokenizers,
        processors,
    )

    tokenizer = Tokenizer(models.WordLevel(ID, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyrefly: ignore
        [
            pre_tokenizers.Split(Regex("[\n:]"), "isolated"),
            pre_tokenizers.Split(" ", "removed"),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(  # pyrefly: ignore
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", ID["<s>"])]
    )
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True, normalized=False) for word in SPECIAL.values()]
    )
    return tokenizer.to_str(pretty=True) + "\n"
