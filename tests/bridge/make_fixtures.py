"""Writes ``tests/bridge/fixtures`` with torch and transformers 5; tests only read it.

    python tests/bridge/make_fixtures.py [NAME ...]

Every parameter is random, biases and norms too: at their usual start, 0 and 1, a
forgotten one would not show. Logits are computed in float64, one unpadded row at a
time. Beside ``config.json``, which transformers writes, stands ``config_old.json`` in
the style of its fourth version and of the files on the hub.
"""

import json
import pathlib
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from fixture_models import LENGTHS, MODELS, ROWS, STORED, TOKENS
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parent / "fixtures"
ROPE_OLD = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}


def build(name):
    """The model of a fixture, without its weights, and its configuration."""
    spec = MODELS[name]
    config = transformers.AutoConfig.for_model(spec.family, **spec.given)
    config._attn_implementation = "eager"
    # The usual grouped product knows no float64.
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    config.architectures = [type(model).__name__]
    config.dtype = MODELS[spec.weights_from or name].dtype
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
    stored = getattr(torch, MODELS[name].dtype)
    for key, weight in model.named_parameters():
        draw = torch.randn(weight.shape, generator=generator)
        if weight.ndim > 1:
            draw = draw.round() * scale_of(key, weight, config)
        else:
            is_scale = key.endswith("weight")
            shifted = is_scale and not config.model_type.startswith("gemma")
            draw = 0.3 * draw + shifted
        weight.data = draw.to(torch.bfloat16).to(stored).to(torch.float32)


def tensors_of(model, name):
    """What the file holds: tied heads once, and the buffers old files carry."""
    spec = MODELS[name]
    stored = getattr(torch, spec.dtype)
    tensors = {
        key.removeprefix(spec.prefix): weight.detach().to(stored).clone()
        for key, weight in published_names(model).items()
    }
    return {**tensors, **old_buffers(name, spec)}


def published_names(model):
    """Parameters as files name them: there each expert has matrices of its own."""
    if not hasattr(model.config, "num_experts_per_tok"):
        return dict(model.named_parameters())
    dtype = model.config.dtype
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model.config.dtype = dtype  # saving changes it
        return load_file(pathlib.Path(folder) / "model.safetensors")


def old_buffers(name, spec):
    """Masks and frequencies that files of older versions hold beside the weights."""
    mask = torch.tril(torch.ones(1, 1, 20, 20))
    mask_value = torch.tensor(-1e9)
    frequencies = torch.full((3,), 7.0)
    if name == "gpt2":
        return {f"h.{i}.attn.bias": mask.clone() for i in range(2)}
    if name == "gptj":
        part = "transformer.h.{}.attn."
        kept = {"bias": mask.to(torch.uint8), "masked_bias": mask_value}
    elif name == "gpt_neox":
        part = "gpt_neox.layers.{}.attention."
        kept = {"bias": mask.to(torch.bool), "masked_bias": mask_value}
        kept["rotary_emb.inv_freq"] = frequencies
    elif name == "llama":
        part = "model.layers.{}.self_attn."
        kept = {"rotary_emb.inv_freq": frequencies}
    else:
        return {}
    layers = spec.given.get("n_layer") or spec.given["num_hidden_layers"]
    return {
        part.format(i) + key: value.clone()
        for i in range(layers)
        for key, value in kept.items()
    }


def restore(model, name):
    """Takes the weights of the fixture that this one shares them with."""
    tensors = load_file(FOLDER / name / "model.safetensors")
    for key, weight in model.named_parameters():
        weight.data = tensors[key.removeprefix(MODELS[name].prefix)].float()


def old_config(spec, config):
    """The configuration in the old style: what was given, and how rope was said."""
    given = dict(spec.given)
    rope = dict(given.pop("rope_parameters", {}))
    if "sliding_attention" in rope:
        given["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    theta, part = ROPE_OLD.get(spec.family, ("rope_theta", "partial_rotary_factor"))
    if rope:
        given[theta] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        given[part] = rope.pop("partial_rotary_factor")
    kind = rope.pop("rope_type", "default")
    if kind != "default":
        key = "rope_type" if kind == "llama3" else "type"
        # Published Phi-3 files say the old length beside the others, not among these.
        numbers = {name: value for name, value in rope.items() if name not in given}
        given["rope_scaling"] = {key: kind, **numbers}
    head = {"architectures": config.architectures, "model_type": spec.family}
    return {**head, **given, "torch_dtype": config.dtype}


def expected(model, name, ids):
    """Logits in float64 of every row alone, and how far float32 is from them."""
    with torch.no_grad():
        single = torch.cat([model(row[None]).logits for row in ids])
    model = model.double()
    with torch.no_grad():
        logits = torch.cat([model(row[None]).logits for row in ids])
        for row, length in enumerate(LENGTHS if MODELS[name].padded else ()):
            short = model(ids[row, None, :length]).logits[0]
            torch.testing.assert_close(
                short, logits[row, :length], atol=2e-6, rtol=2e-6
            )
    error = (single - logits).abs().max().item()
    return logits.numpy().astype(np.float32), error


def write(name):
    """Writes one fixture and says how large its logits are."""
    folder, spec = FOLDER / name, MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    model, config = build(name)
    if spec.weights_from:
        restore(model, spec.weights_from)
        (folder / "weights_from").write_text(spec.weights_from + "\n")
    else:
        randomise(model, config, name)
        save_file(
            tensors_of(model, name),
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
    (folder / "config.json").write_text(config.to_json_string(use_diff=True))
    old = json.dumps(old_config(spec, config), indent=2) + "\n"
    (folder / "config_old.json").write_text(old)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + 1)
    shape, vocabulary = (ROWS, TOKENS), spec.given["vocab_size"]
    ids = torch.randint(0, vocabulary, shape, generator=generator)
    if name == "llama_groups":
        model.save_pretrained(folder / "sharded", max_shard_size="40KB")
        (folder / "sharded" / "generation_config.json").unlink(missing_ok=True)
    logits, error = expected(model, name, ids)
    kept = {"ids": ids.numpy(), "logits": logits[:, STORED]}
    np.savez_compressed(folder / "expected.npz", **kept)
    spread = f"{name}: rms {logits.std():.2f}, largest {np.abs(logits).max():.2f}"
    print(f"{spread}; torch's own error in float32 {error:.1e}")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODELS:
        write(chosen)
