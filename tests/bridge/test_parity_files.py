"""One model in several kinds of file: shards, names, buffers, dtypes, Flax trees."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.families import read_architecture
from tests.bridge import stored

pytest.importorskip("safetensors")


def assert_equal(model, other):
    """The same program with bit for bit the same parameters."""
    assert model.arch == other.arch
    jax.tree.map(np.testing.assert_array_equal, model.params, other.params)


def test_shards_are_the_single_file(tmp_path):
    """As transformers wrote both."""
    shutil.copytree(stored.FIXTURES / "llama_groups" / "sharded", tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) == 2
    one = stored.load("llama_groups", tmp_path)
    assert_equal(load_checkpoint(tmp_path / "shards"), one)


def test_a_shard_that_is_missing_is_named(tmp_path):
    shutil.copytree(stored.FIXTURES / "llama_groups" / "sharded", tmp_path / "shards")
    name = "model-00002-of-00002.safetensors"
    (tmp_path / "shards" / name).unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=name):
        load_checkpoint(tmp_path / "shards")


@pytest.mark.parametrize("name", ["llama_tied", "qwen3"])
def test_a_tied_table_may_be_stored_under_the_heads_name(name, tmp_path):
    table = "model.embed_tokens.weight"
    moved = stored.checkpoint(name, tmp_path / "moved")
    stored.rename(moved, lambda key: "lm_head.weight" if key == table else key)
    assert "lm_head.weight" in stored.tensors_of(moved)
    one = stored.load(name, tmp_path)
    assert_equal(load_checkpoint(moved), one)
    assert "weight" not in one.params["head"]


def test_a_tied_table_may_be_stored_twice(tmp_path):
    twice = stored.checkpoint("llama_tied", tmp_path / "twice")
    tensors = stored.tensors_of(twice)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    stored.store(twice, tensors)
    assert_equal(load_checkpoint(twice), stored.load("llama_tied", tmp_path))


def test_gpt2_may_carry_its_prefix_and_its_head(tmp_path):
    """Published files leave off the prefix; those that a training writes have it."""
    one = stored.load("gpt2", tmp_path)
    other = stored.checkpoint("gpt2", tmp_path / "prefixed")
    assert "h.0.attn.bias" in stored.tensors_of(other)
    stored.rename(
        other, lambda key: None if key.endswith(".attn.bias") else f"transformer.{key}"
    )
    tensors = stored.tensors_of(other)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    stored.store(other, tensors)
    assert_equal(load_checkpoint(other), one)


@pytest.mark.parametrize("name", ["gptj", "gpt2", "llama"])
def test_flax_trees_are_the_safetensors(name, tmp_path):
    """Written by the Flax classes of transformers 4.57.6."""
    flax = stored.checkpoint(name, tmp_path / "flax", weights="flax_model.msgpack")
    assert_equal(load_checkpoint(flax), stored.load(name, tmp_path))


@pytest.mark.parametrize("name", ["qwen2", "llama", "gptj"])
def test_stored_dtypes_widen_exactly(name, tmp_path):
    """bfloat16, float16 and float32 files, read in float32."""
    folder = stored.checkpoint(name, tmp_path)
    kinds = {"qwen2": jnp.bfloat16, "llama": jnp.float16, "gptj": jnp.float32}
    table = {"gptj": "transformer.wte.weight"}.get(name, "model.embed_tokens.weight")
    raw = stored.tensors_of(folder)[table]
    assert raw.dtype == kinds[name]
    ours = load_checkpoint(folder).params["embed"]["tokens"]
    np.testing.assert_array_equal(ours, raw.astype(np.float32))


@pytest.mark.parametrize("name", stored.NAMES)
def test_a_missing_tensor_is_named(name, tmp_path):
    folder = stored.checkpoint(name, tmp_path)
    keys = sorted(stored.tensors_of(folder))
    gone = next(k for k in keys if k.endswith("norm.weight") or "ln_1" in k)
    stored.rename(folder, lambda key: None if key == gone else key)
    with pytest.raises(ValueError, match=gone.removeprefix("transformer.")):
        load_checkpoint(folder)


def test_a_tensor_of_the_wrong_shape_is_named(tmp_path):
    folder = stored.checkpoint("llama_groups", tmp_path)
    tensors = stored.tensors_of(folder)
    key = "model.layers.1.self_attn.k_proj.weight"
    tensors[key] = tensors[key].T
    stored.store(folder, tensors)
    with pytest.raises(ValueError, match=key):
        load_checkpoint(folder)


def test_what_a_config_says_is_honoured_or_refused(tmp_path):
    """Settings that change logits and are in no fixture: never silently ignored."""
    for name, setting in [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt2", {"scale_attn_weights": False}),
        ("gpt2", {"activation_function": "tanh"}),
        ("phi", {"qk_layernorm": True}),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}),
        ("llama", {"rope_scaling": {"type": "unheard-of", "factor": 2.0}}),
        ("llama", {"model_type": "unheard-of"}),
    ]:
        folder = stored.checkpoint(name, tmp_path / name, style="config_old")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | setting))
        with pytest.raises(ValueError, match="expected"):
            load_checkpoint(folder)


@pytest.mark.parametrize("said", [{}, {"hidden_activation": "gelu_pytorch_tanh"}])
def test_gemmas_gelu_is_the_tanh_form(said, tmp_path):
    """As the first files say it, and as those say it that were corrected."""
    folder = stored.checkpoint("gemma", tmp_path, style="config_old")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_act": "gelu"} | said
    (folder / "config.json").write_text(json.dumps(config))
    ids, logits = stored.expected("gemma")
    ours = load_checkpoint(folder).logits(ids)
    np.testing.assert_allclose(ours, logits, atol=1e-5, rtol=0)


def test_padding_is_not_counted(tmp_path):
    """More columns than there are positions, but no more tokens."""
    model, (ids, logits) = stored.load("gpt2", tmp_path), stored.expected("gpt2")
    more = np.zeros((3, 7), int)
    wide = np.concatenate([more, ids], axis=1)
    mask = np.concatenate([more, np.ones_like(ids)], axis=1).astype(bool)
    assert wide.shape[1] > model.context_length
    ours = model.logits(wide, mask)[:, 7:]
    np.testing.assert_allclose(ours, logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("family", "heads"), [("gemma", 16), ("mistral", 8), ("qwen2", 32), ("qwen3", 32)]
)
def test_key_heads_that_a_config_leaves_out_are_the_familys(family, heads, tmp_path):
    config = {
        **{"model_type": family, "vocab_size": 9, "hidden_size": 64, "head_dim": 2},
        **{"num_attention_heads": 64, "num_hidden_layers": 1, "intermediate_size": 3},
    }
    assert read_architecture(config).num_kv_heads == heads
    config["num_key_value_heads"] = None
    assert read_architecture(config).num_kv_heads == 64


def test_gpt_neox_has_its_own_name_for_the_part_that_turns():
    config = {
        **{"model_type": "gpt_neox", "vocab_size": 9, "hidden_size": 64},
        **{"num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 3},
    }
    for given, dim in (({}, 4), ({"rotary_pct": 0.5}, 8)):
        rotary = read_architecture({**config, "partial_rotary_factor": 1.0, **given})
        assert rotary.rotary.dim == dim
