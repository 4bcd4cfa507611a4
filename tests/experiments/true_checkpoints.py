"""Random checkpoints with the architecture of GPT-J and LLaMA 2, but for their sizes.

Depth, heads, names of tensors, shards with their index, the tables that old files carry
and the tokenizers' files are those of the published checkpoints.
"""

import itertools
import json

import ml_dtypes
import numpy as np
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from experiments.real_model.published import CONFIGS
from icltheory.bridge.families import entries_of, read_architecture
from icltheory.models._safetensors import Tensor, write_safetensors

SHARDS = 3
# As narrow as 0.995 of the paper's grid allows: 200 singular values leave one.
SIZES = {
    "gptj": {"n_embd": 208, "rotary_dim": 4, "vocab_size": 900, "n_positions": 2048},
    "llama2": {"hidden_size": 256, "intermediate_size": 688, "vocab_size": 900},
}
LABELS = ("pos", "neg", "world", "sports", "business", "science", "true", "false")
LABELS += ("Yes", "No", "Maybe", "Mi")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def corpus(texts):
    """Texts, and every label as a word of its own."""
    words = [f"label: {word}\n a {word} {word}? {word}" for word in LABELS * 20]
    return [*texts, *words]


def byte_level_tokenizer(texts, size):
    """GPT-J's kind: byte-level BPE, one special token, nothing in front of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(texts), trainer)
    return tokenizer


def llama_tokenizer(texts, size):
    """LLaMA's kind: BPE on spaces as letters, bytes for the unknown, <s> in front."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*special, *BYTES], show_progress=False
    )
    learned = [f" {text}" for text in corpus(texts)]
    tokenizer.train_from_iterator(learned, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    vocabulary, unknown = model["vocab"], {"unk_token": "<unk>", "fuse_unk": True}
    whole = Tokenizer(models.BPE(vocabulary, merges, **unknown, byte_fallback=True))
    whole.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    parts = decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    whole.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), *parts])
    whole.post_processor = processors.TemplateProcessing(
        "<s> $A", "<s> $A <s> $B", [("<s>", 1)]
    )
    whole.add_special_tokens([AddedToken(token, special=True) for token in special])
    return whole


MADE = {
    "gptj": (byte_level_tokenizer, "GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>"),
    "llama2": (llama_tokenizer, "LlamaTokenizer", "<s>", "</s>"),
}


def old_tables(preset, config):
    """Masks and frequencies that the published files hold beside the weights."""
    if preset == "gptj":
        mask = np.tril(np.ones((1, 1, 16, 16), np.uint8))
        part = "transformer.h.{}.attn."
        kept = {"bias": mask, "masked_bias": np.array(-1e9, np.float32)}
        layers = config["n_layer"]
    else:
        part = "model.layers.{}.self_attn."
        kept = {"rotary_emb.inv_freq": np.ones(4, np.float32)}
        layers = config["num_hidden_layers"]
    return {
        part.format(layer) + name: table
        for layer in range(layers)
        for name, table in kept.items()
    }


def write_shards(folder, tensors):
    """Files in the order of the tensors, and the index that says where each is."""
    names, table, size = list(tensors), {}, 0
    ends = [len(names) * number // SHARDS for number in range(SHARDS + 1)]
    for number, (start, stop) in enumerate(itertools.pairwise(ends), start=1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        part = {name: tensors[name] for name in names[start:stop]}
        write_safetensors(folder / file, part)
        table.update(dict.fromkeys(part, file))
        size += sum(tensor.nbytes for tensor in part.values())
    index = {"metadata": {"total_size": size}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def random_tensor(rng, entry, dtype):
    """A tensor for :func:`write_shards`: near 1 for scales, else normal."""
    wide = 0.1 if len(entry.shape) == 1 else 1 / np.sqrt(entry.shape[-1])
    shift = "ln" in entry.name or "norm" in entry.name
    scale = shift and entry.name.endswith("weight")

    def make():
        values = rng.standard_normal(entry.shape, np.float32)
        return (wide * values + scale).astype(dtype)

    return Tensor(entry.shape, np.dtype(dtype), make)


def write_true_checkpoint(preset, folder, texts, **changes):
    """Random weights of a preset's architecture, in the dtype that the config says."""
    config = {**CONFIGS[preset], **SIZES[preset], **changes}
    kinds = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    dtype = np.dtype(kinds[config.get("torch_dtype", "float16")])
    rng = np.random.default_rng(0)
    tensors = {
        entry.name: random_tensor(rng, entry, dtype)
        for entry in entries_of(read_architecture(config))
    }
    tensors |= old_tables(preset, config)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_shards(folder, tensors)
    make, kind, first, last = MADE[preset]
    make(texts, config["vocab_size"] - 100).save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": kind, "bos_token": first, "eos_token": last}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder
