"""Writes ``tests/bridge/fixtures`` with torch and transformers 5; tests only read it.

    python tests/bridge/make_fixtures.py [NAME ...]

A new fixture begins as a folder with two configs: ``config.json``, which this completes
with the defaults of the family, and ``config_old.json`` in the style of version 4 and
of the files on the hub, which leaves them out. Every parameter is random, biases and
norms too: at their usual start, 0 and 1, a forgotten one would not show. Logits are
computed in float64, one unpadded row at a time.
"""

import pathlib
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from fixture_models import FAMILIES, FIXTURES, LENGTHS, ROWS, STORED, TOKENS, UNPADDED
from safetensors.torch import load_file, save_file

# What the published files of a model leave off the names of tensors.
PREFIX = {"gpt2": "transformer."}


def build(name):
    """The model of a fixture, without its weights, and its configuration."""
    config = transformers.AutoConfig.from_pretrained(FIXTURES / name)
    config._attn_implementation = "eager"
    # The usual grouped product knows no float64.
    config._experts_implementation = "eager"
    dtype, config.dtype = config.dtype, torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    config.architectures, config.dtype = [type(model).__name__], dtype
    return model, config


def scale_of(name, weight, config):
    """Spread of a random matrix that keeps states and logits near 1, a power of two."""
    if "embed" in name or "wte" in name or "wpe" in name:
        return 0.25 if config.tie_word_embeddings else 1.0
    into = weight.shape[0] if ".c_" in name and "gpt2" in config.model_type else None
    return 2.0 ** np.round(-np.log2(into or weight.shape[-1]) / 2)


def randomise(model, config, name):
    """Draws every parameter; all are exact in the dtypes in which they are stored.

    Matrices are whole multiples of a power of two and the rest has eight bits of
    mantissa: an archive of such files is small.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    for key, weight in model.named_parameters():
        draw = torch.randn(weight.shape, generator=generator)
        if weight.ndim > 1:
            draw = draw.round() * scale_of(key, weight, config)
        else:
            is_scale = key.endswith("weight")
            shifted = is_scale and not config.model_type.startswith("gemma")
            draw = 0.3 * draw + shifted
        weight.data = draw.to(torch.bfloat16).to(config.dtype).to(torch.float32)


def tensors_of(model, name):
    """What the file holds: tied heads once, and the buffers old files carry."""
    tensors = {
        file_name(key, name): weight.detach().to(model.config.dtype).clone()
        for key, weight in published_names(model).items()
    }
    return {**tensors, **old_buffers(name, model.config)}


def file_name(key, name):
    """What the file of a fixture calls a tensor."""
    return key.removeprefix(PREFIX.get(name, ""))


def published_names(model):
    """Parameters as files name them: there each expert has matrices of its own."""
    if not hasattr(model.config, "num_experts_per_tok"):
        return dict(model.named_parameters())
    dtype = model.config.dtype
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model.config.dtype = dtype  # saving changes it
        return load_file(pathlib.Path(folder) / "model.safetensors")


def old_buffers(name, config):
    """Masks and frequencies that files of older versions hold beside the weights."""
    mask = torch.tril(torch.ones(1, 1, 20, 20))
    hidden = {"masked_bias": torch.tensor(-1e9)}
    turns = {"rotary_emb.inv_freq": torch.full((3,), 7.0)}
    part, kept = {
        "gpt2": ("h.{}.attn.", {"bias": mask}),
        "gptj": ("transformer.h.{}.attn.", {"bias": mask.to(torch.uint8), **hidden}),
        "gpt_neox": (
            "gpt_neox.layers.{}.attention.",
            {"bias": mask.to(torch.bool), **hidden, **turns},
        ),
        "llama": ("model.layers.{}.self_attn.", turns),
    }.get(name, ("", {}))
    return {
        part.format(i) + key: value.clone()
        for i in range(config.num_hidden_layers)
        for key, value in kept.items()
    }


def restore(model, name):
    """Takes the weights of the fixture that this one shares them with."""
    tensors = load_file(FIXTURES / name / "model.safetensors")
    for key, weight in model.named_parameters():
        weight.data = tensors[file_name(key, name)].float()


def expected(model, name, ids):
    """Logits in float64 of every row alone, and how far float32 is from them."""
    with torch.no_grad():
        single = torch.cat([model(row[None]).logits for row in ids])
    model = model.double()
    with torch.no_grad():
        logits = torch.cat([model(row[None]).logits for row in ids])
        for row, length in enumerate(() if name in UNPADDED else LENGTHS):
            short = model(ids[row, None, :length]).logits[0]
            torch.testing.assert_close(
                short, logits[row, :length], atol=2e-6, rtol=2e-6
            )
    error = (single - logits).abs().max().item()
    return logits.numpy().astype(np.float32), error


def write(name):
    """Writes one fixture and says how large its logits are."""
    folder = FIXTURES / name
    shared = folder / "weights_from"
    model, config = build(name)
    if shared.exists():
        restore(model, shared.read_text().strip())
    else:
        randomise(model, config, name)
        save_file(
            tensors_of(model, name),
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
    (folder / "config.json").write_text(config.to_json_string(use_diff=True))
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + 1)
    ids = torch.randint(0, config.vocab_size, (ROWS, TOKENS), generator=generator)
    if name == "llama_groups":
        model.save_pretrained(folder / "sharded", max_shard_size="40KB")
        (folder / "sharded" / "generation_config.json").unlink(missing_ok=True)
    logits, error = expected(model, name, ids)
    kept = {"ids": ids.numpy(), "logits": logits[:, STORED]}
    np.savez_compressed(folder / "expected.npz", **kept)
    spread = f"{name}: rms {logits.std():.2f}, largest {np.abs(logits).max():.2f}"
    print(f"{spread}; torch's own error in float32 {error:.1e}")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or FAMILIES:
        write(chosen)
