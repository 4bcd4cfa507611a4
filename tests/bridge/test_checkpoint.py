"""Reading checkpoints: every family's layout, every file format, every damage."""

import contextlib
import fnmatch
import json
import shutil
import sys
import types
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import traverse_util
from flax.serialization import msgpack_restore, msgpack_serialize

from icltheory.bridge import load_checkpoint
from icltheory.bridge.cost import model_cost
from icltheory.bridge.families import FAMILIES
from icltheory.models._safetensors import open_safetensors, write_safetensors
from tests.bridge import stored as fixtures
from tests.bridge.test_model import write_tokenizer
from tests.bridge.tiny import (
    CONFIGS,
    assert_same,
    config_of,
    model_of,
    tensors_of,
    write,
    write_shards,
)
from tests.raising import raises

INDEX, FLAX = "model.safetensors.index.json", "flax_model.msgpack"


def stored(family, folder, change=None, **config):
    """A checkpoint, its tensors changed before they are written."""
    tensors = tensors_of(model_of(family))
    if change is not None:
        change(tensors)
    return write(folder / family, config_of(family, **config), tensors)


def test_every_family_is_here():
    assert set(CONFIGS) == set(FAMILIES)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_checkpoint_is_read_as_it_was_written(family, tmp_path):
    model, config = model_of(family), config_of(family)
    tensors = tensors_of(model)
    loaded = load_checkpoint(write(tmp_path / "one", config, tensors))
    assert loaded.arch == model.arch
    assert loaded.config == config
    assert loaded.source == str(tmp_path / "one")
    assert_same(loaded.params, model.params)
    shards = load_checkpoint(write_shards(tmp_path / "two", config, tensors))
    assert_same(shards.params, model.params)
    bare = write(tmp_path / "bare", config, tensors_of(model, prefix=""))
    assert_same(load_checkpoint(bare).params, model.params)


@pytest.mark.parametrize("name", ["gptj", "gpt2", "llama"])
def test_flax_trees_are_the_safetensors(name, tmp_path):
    """Written by the Flax classes of transformers 4.57.6."""
    folder = fixtures.checkpoint(name, tmp_path / "flax", weights=FLAX)
    one = fixtures.load(name, tmp_path, dtype=None)
    loaded = load_checkpoint(folder)
    assert loaded.arch == one.arch
    assert_same(loaded.params, one.params)


@pytest.mark.parametrize("leave_out", [False, True])
def test_a_flax_tree_in_several_files_is_that_in_one(leave_out, tmp_path):
    """Each file is a tree of some leaves; the index names leaves by their paths."""
    folder = fixtures.checkpoint("gpt2", tmp_path / "flax", weights=FLAX)
    one, whole = load_checkpoint(folder), folder / FLAX
    leaves = traverse_util.flatten_dict(msgpack_restore(whole.read_bytes()), sep="/")
    whole.unlink()
    paths, table = sorted(leaves), {}
    for number, part in enumerate((paths[::2], paths[1::2]), 1):
        name = f"flax_model-{number:05d}-of-00002.msgpack"
        table |= dict.fromkeys(part, name)
        kept = part[1:] if leave_out else part
        tree = traverse_util.unflatten_dict({p: leaves[p] for p in kept}, sep="/")
        (folder / name).write_bytes(msgpack_serialize(tree))
    (folder / f"{FLAX}.index.json").write_text(json.dumps({"weight_map": table}))
    if leave_out:
        with pytest.raises(ValueError, match=r"of-00002.msgpack: expected tensor .* n"):
            load_checkpoint(folder)
    else:
        assert_same(load_checkpoint(folder).params, one.params)


def test_of_a_tensor_in_two_shards_the_one_counts_that_the_index_names(tmp_path):
    """Both written by transformers."""
    numpy = pytest.importorskip("safetensors.numpy")
    one = fixtures.load("llama_groups", tmp_path)
    for number in (0, 1):
        folder = tmp_path / str(number)
        shutil.copytree(fixtures.FIXTURES / "llama_groups" / "sharded", folder)
        paths = sorted(folder.glob("*.safetensors"))
        right, other = (numpy.load_file(path) for path in (*paths, *paths)[number:][:2])
        name = next(iter(right))
        numpy.save_file({**other, name: right[name] + 7}, paths[1 - number])
        loaded = load_checkpoint(folder)
        assert loaded.arch == one.arch
        assert_same(loaded.params, one.params)


def cast(dtype):
    """Changes the dtype of all tensors."""

    def change(tensors):
        tensors |= {name: value.astype(dtype) for name, value in tensors.items()}

    return change


@pytest.mark.parametrize("kind", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_take_the_dtype_asked_for(kind, dtype, tmp_path):
    folder = stored("llama", tmp_path, cast(kind))
    params = load_checkpoint(folder, dtype).params
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    exact = model_of("llama").params["embed"]["tokens"]
    rounded = np.asarray(exact).astype(kind).astype(jnp.dtype(dtype))
    np.testing.assert_array_equal(np.asarray(params["embed"]["tokens"]), rounded)


def test_the_loaded_weights_do_not_depend_on_the_file_any_more(tmp_path):
    file = stored("gptj", tmp_path) / "model.safetensors"
    params = load_checkpoint(file.parent).params
    with file.open("r+b") as stream:
        stream.write(b"\xff" * file.stat().st_size)
    assert_same(params, model_of("gptj").params)


TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def moved(name, new, keep=False):
    """Gives a tensor another name, or one more."""

    def change(tensors):
        tensors[new] = tensors[name] if keep else tensors.pop(name)

    return change


def put(name, value):
    return lambda tensors: tensors.update({name: np.array(value)})


MASK = np.ones((1, 1, 3, 3), bool)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gemma", moved(TABLE, HEAD)),
        ("gemma", moved(TABLE, HEAD, keep=True)),
        ("gpt_neox", moved("embed_out.weight", HEAD)),
        ("gpt2", put("transformer.h.1.attn.bias", MASK)),
        ("gpt2", put("transformer.h.0.attn.masked_bias", MASK)),
        ("gptj", put("transformer.h.0.attn.masked_bias", MASK)),
        ("llama", put("model.layers.1.self_attn.rotary_emb.inv_freq", MASK)),
        ("gpt_neox", put("gpt_neox.layers.0.attention.rotary_emb.inv_freq", MASK)),
    ],
)
def test_other_names_are_known_and_tables_of_old_versions_skipped(
    family, change, tmp_path
):
    loaded = load_checkpoint(stored(family, tmp_path, change))
    assert_same(loaded.params, model_of(family).params)


def test_a_tied_table_with_two_values_is_refused(tmp_path):
    def change(tensors):
        tensors[HEAD] = tensors[TABLE] + 1

    with pytest.raises(ValueError, match=f"{HEAD} to equal {TABLE}"):
        load_checkpoint(stored("gemma", tmp_path, change))


NORM = "model.layers.1.input_layernorm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), f"model.safetensors: expected tensor {NORM}$"),
        (
            lambda t: t.update({n.replace("model.", "x."): t.pop(n) for n in list(t)}),
            r"tensor embed_tokens.weight and 19 more, got x.embed_tokens.weight and 19",
        ),
        (
            lambda t: [t.pop(n) for n in list(t) if ".1.mlp" in n],
            "expected tensor model.layers.1.mlp.gate_proj.weight and 2 more",
        ),
        (put("model.extra", [1.0, 1.0]), "safetensors: did not expect tensor model.ex"),
        (put(NORM, np.ones(11)), rf"{NORM}: expected shape \(12,\), got \(11,\)"),
        (put(NORM, [1] * 12), f"{NORM}: expected floating point, got int64"),
    ],
)
def test_wrong_tensors_are_named(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(stored("llama", tmp_path, change))


def mixed(tensors):
    """The table in bfloat16 and the rest in float32."""
    tensors[TABLE] = tensors[TABLE].astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("change", "config", "dtype", "cast"),
    [
        (mixed, {}, "float32", "bfloat16"),
        (mixed, {"dtype": "float32"}, "float32", "bfloat16"),
        (mixed, {"torch_dtype": "bfloat16"}, "bfloat16", "float32"),
        (mixed, {"dtype": "float32", "torch_dtype": "float16"}, "float32", "bfloat16"),
        (cast(np.float16), {"torch_dtype": "float16"}, "float16", ""),
        (cast(np.float16), {"dtype": "auto"}, "float16", ""),
        (cast(np.float16), {"dtype": "torch.float32"}, "float32", "float16"),
    ],
)
def test_the_dtype_is_that_of_the_config_or_else_of_the_file(
    change, config, dtype, cast, tmp_path
):
    """As transformers, but for files of several dtypes whose config names none."""
    folder = stored("llama", tmp_path, change, **config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        params = load_checkpoint(folder).params
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    said = [f"{folder}/model.safetensors: weights in {cast} are read in {dtype}; pass"]
    assert [str(w.message)[: len(said[0])] for w in caught] == said[: bool(cast)]
    assert model_cost(folder).dtype == dtype
    load_checkpoint(folder, "float32")  # says nothing: the dtype was asked for


@pytest.mark.parametrize(
    "front",
    [
        *("module.", "_orig_mod.", "language_model.", "base_model.model."),
        *("module.module.", "module._orig_mod."),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_what_training_puts_before_every_name_is_passed_over(front, bare, tmp_path):
    tensors = tensors_of(model_of("gpt2"), prefix="" if bare else None)
    wrapped = {front + name: value for name, value in tensors.items()}
    folder = write(tmp_path / "a", config_of("gpt2"), wrapped)
    assert_same(load_checkpoint(folder).params, model_of("gpt2").params)


@pytest.mark.parametrize(
    "file",
    [
        *("model.safetensors", "config.json", "tokenizer.json", "flax_model.msgpack"),
        *("tokenizer_config.json", "model.safetensors.index.json"),
    ],
)
def test_a_pointer_of_git_lfs_is_said_to_be_one(file, tmp_path):
    pytest.importorskip("tokenizers")
    folder = stored("llama", tmp_path)
    write_tokenizer(folder)
    if file != "model.safetensors" and "model" in file:
        (folder / "model.safetensors").unlink()
    oid = "sha256:" + 64 * "a"
    text = f"version https://git-lfs.github.com/spec/v1\noid {oid}\nsize 134515008\n"
    (folder / file).write_text(text)
    with pytest.raises(ValueError, match=f"/{file}: expected the file itself, got a G"):
        load_checkpoint(folder).tokenizer.encode("yes")


@pytest.mark.parametrize("shards", [False, True])
def test_a_byte_order_mark_is_passed_over(shards, tmp_path):
    pytest.importorskip("tokenizers")
    model = model_of("llama")
    made = (write_shards if shards else write)(
        tmp_path / "a", config_of("llama"), tensors_of(model)
    )
    write_tokenizer(made, bos_token="<s>")
    files = list(made.glob("*.json"))
    assert len(files) == 3 + shards
    for file in files:
        file.write_text(file.read_text(), "utf-8-sig")
    loaded = load_checkpoint(made)
    assert_same(loaded.params, model.params)
    assert loaded.tokenizer.encode("yes no") == [0, 3, 4]


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("value", [1e39, 3.4e38, 7e4])
def test_values_beyond_the_dtype_are_not_made_infinite(tmp_path, dtype, value):
    double = put(NORM, np.full(12, value))
    folder, kind = stored("llama", tmp_path, double), dtype or "float32"
    if value > float(jnp.finfo(kind).max):
        said = f"{NORM}: expected values that {kind} can hold, got {value:.4g}"
        with raises(f"{folder}/model.safetensors: {said}"):
            load_checkpoint(folder, dtype)
        return
    said = pytest.warns(UserWarning, match="weights in float64 are read in float32")
    with said if dtype is None else contextlib.nullcontext():
        params = load_checkpoint(folder, dtype).params
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))


def with_header(data, header):
    padded = header.ljust(len(data) - 8)
    return len(padded).to_bytes(8, "little") + padded


DAMAGES = {
    "cut": lambda data: data[:-10],
    "grown": lambda data: data + b"12",
    "no header": lambda data: data[:8] + b"x" * (len(data) - 8),
    "tiny": lambda data: b"abc",
    "long header": lambda data: (2**40).to_bytes(8, "little") + data[8:],
    "moved": lambda data: data.replace(b'"data_offsets":[0,', b'"data_offsets":[4,', 1),
    "garbage": lambda data: with_header(data, bytes(range(128, 256)) * 9),
    "one key": lambda data: with_header(data, b'{"' + b"x" * 2000 + b'":3}'),
    "unknown": lambda data: data.replace(b'"F32"', b'"F31"', 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_reported_and_left_in_place(damage, tmp_path):
    file = stored("llama", tmp_path) / "model.safetensors"
    data = DAMAGES[damage](file.read_bytes())
    file.write_bytes(data)
    with raises(f"{file}: expected") as caught:
        load_checkpoint(file.parent)
    assert len(str(caught.value)) < len(str(file)) + 200  # not the whole header
    assert file.read_bytes() == data


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, dtype, wrong):
    name = "model.layers.1.mlp.down_proj.weight"

    def change(tensors):
        cast(dtype)(tensors)
        tensors[name][0, 0] = wrong

    folder = stored("llama", tmp_path, change)
    with pytest.raises(ValueError, match=f"{name}: expected finite numbers, got 1 NaN"):
        load_checkpoint(folder, dtype)


@pytest.mark.parametrize("keep", [0, 1, 400, -5])
def test_a_damaged_tree_is_reported(keep, tmp_path):
    file = fixtures.checkpoint("gptj", tmp_path, weights=FLAX) / FLAX
    file.write_bytes(file.read_bytes()[:keep])
    with raises(f"{file}: expected a tree"):
        load_checkpoint(tmp_path)


def test_shards_must_all_be_there(tmp_path):
    config, tensors = config_of("llama"), tensors_of(model_of("llama"))
    folder = write_shards(tmp_path / "a", config, tensors)
    table = json.loads((folder / INDEX).read_text())["weight_map"]
    first, gone = next(iter(table)), "model-00003.safetensors"
    other, outside = "model-00002-of-00002.safetensors", "../elsewhere.safetensors"
    for changed, kind, message in (
        ({}, ValueError, f"{INDEX}: expected a weight_map, got {{}}"),
        ({first: outside}, ValueError, f"{INDEX}: expected a file of this folder for"),
        ({first: other}, ValueError, f"{other}: expected tensor {first}"),
        ({first: gone}, FileNotFoundError, f"{gone}: expected a file, which"),
    ):
        changed = table | changed if changed else {}
        (folder / INDEX).write_text(json.dumps({"weight_map": changed}))
        with raises(f"{folder}/{message}", kind):
            load_checkpoint(folder)


def test_missing_files_are_named(tmp_path):
    config = tmp_path / "config.json"
    with raises(f"{config}: expected a file, found none", FileNotFoundError):
        load_checkpoint(tmp_path)
    none = tmp_path / "none.gguf"
    with raises(f"{none}: expected a file, found none", FileNotFoundError):
        load_checkpoint(none)
    for text, message in (
        ('{\n"model_type" "llama"\n}', ", line 2: expected JSON"),
        ("[]", ": expected a JSON object, got list"),
    ):
        config.write_text(text)
        with raises(f"{config}{message}"):
            load_checkpoint(tmp_path)
    config.write_text(json.dumps(config_of("llama")))
    with raises(f"{tmp_path}: expected model.safetensors, ", FileNotFoundError):
        load_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ValueError, match="pytorch_model.bin: .* convert it to safeten"):
        load_checkpoint(tmp_path)
    with raises("dtype: expected one of 'float32'"):
        load_checkpoint(tmp_path, "int8")
    where = tmp_path / "nowhere"
    with raises(f"{where}: expected the folder of a checkpoint", FileNotFoundError):
        load_checkpoint(where)
    (where / "config.json").mkdir(parents=True)
    with raises(f"{where}/config.json: expected a file, got a folder"):
        load_checkpoint(where)


def fake_hub(monkeypatch, download):
    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_names_are_looked_up_on_the_hub(monkeypatch, tmp_path):
    folder, asked = stored("llama", tmp_path), []

    def download(name, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return str(folder)

    fake_hub(monkeypatch, download)
    monkeypatch.chdir(tmp_path / "llama")
    loaded = load_checkpoint("someone/tiny-model", revision="main")
    assert loaded.source == "someone/tiny-model@llama"
    assert_same(loaded.params, model_of("llama").params)
    ((name, revision, patterns),) = asked
    assert (name, revision) == ("someone/tiny-model", "main")
    assert not any("bin" in pattern for pattern in patterns)
    folder = fixtures.checkpoint("gptj", tmp_path / "flax", weights=FLAX)
    load_checkpoint("someone/flax-model")
    every = [pattern for *_, patterns in asked[1:] for pattern in patterns]
    for file in (FLAX, "flax_model-00001-of-00002.msgpack", f"{FLAX}.index.json"):
        assert any(fnmatch.fnmatch(file, pattern) for pattern in every)


def test_a_name_that_is_not_on_the_hub_is_said_so(monkeypatch):
    def download(name, revision, allow_patterns):
        raise OSError("no connection")

    fake_hub(monkeypatch, download)
    said = "expected a folder or a name on the hub, got no connection"
    with raises(f"some/model: {said}", FileNotFoundError):
        load_checkpoint("some/model")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install icltheory\[llm\]"):
        load_checkpoint("some/model")


def held_of(path):
    """KiB of a mapped file in this process's memory, as Linux counts them."""
    text = Path("/proc/self/smaps").read_text()
    (part,) = (p for p in text.split("VmFlags:") if str(path) in p)
    return int(part.split("Rss:")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux only")
def test_what_was_read_is_taken_out_of_memory_and_can_be_read_again(tmp_path):
    arrays = {str(n): np.full((512, 1024), n, np.float32) for n in (1, 2)}
    path = tmp_path / "two.safetensors"
    write_safetensors(path, arrays)
    file = open_safetensors(path)
    view = file["1"].read()
    assert view.sum() == view.size
    assert held_of(path) >= 2048
    file["1"].release()
    assert held_of(path) < 1024  # the system may have read ahead
    np.testing.assert_array_equal(view, arrays["1"])
    np.testing.assert_array_equal(file["2"].read(), arrays["2"])
