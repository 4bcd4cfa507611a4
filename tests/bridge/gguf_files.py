"""Tiny random models as GGUF files, and the same weights in Hugging Face's names."""

import gguf
import numpy as np

from tests.bridge.tiny import random_model, tensors_of

KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
# Bytes of a block of 256, and where its scales in half precision are.
_BLOCKS = {"Q4_K": (144, (0, 2)), "Q6_K": (210, (208,))}
_SIZES = {
    "vocab_size": 272,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e4,
}
# Heads are as wide as transformers takes them to be, whatever the file says.
CONFIGS = {
    "llama": {**_SIZES, "tie_word_embeddings": False},
    "qwen2": {**_SIZES, "tie_word_embeddings": True},
    "qwen3": {**_SIZES, "head_dim": 128, "tie_word_embeddings": False},
    "gemma3": {
        **_SIZES,
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 4,
        "query_pre_attn_scalar": 256,
    },
}


def config_of(model):
    return {"model_type": model, **CONFIGS[model]}


def write(path, model, kinds, tokenizer=(), change=None):
    """Writes a file whose matrices have these types in turn; returns its weights.

    ``change`` may edit the writer or the tensors before they are written.
    """
    config, rng = config_of(model), np.random.default_rng(0)
    writer, returned = gguf.GGUFWriter(path, model), {}
    _metadata(writer, config)
    architecture = gguf.MODEL_ARCH[model.upper()]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, *values in tokenizer:
        getattr(writer, name)(*values)
    tensors, matrices = {}, 0
    for name, value in tensors_of(random_model(config, scale=0.2)).items():
        kind = "F32" if value.ndim == 1 else kinds[matrices % len(kinds)]
        matrices += value.ndim > 1
        module, order = name.split(".")[-2], None
        if model == "llama" and module in ("q_proj", "k_proj"):
            count = "attention" if module == "q_proj" else "key_value"
            heads, rows = config[f"num_{count}_heads"], np.arange(len(value))
            order = rows.reshape(heads, 2, -1).swapaxes(1, 2).ravel()
            value = value[order]
        shift = np.float32(model == "gemma3" and value.ndim == 1)
        raw, value = _stored(value + shift, kind, rng)
        tensors[names.get_name(name, (".weight", ".bias"))] = raw, kind
        value = value - shift
        returned[name] = value if order is None else value[np.argsort(order)]
    if change is not None:
        change(writer, tensors)
    for name, (raw, kind) in tensors.items():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return returned


def _metadata(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])


def _stored(value, kind, rng):
    """The bytes of a matrix, and what they mean; random ones where none can be made."""
    code = gguf.GGMLQuantizationType[kind]
    if kind in _BLOCKS:
        size, places = _BLOCKS[kind]
        shape = *value.shape[:-1], value.shape[-1] // 256, size
        raw = rng.integers(0, 256, shape, np.uint8)
        for place in places:
            scale = np.array([4e-4], np.float16).view(np.uint8)
            raw[..., place : place + 2] = scale
        raw = raw.reshape(*value.shape[:-1], -1)
    else:
        raw = gguf.quantize(value, code)
    return raw, gguf.dequantize(raw, code)
