"""What only some families have: windows by layer, rotations, caps, norms, names."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from icltheory.bridge import Decoder, Stream
from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.families import read_architecture
from tests.bridge import stored
from tests.bridge.tiny import config_of, model_of


def assert_equal(model, other):
    """The same program with bit for bit the same parameters."""
    assert model.arch == other.arch
    jax.tree.map(np.testing.assert_array_equal, model.params, other.params)


# What logits depend on and no shape of a weight shows.
SETTINGS = [
    ("gemma2", {"score_cap": None}),
    ("gemma2", {"logit_cap": None}),
    ("gemma2", {"query_scalar": None}),
    ("gemma2", {"sliding_window": 5}),
    ("gemma3", {"local_rotary": None}),
    ("gemma3", {"sliding_window": (4, 4, None)}),
    ("opt", {"position_offset": 1, "max_positions": 21}),
    ("ministral", {"sliding_window": (None, 5)}),
    ("qwen2_mixed", {"sliding_window": (4, None)}),
    ("starcoder2", {"sliding_window": None}),
    ("starcoder2", {"activation": "silu"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), SETTINGS)
def test_the_stored_logits_depend_on_every_setting(name, change, tmp_path):
    """Equality with torch would not hold by another reading of the config."""
    model, (ids, logits) = stored.load(name, tmp_path), stored.expected(name)
    decoder = Decoder(dataclasses.replace(model.arch, **change))
    others = np.asarray(model.replace(decoder=decoder).logits(ids))
    assert stored.difference(others, logits) > 0.01


def rope(kind, **numbers):
    return {"rope_scaling": {"type": kind, **numbers}}


BANDS = {"low_freq_factor": 4.0, "high_freq_factor": 4.0}
FULL = {"layer_types": ["full_attention"] * 2}
TURNED = {"sliding_attention": {"partial_rotary_factor": 0.34}}
REFUSED = [
    ("llama", {"model_type": "bert"}, "expected model_type one of .*, got 'bert'"),
    ("llama", {"model_type": ["llama"]}, "expected model_type one of"),
    ("llama", {"hidden_act": "mish"}, "hidden_act: expected one of .*'mish'"),
    ("llama", {"hidden_act": ["silu"]}, "hidden_act: expected one of"),
    ("llama", {"hidden_size": None}, "hidden_size: expected a positive integer"),
    ("llama", {"attention_bias": "no"}, "attention_bias: expected true or false"),
    ("llama", {"rms_norm_eps": "1e-5"}, "rms_norm_eps: expected a number"),
    ("llama", {"rms_norm_eps": -1.0}, "rms_norm_eps: .*, finite and not below 0"),
    ("llama", {"rms_norm_eps": np.nan}, "rms_norm_eps: .*, finite and not below 0"),
    ("llama", {"quantization_config": {"bits": 4}}, "got quantised ones; dequantise"),
    ("llama", {"quantization_config": {"quant_method": "awq"}}, r"ones \(awq\)"),
    ("llama", {"is_causal": False}, "is_causal: expected True"),
    ("llama", {"per_layer_config": {"0": {}}}, "per_layer_config: expected None"),
    ("llama", {"rope_theta": -1.0}, "rope_theta: expected a positive number"),
    ("llama", {"rope_theta": 0}, "rope_theta: expected a positive number"),
    ("llama", {"rope_theta": 1}, "rope_theta: expected a number above 1"),
    ("llama", {"rope_theta": "100"}, "rope_theta: expected a positive number"),
    ("llama", {"rope_scaling": ["linear"]}, "rope_scaling: expected an object"),
    ("llama", {"rope_scaling": "x"}, "rope_scaling: expected an object, got 'x'"),
    ("llama", {"rope_parameters": "x"}, "rope_parameters: expected an object"),
    ("llama", rope("mrope"), "rope_type: .*'mrope'"),
    ("llama", rope(["linear"]), "rope_type: expected one of"),
    ("llama", rope("linear", factor=np.nan), "factor: expected"),
    ("llama", rope("llama3", factor=2.0, **BANDS), "above low_freq_factor 4, got 4"),
    ("llama", rope("dynamic", factor=2.0) | {"head_dim": 2}, "expected at least 4 for"),
    ("llama", {"partial_rotary_factor": "half"}, "partial_rotary_factor: expected"),
    ("llama", {"partial_rotary_factor": 0.34}, "partial_rotary_factor: expected 1 for"),
    ("gpt2", {"n_head": 5}, "n_head: expected a divisor of n_embd 12, got 5"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx: expected"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights: expected True"),
    ("gptj", {"rotary_dim": 64}, "rotary: expected 1 to 2 frequencies, got 32"),
    ("phi", {"qk_layernorm": True}, "qk_layernorm: expected False, got True"),
    ("phi3", rope("linear", factor=2.0), "rope_type: expected default, longrope"),
    ("phi3", FULL, "layer_types: expected None"),
    ("mixtral", FULL, "layer_types: expected None"),
    ("starcoder2", FULL, "layer_types: expected None"),
    ("olmo2", {"clip_qkv": 8.0}, "clip_qkv: expected None"),
    ("gemma", {"use_bidirectional_attention": True}, "attention: expected False"),
    ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping: expected a"),
    ("gemma2", {"sliding_window": "4"}, "sliding_window: expected a positive int"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "softcapping: expected None"),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 5.0}}, "object with the sets"),
    ("gemma3_text", {"rope_parameters": {"full_attention": 3}}, "object with the sets"),
    ("gemma3_text", {"rope_scaling": "linear"}, "rope_scaling: expected an object"),
    ("gemma3_text", {"rope_parameters": TURNED}, "partial_rotary_factor: expected 1"),
    ("opt", {"num_attention_heads": 5}, "num_attention_heads: expected a divisor"),
    ("opt", {"word_embed_proj_dim": 6}, "word_embed_proj_dim: expected 12, got 6"),
    ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before: expected True"),
    ("opt", {"layer_norm_elementwise_affine": False}, "affine: expected True"),
    ("opt", {"_remove_final_layer_norm": True}, "_layer_norm: expected False"),
]


@pytest.mark.parametrize(("family", "change", "message"), REFUSED)
def test_what_is_not_built_or_no_number_is_refused_by_name(family, change, message):
    """Settings that change logits are never ignored."""
    with pytest.raises(ValueError, match=f"^here/config.json: .*{message}"):
        read_architecture(config_of(family, **change), "here/config.json")


def test_a_mistral_with_named_kinds_of_layers_is_a_ministral(tmp_path):
    """So do the automatic classes of transformers, from the file's list of layers."""
    folder = stored.checkpoint("ministral", tmp_path / "mistral")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mistral"}))
    model, one = load_checkpoint(folder), stored.load("ministral", tmp_path)
    assert dataclasses.replace(model.arch, family="ministral") == one.arch
    jax.tree.map(np.testing.assert_array_equal, model.params, one.params)


def test_gemma_3_has_two_sets_of_rotations_in_a_ratio_of_five_to_one():
    def of(**changes):
        return read_architecture(config_of("gemma3_text", **changes))

    usual = of(num_hidden_layers=13, sliding_window_pattern=None)
    assert usual.windows == (*(*[4] * 5, None) * 2, 4)
    far, near = (usual.of_layer(layer).rotary for layer in (5, 0))
    assert far.frequencies[1] == pytest.approx(1e6 ** (-2 / 6))
    assert near.frequencies[1] == pytest.approx(1e4 ** (-2 / 6))
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = of(rope_scaling=scaling, rope_theta=500.0, rope_local_base_freq=20.0)
    sets = {
        "full_attention": {**scaling, "rope_theta": 500.0},
        "sliding_attention": {"rope_theta": 20.0},
    }
    assert of(rope_parameters=sets) == old
    assert of(layer_types=["full_attention"] * 2).local_rotary is None
    near = of(layer_types=["sliding_attention"] * 2)
    assert near.of_layer(1).rotary == near.local_rotary != near.rotary


def test_switches_of_single_families():
    def of(family, **changes):
        return read_architecture(config_of(family, **changes))

    assert not of("opt", enable_bias=False).mlp_bias
    every = of("gemma2", num_hidden_layers=5).sliding_window
    assert every == (4, None, 4, None, 4)
    assert of("gemma2", final_logit_softcapping=None).logit_cap is None


def test_layers_of_one_kind_share_a_decoder_and_others_do_not():
    decoder = Decoder(read_architecture(config_of("gemma3_text", num_hidden_layers=4)))
    kinds = [decoder.of_layer(layer) for layer in range(4)]
    assert kinds[0] is kinds[2] is not kinds[1]
    assert kinds[1] is kinds[3]
    assert kinds[0].arch.sliding_window == 4
    assert kinds[0].arch.rotary == decoder.arch.local_rotary != kinds[1].arch.rotary
    assert kinds[0].of_layer(1) is kinds[0]
    model = model_of("gemma3_text")
    ids, h = np.zeros((1, 3), int), np.zeros((1, 3, 12), np.float32)
    with pytest.raises(ValueError, match="decoder: expected a uniform architecture"):
        model.decoder.run_block(model.params["layers"][0], Stream(h, ids, ids == 0))
