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


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping: expected a"),
        ("gemma2", {"sliding_window": "4"}, "sliding_window: expected a positive int"),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": 3}},
            "rope_parameters: expected an object with the sets full_attention and",
        ),
        ("gemma3_text", {"rope_scaling": "linear"}, "rope_scaling: expected an object"),
        (
            "gemma3_text",
            {"rope_parameters": {"sliding_attention": {"partial_rotary_factor": 0.34}}},
            "partial_rotary_factor: expected 1 for this model family, got",
        ),
        (
            "starcoder2",
            {"layer_types": ["full_attention"] * 2},
            "layer_types: expected",
        ),
        ("opt", {"num_attention_heads": 5}, "num_attention_heads: expected a divisor"),
        ("opt", {"word_embed_proj_dim": 6}, "word_embed_proj_dim: expected 12, got 6"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before: expected True"),
    ],
)
def test_what_is_not_built_is_refused_by_name(family, change, message):
    with pytest.raises(ValueError, match=message):
        read_architecture(config_of(family, **change))


@pytest.mark.parametrize("cut", ["", "model."])
def test_opt_may_leave_off_its_prefix(cut, tmp_path):
    """Files of the bare decoder begin with "decoder."; a tied head is stored twice."""
    one, other = stored.load("opt", tmp_path), stored.checkpoint("opt", tmp_path / "b")
    tensors = stored.tensors_of(other)
    if not cut:
        tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"]
    stored.store(other, {k.removeprefix(cut): v for k, v in tensors.items()})
    assert_equal(load_checkpoint(other), one)


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
