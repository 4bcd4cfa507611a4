"""One model in several kinds of file: shards, names, buffers, dtypes, Flax trees."""

import json
import shutil

import jax
import numpy as np
import pytest
from flax import traverse_util
from flax.serialization import msgpack_restore, msgpack_serialize

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


@pytest.mark.parametrize("name", ["gptj", "gpt2", "llama"])
def test_flax_trees_are_the_safetensors(name, tmp_path):
    """Written by the Flax classes of transformers 4.57.6."""
    flax = stored.checkpoint(name, tmp_path / "flax", weights="flax_model.msgpack")
    assert_equal(load_checkpoint(flax), stored.load(name, tmp_path))


@pytest.mark.parametrize("said", [{}, {"hidden_activation": "gelu_pytorch_tanh"}])
def test_gemmas_gelu_is_the_tanh_form(said, tmp_path):
    """As the first files say it, and as those say it that were corrected."""
    folder = stored.checkpoint("gemma", tmp_path, style="config_old")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_act": "gelu"} | said
    (folder / "config.json").write_text(json.dumps(config))
    ids, logits = stored.expected("gemma")
    ours = load_checkpoint(folder, "float32").logits(ids)
    assert stored.difference(ours, logits) < 1e-5


@pytest.mark.slow
def test_padding_is_not_counted(tmp_path):
    """More columns than there are positions, but no more tokens."""
    model, (ids, logits) = stored.load("gpt2", tmp_path), stored.expected("gpt2")
    more = np.zeros((3, 7), int)
    wide = np.concatenate([more, ids], axis=1)
    mask = np.concatenate([more, np.ones_like(ids)], axis=1).astype(bool)
    assert wide.shape[1] > model.context_length
    ours = model.logits(wide, mask)[:, 7:]
    assert stored.difference(ours, logits) < 1e-5


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


_SMALL = {
    **{"vocab_size": 9, "hidden_size": 64, "num_attention_heads": 4},
    **{"num_hidden_layers": 2, "intermediate_size": 3, "max_position_embeddings": 64},
}


def rotary_of(family, **config):
    return read_architecture({"model_type": family, **_SMALL, **config}).rotary


def test_of_two_places_that_say_it_the_one_counts_that_transformers_takes():
    """As version 5.23 does, whose logits tiny models with such configs reproduced."""
    old, new = {"type": "linear", "factor": 3.0}, {"rope_type": "default"}
    both = rotary_of("llama", rope_scaling=old, rope_parameters={**new, "factor": 5.0})
    assert both == rotary_of("llama", rope_scaling=old)
    theta = {"rope_parameters": {**new, "rope_theta": 77.0}}
    assert rotary_of("llama", **theta, rope_theta=500.0) == rotary_of("llama", **theta)
    yarn = {"rope_type": "yarn", "factor": 4.0}
    length = "original_max_position_embeddings"
    assert rotary_of("llama", rope_scaling={**yarn, length: 16}, **{length: 32}) == (
        rotary_of("llama", rope_scaling={**yarn, length: 32})
    )
    base = rotary_of("gpt_neox", rotary_emb_base=99)
    assert rotary_of("gpt_neox", rotary_emb_base=99, rope_theta=77.0) == base
    assert base.frequencies[1] == pytest.approx(99**-0.5)


def test_phi_3_knows_one_way_of_stretching_and_its_length():
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    longer = {"max_position_embeddings": 131072}
    named = rotary_of("phi3", rope_scaling={"type": "longrope", **factors}, **longer)
    assert named.switch == 4096
    for kind in ("su", "yarn"):
        scaling = {"type": kind, **factors}
        assert rotary_of("phi3", rope_scaling=scaling, **longer) == named
    scaling = {**factors, "type": "longrope", "original_max_position_embeddings": 32}
    assert rotary_of("phi3", rope_scaling=scaling, **longer) == named


@pytest.mark.parametrize(
    "kinds", [3, ["sliding_attention"], ["chunked_attention"] * 2, [["full"], 1]]
)
def test_kinds_of_layers_are_known_and_one_for_each(kinds):
    config = {"model_type": "qwen2", **_SMALL, "num_key_value_heads": 4}
    config |= {"use_sliding_window": True, "sliding_window": 5, "layer_types": kinds}
    with pytest.raises(ValueError, match="layer_types: expected 2 of full_attention"):
        read_architecture(config)


def test_of_a_tensor_in_two_shards_the_one_counts_that_the_index_names(tmp_path):
    from safetensors.flax import load_file, save_file

    one = stored.load("llama_groups", tmp_path)
    for number in (0, 1):
        folder = tmp_path / str(number)
        shutil.copytree(stored.FIXTURES / "llama_groups" / "sharded", folder)
        paths = sorted(folder.glob("*.safetensors"))
        right, other = (load_file(path) for path in (*paths, *paths)[number:][:2])
        name = next(iter(right))
        path = paths[1 - number]
        save_file({**other, name: right[name] + 7}, path, metadata={"format": "pt"})
        assert_equal(load_checkpoint(folder), one)


@pytest.mark.parametrize("leave_out", [False, True])
def test_a_flax_tree_in_several_files_is_that_in_one(leave_out, tmp_path):
    """Each file is a tree of some leaves; the index names leaves by their paths."""
    folder = stored.checkpoint("gpt2", tmp_path / "flax", weights="flax_model.msgpack")
    one = load_checkpoint(folder)
    whole = folder / "flax_model.msgpack"
    leaves = traverse_util.flatten_dict(msgpack_restore(whole.read_bytes()), sep="/")
    whole.unlink()
    paths, table = sorted(leaves), {}
    for number, part in enumerate((paths[::2], paths[1::2]), 1):
        name = f"flax_model-{number:05d}-of-00002.msgpack"
        table |= dict.fromkeys(part, name)
        kept = part[1:] if leave_out else part
        tree = traverse_util.unflatten_dict({p: leaves[p] for p in kept}, sep="/")
        (folder / name).write_bytes(msgpack_serialize(tree))
    index = folder / "flax_model.msgpack.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    if not leave_out:
        assert_equal(load_checkpoint(folder), one)
        return
    with pytest.raises(ValueError, match=r"of-00002.msgpack: expected tensor .* none"):
        load_checkpoint(folder)
