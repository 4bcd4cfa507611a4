"""The decoder: positions, frequencies, architectures, one program for all layers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Decoder, Rotary, Tokens, prune_model
from icltheory.bridge import decoder as decoder_module
from icltheory.bridge._blocks import product
from icltheory.bridge.families import read_architecture
from icltheory.bridge.families.declare import read_rotary
from icltheory.bridge.streams import rotate
from icltheory.induction import find_heads
from icltheory.layered import forward
from tests.bridge.stored import embed, embed_after_rows, read_out, run
from tests.bridge.stored import label_logits as few_logits
from tests.bridge.tiny import config_of, model_of

IDS = np.random.default_rng(0).integers(0, 37, (3, 9))
CLOSE = {"atol": 2e-5, "rtol": 0}
turn = jax.jit(rotate, static_argnums=2)


def whole(ids):
    return Tokens(jnp.asarray(ids), jnp.ones(np.shape(ids), bool))


@pytest.mark.slow
def test_label_logits_of_half_precision_are_not_rounded():
    model = model_of("gptj", "bfloat16")
    stream = run(model, IDS, np.ones(IDS.shape, bool))[0][-1]
    few = few_logits(model.decoder, model.params, stream, np.array([1, 2]))
    few = np.asarray(few)
    full = np.asarray(read_out(model.decoder, model.params, stream))
    assert few.dtype == full.dtype == np.float32
    np.testing.assert_allclose(few, full[:, :, 1:3], rtol=1e-5, atol=1e-5)
    rounded = few.astype(jnp.bfloat16).astype(np.float32)
    coarse = float(jnp.finfo(jnp.bfloat16).eps) * np.abs(few)
    assert (np.abs(rounded - few) > coarse / 8).any()


@pytest.mark.slow
def test_one_program_serves_all_layers_and_pruned_weights():
    model, block = model_of("llama", num_hidden_layers=5), decoder_module.block
    before = block._cache_size()
    model.logits(IDS)
    assert block._cache_size() == before + 1
    prune_model(model, "3:mlp:0.5").logits(IDS)
    assert block._cache_size() == before + 1
    model.logits(IDS[:, :4])
    assert block._cache_size() == before + 2


@pytest.mark.slow
def test_learned_positions_run_out():
    model = model_of("gpt2")
    tokens = whole(np.zeros((1, 20), int))
    with pytest.raises(ValueError, match="ids: expected at most 24 tokens, got 25"):
        model.decoder.embed_after(model.params, tokens, 5)
    padded = Tokens(np.zeros((1, 40), int), np.arange(40)[None] >= 20)
    assert model.embed(model.params, padded).positions.max() == 19
    assert np.isfinite(embed(model.decoder, model.params, padded).h).all()
    traced = embed_after_rows(model.decoder, model.params, padded, 5).h
    assert np.isnan(traced[0, -1]).all()
    assert np.isfinite(traced[0, :-1]).all()


def test_a_prefix_does_not_reach_beyond_where_frequencies_change():
    stretched = {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    arch = read_architecture(config_of("llama", **stretched))
    assert arch.context_length == 48
    decoder, params = Decoder(arch), model_of("llama").params
    decoder.embed_after(params, whole(np.zeros((1, 19), int)), 5)
    with pytest.raises(ValueError, match="expected at most 24 tokens, got 25"):
        decoder.embed_after(params, whole(np.zeros((1, 20), int)), 5)


def test_kinds_of_frequencies():
    plain = np.array(read_rotary({}, 16, 64).frequencies)
    np.testing.assert_allclose(plain, 1e4 ** (-np.arange(8) / 8), rtol=1e-6)

    def of(kind, **numbers):
        return read_rotary({"rope_scaling": {"rope_type": kind, **numbers}}, 16, 64)

    three = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3 = np.array(of("llama3", **three).frequencies) / plain
    turns = 64 * plain / (2 * np.pi)
    np.testing.assert_allclose(llama3[turns > 4], 1)
    np.testing.assert_allclose(llama3[turns < 1], 1 / 8)
    assert np.all(np.diff(llama3) <= 1e-7)
    yarn = of("yarn", factor=4.0, original_max_position_embeddings=16)
    slowed = np.array(yarn.frequencies) / plain
    assert slowed[0] == pytest.approx(1)
    assert slowed[-1] == pytest.approx(0.25)
    assert yarn.scale == pytest.approx(0.1 * np.log(4) + 1)
    long = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    both = of("longrope", original_max_position_embeddings=16, **long)
    np.testing.assert_allclose(both.frequencies, plain)
    np.testing.assert_allclose(both.long_frequencies, plain / 2)
    assert both.scale == pytest.approx(np.sqrt(1 + np.log(4) / np.log(16)))


def test_long_sequences_turn_with_the_long_frequencies():
    x = np.ones((1, 20, 1, 4))
    rotary = Rotary((1.0, 0.1), switch=16, long_frequencies=(0.5, 0.05))
    for length, used in ((16, (1.0, 0.1)), (20, (0.5, 0.05))):
        some, positions = x[:, :length], np.arange(length)[None]
        turned = (turn(some, positions, one) for one in (rotary, Rotary(used)))
        np.testing.assert_array_equal(*turned)


def test_stretched_frequencies_are_the_usual_ones_up_to_the_switch():
    x, usual = np.ones((1, 20, 1, 8)), read_rotary({}, 8, 16)
    rotary = dataclasses.replace(usual, switch=16, ntk=(1e4, 2.0))
    short, long = np.arange(16)[None], np.arange(20)[None]
    turned = (turn(x[:, :16], short, one) for one in (rotary, usual))
    np.testing.assert_allclose(*turned, atol=1e-6)
    grown = (1e4 * (2 * 20 / 16 - 1) ** (8 / 6)) ** (-np.arange(4) / 4)
    turned = (turn(x, long, one) for one in (rotary, Rotary(tuple(grown.tolist()))))
    np.testing.assert_allclose(*turned, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "batch"}, "norm: expected one of"),
        ({"activation": "tanh"}, "activation: expected one of"),
        ({"num_kv_heads": 2}, "num_kv_heads: expected a divisor of num_heads 3, got 2"),
        ({"shared_norm": True}, "shared_norm: expected False"),
        ({"width": 0}, "width: expected a positive integer"),
        ({"sliding_window": 0}, "sliding_window: expected a positive integer"),
        ({"rotary": Rotary((1.0, 0.1, 0.01))}, "rotary: expected 1 to 2 frequencies"),
        (
            {"shared_norm": True, "parallel": True, "pre_norm": False},
            "shared_norm: exp",
        ),
        ({"qk_norm": "all"}, "qk_norm: expected one of 'head', 'projection'"),
        ({"score_cap": 0.0}, "score_cap: expected a finite value > 0"),
        ({"position_offset": -1}, "position_offset: expected"),
        ({"sliding_window": (None,)}, "sliding_window: expected one for each of 2"),
        ({"sliding_window": (0, 4)}, "sliding_window: expected a positive integer"),
        ({"local_rotary": Rotary((1.0,))}, "local_rotary: expected None where no"),
        (
            {
                "rotary": Rotary((1.0,)),
                "local_rotary": Rotary((1.0,), switch=4, ntk=(10.0, 2.0)),
                "sliding_window": 4,
            },
            "local_rotary: expected frequencies that do not change",
        ),
    ],
)
def test_impossible_architectures_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(model_of("gpt2").arch, **change)


def test_numbers_of_tokens_are_tokens_without_padding():
    model, ids = model_of("llama"), np.array([[1, 5, 3], [2, 2, 4]])
    both = [forward(model, model.params, one) for one in (ids, Tokens(ids, ids >= 0))]
    np.testing.assert_array_equal(*both)
    np.testing.assert_allclose(both[0], model.logits(ids), atol=1e-5)
    for wrong in (ids[0], ids * 1.0):
        with pytest.raises(ValueError, match=r"^inputs: expected Tokens or integers"):
            forward(model, model.params, wrong)


@pytest.mark.slow
def test_heads_of_a_language_model_are_scored_on_numbers_of_tokens():
    found = find_heads(model_of("llama"), length=8, sequences=2, threshold=0.0)
    assert len(found) == model_of("llama").num_layers * model_of("llama").arch.num_heads
    assert found[0].prefix_matching >= found[-1].prefix_matching > 0
    with pytest.raises(ValueError, match="length: expected at most .*, half of the"):
        find_heads(model_of("llama"), length=model_of("llama").context_length // 2 + 1)


@pytest.mark.parametrize("rows", [(5,), (2, 3)])
def test_products_of_bfloat16_are_sums_in_float32_of_what_is_not_converted(rows):
    rng = np.random.default_rng(0)
    x, W = (jnp.asarray(rng.normal(size=(*s, 48)), jnp.bfloat16) for s in (rows, (32,)))
    program = jax.jit(lambda x, W: product("...i,oi->...o", x, W)).lower(x, W)
    assert "xbf16>, tensor<32x48xbf16>) -> " in program.as_text()
    found = product("...i,oi->...o", x, W)
    assert found.dtype == jnp.bfloat16
    exact = np.asarray(x, np.float64) @ np.asarray(W, np.float64).T
    # One rounding to 8 bits, of a sum whose own error is 2^-16 of it.
    found = np.asarray(found, np.float64)
    np.testing.assert_allclose(found, exact, rtol=2.0**-8, atol=2.0**-16 * 48)


def test_products_of_other_dtypes_are_as_they_were():
    W = jnp.ones((4, 3), jnp.float32)
    for kind in (jnp.float16, jnp.float32, jnp.float64):
        found = product("...i,oi->...o", jnp.ones((2, 3), kind), W)
        assert found.dtype == jnp.promote_types(kind, jnp.float32)
