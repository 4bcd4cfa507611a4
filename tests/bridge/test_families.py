"""What only some families have: windows by layer, rotations, caps, norms, names."""

import dataclasses
import json

import numpy as np
import pytest

from icltheory.bridge import Decoder, Stream
from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.families import read_architecture
from tests.bridge import stored
from tests.bridge.tiny import assert_same, config_of, model_of


def of(family, **changes):
    """The architecture of a tiny config."""
    return read_architecture(config_of(family, **changes))


_SMALL = {
    **{"vocab_size": 9, "hidden_size": 64, "num_attention_heads": 4},
    **{"num_hidden_layers": 2, "intermediate_size": 3, "max_position_embeddings": 64},
}


def small(family, **config):
    """The architecture of a config that leaves much to the family."""
    return read_architecture({"model_type": family, **_SMALL, **config})


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


LONG = {"short_factor": [1.0] * 3}
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
    ("llama", {"rope_theta": 0}, "rope_theta: expected a positive number"),
    ("llama", {"rope_theta": 1}, "rope_theta: expected a number above 1"),
    ("llama", {"rope_theta": "100"}, "rope_theta: expected a positive number"),
    ("llama", {"rope_scaling": ["linear"]}, "rope_scaling: expected an object"),
    ("llama", {"rope_parameters": "x"}, "rope_parameters: expected an object"),
    ("llama", rope("mrope"), "rope_type: .*'mrope'"),
    ("llama", rope(["linear"]), "rope_type: expected one of"),
    ("llama", rope("linear", factor=np.nan), "factor: expected"),
    ("llama", rope("llama3", factor=2.0, **BANDS), "above low_freq_factor 4, got 4"),
    ("llama", rope("dynamic", factor=2.0) | {"head_dim": 2}, "expected at least 4 for"),
    ("llama", rope("longrope", long_factor=[1.0]), "short_factor: .* 3 .*, got None"),
    *(
        (
            "llama",
            rope("longrope", **LONG, long_factor=[1.0, 1.0, n]),
            "long_factor: .*3 ",
        )
        for n in (0, -1.0, "2", np.nan, None)
    ),
    ("llama", {"rope_parameters": {"full_attention": {}}}, "one set for all layers"),
    ("llama", {"partial_rotary_factor": 0.2}, "rotary dimension: expected an even num"),
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
    model, one = load_checkpoint(folder), stored.load("ministral", tmp_path, dtype=None)
    assert dataclasses.replace(model.arch, family="ministral") == one.arch
    assert_same(model.params, one.params)


def test_gemma_3_has_two_sets_of_rotations_in_a_ratio_of_five_to_one():
    usual = of("gemma3_text", num_hidden_layers=13, sliding_window_pattern=None)
    assert usual.windows == (*(*[4] * 5, None) * 2, 4)
    far, near = (usual.of_layer(layer).rotary for layer in (5, 0))
    assert far.frequencies[1] == pytest.approx(1e6 ** (-2 / 6))
    assert near.frequencies[1] == pytest.approx(1e4 ** (-2 / 6))
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = {"rope_scaling": scaling, "rope_theta": 500.0, "rope_local_base_freq": 20.0}
    sets = {
        "full_attention": {**scaling, "rope_theta": 500.0},
        "sliding_attention": {"rope_theta": 20.0},
    }
    assert of("gemma3_text", rope_parameters=sets) == of("gemma3_text", **old)
    assert of("gemma3_text", layer_types=["full_attention"] * 2).local_rotary is None
    near = of("gemma3_text", layer_types=["sliding_attention"] * 2)
    assert near.of_layer(1).rotary == near.local_rotary != near.rotary


def test_what_configs_say_in_other_words():
    old = of("llama", rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0})
    new = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}
    assert old == of("llama", rope_parameters=new) != of("llama")
    assert of("llama", attention_bias=True, mlp_bias=True).output_bias
    assert of("gemma", hidden_act="gelu").activation == "gelu_tanh"
    assert of("gpt_neox").activation == "gelu"
    assert of("gpt_neox").parallel
    assert not of("gpt_neox", use_parallel_residual=False).parallel
    assert of("qwen2").sliding_window is None
    windowed = {"use_sliding_window": True, "sliding_window": 4}
    for first, windows in ((0, 4), (1, (None, 4)), (2, None)):
        found = of("qwen2", max_window_layers=first, **windowed)
        assert found.sliding_window == windows
    assert not of("opt", enable_bias=False).mlp_bias
    every = of("gemma2", num_hidden_layers=5).sliding_window
    assert every == (4, None, 4, None, 4)
    assert of("gemma2", final_logit_softcapping=None).logit_cap is None


@pytest.mark.parametrize(
    ("family", "heads"), [("gemma", 16), ("mistral", 8), ("qwen2", 32), ("qwen3", 32)]
)
def test_key_heads_that_a_config_leaves_out_are_the_familys(family, heads):
    many = {"num_attention_heads": 64, "head_dim": 2}
    assert small(family, **many).num_kv_heads == heads
    assert small(family, **many, num_key_value_heads=None).num_kv_heads == 64


def test_gpt_neox_has_its_own_name_for_the_part_that_turns():
    for given, dim in (({}, 4), ({"rotary_pct": 0.5}, 8)):
        assert small("gpt_neox", partial_rotary_factor=1.0, **given).rotary.dim == dim


def test_of_two_places_that_say_it_the_one_counts_that_transformers_takes():
    """As version 5.23 does, whose logits tiny models with such configs reproduced."""
    old, new = {"type": "linear", "factor": 3.0}, {"rope_type": "default"}
    both = small("llama", rope_scaling=old, rope_parameters={**new, "factor": 5.0})
    assert both == small("llama", rope_scaling=old)
    theta = {"rope_parameters": {**new, "rope_theta": 77.0}}
    assert small("llama", **theta, rope_theta=500.0) == small("llama", **theta)
    yarn = {"rope_type": "yarn", "factor": 4.0}
    length = "original_max_position_embeddings"
    both = small("llama", rope_scaling={**yarn, length: 16}, **{length: 32})
    assert both == small("llama", rope_scaling={**yarn, length: 32})
    base = small("gpt_neox", rotary_emb_base=99)
    assert small("gpt_neox", rotary_emb_base=99, rope_theta=77.0) == base
    assert base.rotary.frequencies[1] == pytest.approx(99**-0.5)


def test_phi_3_knows_one_way_of_stretching_and_its_length():
    def stretched(kind, **more):
        factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
        scaling = {"type": kind, **factors, **more}
        return small("phi3", rope_scaling=scaling, max_position_embeddings=131072)

    named = stretched("longrope")
    assert named.rotary.switch == 4096
    assert stretched("su") == stretched("yarn") == named
    assert stretched("longrope", original_max_position_embeddings=32) == named


@pytest.mark.parametrize(
    "kinds", [3, ["sliding_attention"], ["chunked_attention"] * 2, [["full"], 1]]
)
def test_kinds_of_layers_are_known_and_one_for_each(kinds):
    config = {"num_key_value_heads": 4, "layer_types": kinds}
    config |= {"use_sliding_window": True, "sliding_window": 5}
    with pytest.raises(ValueError, match="layer_types: expected 2 of full_attention"):
        small("qwen2", **config)


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
