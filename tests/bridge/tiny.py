"""Tiny random models of every family, and their checkpoints."""

import functools
import json

import jax
import numpy as np

from icltheory.bridge import Decoder, LanguageModel
from icltheory.bridge.families import entries_of, read_architecture
from icltheory.bridge.sharding import leaf_at
from icltheory.models._safetensors import write_safetensors
from tests.weights import drawn

_GPT = {"vocab_size": 37, "n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 24}
_LLAMA = {
    "vocab_size": 37,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 24,
}
_GROUPS = {**_LLAMA, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
_WINDOW = {**_GROUPS, "sliding_window": 4}
_TURNED = {**_LLAMA, "partial_rotary_factor": 0.4}
CONFIGS = {
    "gptj": {**_GPT, "rotary_dim": 2},
    "gpt2": _GPT,
    "llama": _GROUPS,
    "mistral": _WINDOW,
    "ministral": {**_WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "qwen2": {**_LLAMA, "num_key_value_heads": None, "tie_word_embeddings": True},
    "qwen3": _GROUPS,
    "phi": {**_TURNED, "num_key_value_heads": 1},
    "phi3": _GROUPS,
    "gpt_neox": {**_LLAMA, "rotary_pct": 0.4},
    "gemma": {**_LLAMA, "head_dim": 8, "num_key_value_heads": 1},
    "gemma2": {
        **_WINDOW,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
        "query_pre_attn_scalar": 3,
    },
    "gemma3_text": {**_WINDOW, "sliding_window_pattern": 2},
    "opt": {**_LLAMA, "ffn_dim": 20},
    "olmo2": {**_LLAMA, "hidden_size": 16, "num_key_value_heads": 1},
    "stablelm": _TURNED,
    "starcoder2": _WINDOW,
    "mixtral": {**_GROUPS, "num_local_experts": 3},
    "qwen3_moe": {
        **_GROUPS,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 10,
    },
}


def config_of(family, **changes):
    return {"model_type": family, **CONFIGS[family], **changes}


def random_model(config, **how):
    """A model with Gaussian weights, as ``weights.drawn`` draws them."""
    decoder = Decoder(read_architecture(config))
    return LanguageModel(decoder, drawn(decoder.init, **how), config=config)


@functools.cache
def model_of(family, dtype="float32", **changes):
    """Random weights, large enough for tokens to differ by much."""
    return random_model(config_of(family, **changes), dtype=dtype)


def tensors_of(model, prefix=None):
    """What a checkpoint of the model holds, by name."""
    entries = entries_of(model.arch, prefix)
    return {
        entry.name: np.asarray(
            entry.join([np.asarray(leaf_at(model.params, p)) for p in entry.paths])
        )
        for entry in entries
    }


def assert_same(params, expected):
    """The same bits under the same names."""
    found, wanted = map(jax.tree_util.tree_leaves_with_path, (params, expected))
    assert [path for path, _ in found] == [path for path, _ in wanted]
    for (path, one), (_, other) in zip(found, wanted, strict=True):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), path


def write(folder, config, tensors, file="model.safetensors"):
    """A checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / file, tensors)
    return folder


def write_shards(folder, config, tensors):
    """The same in two files and an index."""
    names, table = sorted(tensors), {}
    for number in (1, 2):
        file = f"model-{number:05d}-of-00002.safetensors"
        part = {name: tensors[name] for name in names[number - 1 :: 2]}
        write(folder, config, part, file)
        table.update(dict.fromkeys(part, file))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder
