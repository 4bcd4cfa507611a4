"""Checkpoints written and read again, dense and in factors, and what factors save."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge._tensors import tensors_of
from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.cost import size_report
from icltheory.bridge.export import save_checkpoint
from icltheory.bridge.factors import factorise, join_factors, take_factors
from icltheory.bridge.pruning import prune_model
from icltheory.layered import get_matrix
from icltheory.pruning import Intervention, Rank, module_matrices
from tests.bridge.tiny import CONFIGS, assert_same, config_of, model_of
from tests.raising import raises


def config_in(folder):
    return json.loads((folder / "config.json").read_text())


def stored_bytes(folder):
    """Bytes of the tensors of a checkpoint."""
    return sum(tensor.nbytes for tensor in tensors_of(folder).found.values())


# --- dense


@pytest.mark.slow
@pytest.mark.parametrize("family", CONFIGS)
def test_dense_checkpoints_come_back_bit_for_bit(family, tmp_path):
    model = prune_model(model_of(family), "1:mlp:0.5")
    folder = save_checkpoint(model, tmp_path / "out")
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors"}
    assert_same(load_checkpoint(folder).params, model.params)
    assert config_in(folder) == {**model.config, "torch_dtype": "float32"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_what_it_is(dtype, tmp_path):
    model = model_of("gpt2", dtype)
    said = dict.fromkeys(("dtype", "torch_dtype"), "float32")
    model = model.replace(config=model.config | said)
    folder = save_checkpoint(model, tmp_path / "out")
    loaded = load_checkpoint(folder, dtype)
    assert_same(loaded.params, model.params)
    assert loaded.config["dtype"] == loaded.config["torch_dtype"] == dtype


def test_the_files_are_what_the_library_of_the_format_reads(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    model = model_of("phi3")
    path = save_checkpoint(model, tmp_path / "out") / "model.safetensors"
    tensors = safetensors.load_file(path)
    attn = model.params["layers"][1]["attn"]
    joint = np.concatenate([attn[f"W_{part}"]["weight"] for part in "QKV"])
    name = "model.layers.1.self_attn.qkv_proj.weight"
    np.testing.assert_array_equal(tensors[name], joint)


def test_a_tied_head_is_stored_once(tmp_path):
    model = model_of("llama", tie_word_embeddings=True)
    folder = save_checkpoint(model, tmp_path / "out")
    names = tensors_of(folder).found
    assert not [name for name in names if "lm_head" in name]
    assert_same(load_checkpoint(folder).params, model.params)


def test_large_models_are_written_in_shards(tmp_path):
    model = model_of("gptj")
    folder = save_checkpoint(model, tmp_path / "out", shard_bytes=4000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    total = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    assert index["metadata"]["total_size"] == total
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    for shard in shards:
        data = (folder / shard).read_bytes()
        assert len(data) - 8 - int.from_bytes(data[:8], "little") <= 4000
    assert len(shards) > 3
    assert_same(load_checkpoint(folder).params, model.params)


def test_the_tokenizer_goes_with_the_model(tmp_path):
    source = save_checkpoint(model_of("llama"), tmp_path / "source")
    (source / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    (source / "notes.txt").write_text("mine")
    first = save_checkpoint(load_checkpoint(source), tmp_path / "first")
    (source / "tokenizer.json").write_text("{}")
    second = save_checkpoint(load_checkpoint(source), tmp_path / "second")
    names = {"config.json", "model.safetensors", "tokenizer_config.json"}
    assert {path.name for path in first.iterdir()} == names
    assert {path.name for path in second.iterdir()} == names | {"tokenizer.json"}


def test_nothing_is_overwritten_unless_asked(tmp_path):
    model, folder = model_of("llama"), tmp_path / "out"
    folder.mkdir()
    (folder / "kept").write_text("mine")
    said = f"{folder}: expected an empty folder or nothing, found files"
    with raises(said, FileExistsError):
        save_checkpoint(model, folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "kept"]
    save_checkpoint(model, folder, overwrite=True)
    assert not (folder / "kept").exists()
    assert_same(load_checkpoint(folder).params, model.params)
    changed = prune_model(load_checkpoint(folder), "0:attn:0.5")
    save_checkpoint(changed, folder, overwrite=True)
    assert_same(load_checkpoint(folder).params, changed.params)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    file = tmp_path / "file"
    file.write_text("mine")
    for overwrite in (False, True):
        said = f"{file}: expected a folder or nothing, found a file"
        with raises(said, FileExistsError):
            save_checkpoint(model, file, overwrite=overwrite)
    with raises("folder: expected a path that ends in the name of a folder, got ."):
        save_checkpoint(model, ".", overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "file"}


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    model, there = model_of("llama"), tmp_path / "there" / "out"
    link = tmp_path / "link"
    link.symlink_to(there)
    for overwrite in (False, True):  # where the link leads to nothing, and to a folder
        assert save_checkpoint(model, link, overwrite=overwrite) == link
        assert link.is_symlink()
        assert_same(load_checkpoint(there).params, model.params)
        (there / "old").write_text("old")
        assert [path.name for path in there.parent.iterdir()] == ["out"]
        assert {path.name for path in tmp_path.iterdir()} == {"there", "link"}


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    model = model_of("llama")
    scale = model.params["final_norm"]["scale"].at[0].set(np.nan)
    params = {**model.params, "final_norm": {"scale": scale}}
    with raises("model: expected finite weights, got 1 NaN or infinite ones in params"):
        save_checkpoint(model.replace(params=params), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_folder(tmp_path, monkeypatch):
    folder = save_checkpoint(model_of("llama"), tmp_path / "out")
    before = (folder / "model.safetensors").read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("icltheory.bridge.export.write_safetensors", full)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(model_of("gpt2"), folder, overwrite=True)
    assert (folder / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_config_has_to_be_the_models(tmp_path):
    model = model_of("llama")
    with raises("config: expected the config of a checkpoint, got an empty one"):
        save_checkpoint(model.replace(config={}), tmp_path / "out")
    other = model.replace(config=config_of("llama", rms_norm_eps=0.5))
    said = "config: expected a config of the model's architecture, got one with anoth"
    with raises(said):
        save_checkpoint(other, tmp_path / "out")
    with raises("module: expected one of"):
        save_checkpoint(model, tmp_path / "out", factorised=[(0, "W_X")])
    assert not list(tmp_path.iterdir())


# --- factors


def spectra(model, layer, module):
    for spec in module_matrices(model, layer, module):
        W = np.asarray(get_matrix(model.params, spec), np.float64)
        yield spec.name, W, np.linalg.svd(W, compute_uv=False)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "phi3", "gpt_neox"])
def test_factors_come_back_to_rounding_with_their_ranks(family, dtype, tmp_path):
    model = prune_model(model_of(family, dtype), "1:all:0.8")
    dense = save_checkpoint(model, tmp_path / "dense")
    modules = [(1, "attn"), (1, "mlp")]
    folder = save_checkpoint(model, tmp_path / "factors", factorised=modules)
    loaded = load_checkpoint(folder, dtype)
    assert loaded.config == load_checkpoint(dense, dtype).config
    eps = float(jnp.finfo(dtype).eps)
    pairs = zip(spectra(model, 1, "all"), spectra(loaded, 1, "all"), strict=True)
    for (name, W, s), (_, again, t) in pairs:
        assert np.linalg.norm(W - again, 2) < 4 * eps * s[0], name
        rank = int(min(W.shape) / 5)
        assert t[rank - 1] > 8 * eps * s[0] / 4 > t[rank], name
    first = (m.params | {"layers": m.params["layers"][:1]} for m in (model, loaded))
    assert_same(*first)
    assert stored_bytes(folder) < stored_bytes(dense)


def test_ranks_are_listed_and_only_paying_ones(tmp_path):
    model = prune_model(model_of("gpt2"), "0:W_Q:0.75")
    model = prune_model(model, "0:W_V:0.25")  # more than half is kept
    modules = [(0, "all"), (1, "all")]
    folder = save_checkpoint(model, tmp_path / "out", factorised=modules)
    name = "transformer.h.0.attn.c_attn.weight"
    assert config_in(folder)["icltheory"]["factors"] == {name: [3, None, None]}
    names = tensors_of(folder).found
    pieces = {f"{name}.0.A", f"{name}.0.B", f"{name}.1", f"{name}.2"}
    assert {n for n in names if n.startswith(name)} == pieces
    W, again = (
        get_matrix(m.params, module_matrices(m, 0, "W_V")[0])
        for m in (model, load_checkpoint(folder))
    )
    np.testing.assert_array_equal(W, again)
    none = save_checkpoint(model, tmp_path / "none", factorised=[(1, "all")])
    assert_same(load_checkpoint(none).params, model.params)
    assert "icltheory" not in config_in(none)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rank", [1, 3, 9])
def test_the_rank_is_found_under_the_rounding(dtype, rank):
    rng = np.random.default_rng(rank)
    for scale in (1.0, 1e-3):
        W = rng.normal(size=(48, rank)) @ rng.normal(size=(rank, 32)) * scale
        A, B = factorise(W.astype(jnp.dtype(dtype)))
        assert (A.shape, B.shape, A.dtype) == ((48, rank), (rank, 32), dtype)
        error = np.linalg.norm(A.astype(float) @ B.astype(float) - W, 2)
        assert error < 8 * float(jnp.finfo(dtype).eps) * np.linalg.norm(W, 2)


def test_other_programs_and_damage_find_out(tmp_path):
    model = prune_model(model_of("llama"), "0:mlp:0.75")
    folder = save_checkpoint(model, tmp_path / "out", factorised=[(0, "mlp")])
    config = config_in(folder)
    assert config["model_type"] == "icltheory_factorised"
    dense, ranks = take_factors(config)
    tensors = tensors_of(folder)
    name = "model.layers.0.mlp.up_proj.weight"
    with raises(f"{tensors.where}: {name}.A: expected shape (20, 7)"):
        join_factors(tensors, model.arch, {**ranks, name: [7]})
    gone = "model.layers.1.mlp.up_proj.weight"
    with raises(f"{tensors.where}: expected tensor {gone}.A, found none"):
        join_factors(tensors, model.arch, {**ranks, gone: [6]})
    for wrong in ("lm_head", "model.layers.0.mlp.up_proj.weight.A"):
        with raises(f"{tensors.where}: expected no factors of {wrong}"):
            join_factors(tensors, model.arch, {wrong: [6]})
    for table in (None, {}, {"model_type": "llama", "factors": {name: [0]}}):
        with raises("config.json: icltheory: expected a model_type and lists"):
            take_factors({**config, "icltheory": table})
    assert dense == {**model.config, "torch_dtype": "float32"}


# --- size and time


def test_sizes_are_those_of_what_is_written(tmp_path):
    model = model_of("llama")
    for module, rate in (("mlp", 0.75), ("mlp", 0.1), ("W_Q", 0)):
        report = size_report(model, 1, module, rate)
        clipped = prune_model(model, Intervention(1, module, rate))
        path, how = tmp_path / f"{module}{rate}", {"factorised": [(1, module)]}
        dense = stored_bytes(save_checkpoint(clipped, path / "dense"))
        factors = stored_bytes(save_checkpoint(clipped, path / "factors", **how))
        assert dense == 4 * report.model_parameters
        assert dense - factors == report.dense_bytes - report.stored_bytes
        saved = (report.dense - report.stored) / report.model_parameters
        assert report.model_saved == saved
        assert report.stored_flops == 2 * report.stored <= report.dense_flops


def test_operations_are_those_of_one_token():
    tied, mixed = model_of("qwen2"), model_of("mixtral")
    V, d = tied.params["embed"]["tokens"].shape
    assert size_report(tied, None, "embeddings", Rank(2)).dense_flops == 0
    for module in ("head", "embeddings,head"):
        report = size_report(tied, None, module, Rank(2))
        assert report.dense_flops == 2 * V * d
        assert report.stored_flops == 2 * 2 * (V + d)
    experts = mixed.arch.experts
    report = size_report(mixed, 0, "mlp", 0.5)
    used = 2 * report.dense * experts.per_token / experts.num
    assert report.dense_flops == used
    attn = size_report(mixed, 0, "attn", 0.5)
    assert attn.dense_flops == 2 * attn.dense


@pytest.mark.usefixtures("as_for_a_user")
def test_modules_in_factors_are_pairs(tmp_path):
    for wrong in (["3:mlp:0.9"], (3, "mlp"), [(0, "mlp", 0.5)]):
        with pytest.raises(ValueError, match="factorised: expected pairs of a layer"):
            save_checkpoint(model_of("llama"), tmp_path / "new", factorised=wrong)


def test_the_break_even_rate_is_where_factors_begin_to_save():
    model = model_of("gptj")  # (48, 12): 12 / 60
    for rate, saves in ((0.15, False), (0.25, True)):
        for size in size_report(model, 0, "mlp", rate).matrices:
            assert size.break_even_rate == 0.2
            assert (size.factors < size.dense) == saves
            assert size.stored == min(size.factors, size.dense)
    square = size_report(model, 0, "W_Q", 0.5)
    assert square.matrices[0].break_even_rate == 0.5
    assert square.stored == square.dense
