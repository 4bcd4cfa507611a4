"""GGUF files: weights, config and tokenizer, and every damage."""

import contextlib
import itertools
import re
import unicodedata

import gguf
import jax
import numpy as np
import pytest

from icltheory.bridge import load_checkpoint, save_checkpoint
from icltheory.bridge.families import read_architecture
from tests.bridge import gguf_files, tiny
from tests.bridge.gguf_files import CONFIGS, KINDS
from tests.bridge.tiny import assert_same

TEXTS = [
    "Hello world",
    "  it's 2024, I'LL pay $67.89 for 12345!",
    "naïve café — “quotes”",
    "東京 🙂",
    "def f(x):\n    return x**2\n\n\n# end\ttab ",
    "a<|end|>b",
    "ﬁ e\u0301",
]
_BYTES = [
    *map(chr, [*range(33, 127), *range(161, 173), *range(174, 256)]),
    *map(chr, range(256, 324)),
]
_MERGES = ["Ġ t", "l l", "H e", "He ll", "Ġ w", "1 2", "12 3", "2 0", "' s"]


def byte_level(pre, **other):
    """A byte-level tokenizer, as calls of the writer."""
    special = ["<|begin|>", "<|end|>", "<user>", "cat"]
    tokens = [*_BYTES, *(m.replace(" ", "") for m in _MERGES), *special]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), 272)]
    kinds = [1] * 265 + [3, 3, 4, 1] + [5] * 3
    calls = {
        "add_tokenizer_model": "gpt2",
        "add_tokenizer_pre": pre,
        "add_token_list": tokens,
        "add_token_types": kinds,
        "add_token_merges": _MERGES,
        "add_bos_token_id": 265,
        "add_eos_token_id": 266,
        **other,
    }
    return [(name, value) for name, value in calls.items() if value is not None]


def pieces(**other):
    """A tokenizer of SentencePiece; merges are those of the scores."""
    words = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab", "aa"]
    tokens = ["<unk>", "<s>", "</s>", *words]
    tokens += [f"<0x{i:02X}>" for i in range(256)] + ["  ", "<x>", "<y>"]
    calls = {
        "add_tokenizer_model": "llama",
        "add_tokenizer_pre": "default",
        "add_token_list": tokens,
        "add_token_scores": [0.0, 0.0, 0.0, *map(float, -np.arange(10))] + [0.0] * 259,
        "add_token_types": [2, 3, 3] + [1] * 10 + [6] * 256 + [4, 5, 5],
        "add_bos_token_id": 1,
        "add_eos_token_id": 2,
        **other,
    }
    return [(name, value) for name, value in calls.items() if value is not None]


TOKENIZERS = {
    "llama": byte_level("llama-bpe", add_add_bos_token=True),
    "qwen2": byte_level("qwen2", add_add_bos_token=False),
    "qwen3": byte_level("qwen2"),
    "gemma3": pieces(add_add_space_prefix=False),
}


def written(folder, model="llama", kinds=("F32",), **options):
    options.setdefault("tokenizer", TOKENIZERS[model])
    path = folder / "model.gguf"
    return path, gguf_files.write(path, model, kinds, **options)


@pytest.mark.parametrize("model", CONFIGS)
def test_a_file_is_its_weights_dequantised(model, tmp_path):
    """The weights are bit-identical in all types of blocks; so is the architecture."""
    path, weights = written(tmp_path, model, KINDS)
    loaded = load_checkpoint(path, "float32")
    folder = tiny.write(tmp_path / "same", gguf_files.config_of(model), weights)
    same = load_checkpoint(folder, "float32")
    assert loaded.arch == same.arch
    assert_same(loaded.params, same.params)
    assert loaded.source == str(path)
    assert_same(load_checkpoint(tmp_path, "float32").params, same.params)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_the_dtype_is_that_of_the_matrices(kind, tmp_path):
    path, _ = written(tmp_path, kinds=(kind,))
    dtype = {"F16": "float16", "BF16": "bfloat16"}.get(kind, "float32")
    said = pytest.warns(UserWarning, match="weights in float32 are read in")
    with contextlib.nullcontext() if dtype == "float32" else said:
        model = load_checkpoint(path)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(model.params)} == {dtype}
    assert model.config["torch_dtype"] == dtype


def test_biases_of_llama_are_put_in_order_too(tmp_path):
    bias = np.arange(256, dtype=np.float32)

    def change(writer, tensors):
        sizes = {"q": 256, "k": 128, "v": 128, "output": 256}
        for layer, part in itertools.product(range(2), sizes):
            tensors[f"blk.{layer}.attn_{part}.bias"] = bias[: sizes[part]], "F32"

    path, _ = written(tmp_path, change=change)
    found = load_checkpoint(path).params["layers"][0]["attn"]
    pairs = np.arange(64).reshape(32, 2).T.ravel()  # of one head
    for name, heads in (("W_Q", 4), ("W_K", 2)):
        expected = (64 * np.arange(heads)[:, None] + pairs).ravel()
        np.testing.assert_array_equal(found[name]["bias"], expected)
    np.testing.assert_array_equal(found["W_V"]["bias"], bias[:128])


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_rotary_positions_are_scaled(kind, tmp_path):
    config = gguf_files.config_of("llama")
    scaling = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 16}
    scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    expected = read_architecture({**config, "rope_scaling": scaling}).rotary

    def change(writer, tensors):
        if kind != "llama3":
            writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
            writer.add_rope_scaling_factor(4.0)
            writer.add_rope_scaling_orig_ctx_len(16)
            return
        plain = read_architecture(config).rotary.frequencies
        divisors = np.divide(plain, expected.frequencies, dtype=np.float32)
        assert divisors.max() > 3.9
        tensors["rope_freqs.weight"] = divisors, "F32"

    path, _ = written(tmp_path, change=change)
    found = load_checkpoint(path).arch.rotary
    np.testing.assert_allclose(found.frequencies, expected.frequencies, rtol=2e-7)
    assert found.scale == expected.scale
    assert found.long_frequencies in ((), found.frequencies)


def test_a_saved_model_has_weights_config_and_tokenizer_of_the_file(tmp_path):
    path, _ = written(tmp_path)
    model = load_checkpoint(path)
    again = load_checkpoint(save_checkpoint(model, tmp_path / "saved"))
    assert again.arch == model.arch
    assert_same(again.params, model.params)
    for text in TEXTS:
        ids = model.tokenizer.encode(text)
        assert again.tokenizer.encode(text) == ids
        assert again.tokenizer.decode(ids) == model.tokenizer.decode(ids)
    assert again.tokenizer.eos_ids == model.tokenizer.eos_ids == {266}


# Words into which each pre-tokenizer cuts a text, in the bytes' letters.
WORDS = {
    "gpt-2": "Hello|Ġ12345|Ġit|'s",
    "smollm": "Hello|Ġ|1|2|3|4|5|Ġit|'s",
    "llama-bpe": "Hello|Ġ|123|45|Ġit|'s",
    "qwen2": "Hello|Ġ|1|2|3|4|5|Ġit|'s",
}


def merged(parts, ranks):
    """Joins the neighbours of least rank, the first of equals, until none has one."""
    parts = list(parts)
    while True:
        joined = enumerate(map("".join, itertools.pairwise(parts)))
        known = [(ranks[pair], place) for place, pair in joined if pair in ranks]
        if not known:
            return parts
        _, at = min(known)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.parametrize("pre", WORDS)
def test_bytes_are_merged_within_the_words_of_the_pre_tokenizer(pre, tmp_path):
    calls = byte_level(pre, add_eot_token_id=267)
    tokenizer = load_checkpoint(written(tmp_path, tokenizer=calls)[0]).tokenizer
    tokens = dict(calls)["add_token_list"]
    ranks = {merge.replace(" ", ""): rank for rank, merge in enumerate(_MERGES)}
    words = [merged(word, ranks) for word in WORDS[pre].split("|")]
    ids = [tokens.index(part) for word in words for part in word]
    text = "Hello 12345 it's"
    assert tokenizer.encode(text, special=False) == ids
    # LLaMA 3 begins a text with its token unless the file says otherwise.
    assert tokenizer.encode(text) == [265] * (pre == "llama-bpe") + ids
    assert tokenizer.decode(tokenizer.encode(text)) == text
    # LLaMA 3 takes a word that is in the vocabulary whole, although no merge makes it.
    cat = [268] if pre == "llama-bpe" else [tokens.index(letter) for letter in "cat"]
    assert tokenizer.encode("cat", special=False) == cat
    ids = tokenizer.encode("t<|end|><user>t", special=False)
    assert ids == [tokens.index("t"), 266, 267, tokens.index("t")]
    assert tokenizer.decode(ids) == "t<user>t"
    assert (tokenizer.bos_id, tokenizer.eos_id) == (265, 266)
    assert tokenizer.eos_ids == {266, 267}
    assert tokenizer.vocab_size == 272


def test_pieces_are_merged_by_their_scores(tmp_path):
    calls = pieces()
    tokenizer = load_checkpoint(written(tmp_path, tokenizer=calls)[0]).tokenizer
    tokens, scores = (dict(calls)[f"add_token_{n}"] for n in ("list", "scores"))
    ranks = {token: -score for token, score in zip(tokens, scores, strict=True)}
    rng = np.random.default_rng(0)
    for _ in range(50):
        text = " ".join("".join(rng.choice([*"abc"], 9)).split("ca"))
        text = re.sub(" +", " ", text)
        best = merged("▁" + text.replace(" ", "▁"), ranks)
        assert tokenizer.encode(text) == [1, *map(tokens.index, best)], text
    assert tokenizer.encode("é", special=False) == [3, *(13 + b for b in "é".encode())]
    assert tokenizer.decode(tokenizer.encode("ab é c")) == "ab é c"
    plain = {"space_prefix": False, "bos_token": False, "eos_token": True}
    plain = pieces(**{f"add_add_{name}": value for name, value in plain.items()})
    tokenizer = load_checkpoint(written(tmp_path, tokenizer=plain)[0]).tokenizer
    assert tokenizer.encode("ab  a") == [tokens.index("ab"), 269, tokens.index("a"), 2]
    assert tokenizer.decode(tokenizer.encode(" ab  a")) == " ab  a"


def test_a_file_without_a_tokenizer_loads(tmp_path):
    path, _ = written(tmp_path, tokenizer=())
    with pytest.raises(FileNotFoundError, match="expected a tokenizer"):
        load_checkpoint(path).tokenizer  # noqa: B018


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (byte_level("tekken"), "ggml.pre: expected .* or smollm.*got 'tekken'"),
        (byte_level("qwen2", add_tokenizer_model="bert"), "model: .*llama, got 'bert'"),
        (byte_level("qwen2", add_token_merges=["no such"]), "Token `no` out of"),
    ],
)
def test_tokenizers_that_cannot_be_built_are_named(calls, message, tmp_path):
    path, _ = written(tmp_path, tokenizer=calls)
    tokenizer = load_checkpoint(path).tokenizer
    message = f"^{path}: expected a tokenizer, got .*{message}"
    with pytest.raises(ValueError, match=message):
        tokenizer.encode("a")


DAMAGES = {
    "no GGUF": (lambda data: b"GGML" + data[4:], "whole file.*magic invalid"),
    "empty": (lambda data: b"", "whole file.*empty file"),
    "cut short": (lambda data: data[:-1000], "whole file.*cannot reshape"),
    "cut in its header": (lambda data: data[:3000], "whole file"),
    "an unknown block type": (
        lambda data: data.replace(_PLACE, _PLACE[:-4] + b"\x63\0\0\0", 1),
        r"whole file.*\(99\) is not a valid GGMLQuantizationType",
    ),
    "a Git LFS pointer": (
        lambda data: b"version https://git-lfs.github.com/spec/v1\n",
        "got a Git LFS pointer",
    ),
}
# The entry of the final norm: name, one dimension of 256, type 0, offset.
_PLACE = b"output_norm.weight" + b"\1\0\0\0" + (256).to_bytes(8, "little") + bytes(4)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_named(damage, tmp_path):
    path, _ = written(tmp_path)
    edit, message = DAMAGES[damage]
    data = path.read_bytes()
    path.write_bytes(edit(data))
    assert path.read_bytes() != data
    with pytest.raises(ValueError, match=f"^{path}: expected .*{message}") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def _set(name, value, call="add_uint32"):
    def change(writer, tensors):
        writer.kv_data[0].pop(name, None)
        getattr(writer, call)(name, value)

    return change


def _lost(name):
    return lambda writer, tensors: writer.kv_data[0].pop(name)


REFUSED = {
    "another architecture": (
        _set("general.architecture", "phi3", "add_string"),
        "general.architecture: expected llama or qwen2 or qwen3 or gemma3, got 'phi3'",
    ),
    "a part": (_set("split.count", 2), "split.count: expected 0 or 1 or None, got 2"),
    "experts": (_set("llama.expert_count", 8), "llama.expert_count: expected 0"),
    "scaling": (
        _set("llama.rope.scaling.type", "longrope", "add_string"),
        "llama.rope.scaling.type: expected none or linear or yarn.*got 'longrope'",
    ),
    "no width": (
        _lost("llama.embedding_length"),
        "llama.embedding_length: expected a number above 0, got None",
    ),
    "part of a head": (_set("llama.rope.dimension_count", 32), "partial_rotary_factor"),
    "a tensor less": (
        lambda writer, tensors: tensors.pop("blk.1.ffn_up.weight"),
        "expected tensor model.layers.1.mlp.up_proj.weight",
    ),
    "a tensor more": (
        lambda writer, tensors: tensors.update({"blk.1.x": tensors["output.weight"]}),
        "did not expect tensor blk.1.x",
    ),
    "another shape": (
        _set("llama.feed_forward_length", 128),
        r"gate_proj.weight: expected shape \(128, 256\), got \(256, 256\)",
    ),
    "integers": (
        lambda writer, tensors: tensors.update(
            {"output.weight": (np.zeros((272, 256), np.int8), "I8")}
        ),
        "lm_head.weight: Dequantization for I8 is not yet implemented",
    ),
    "not a number": (
        lambda writer, tensors: tensors["output.weight"][0].fill(np.nan),
        "lm_head.weight: expected finite numbers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(name, tmp_path):
    change, message = REFUSED[name]
    path, _ = written(tmp_path, change=change)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_one_file_of_a_folder_is_read(tmp_path, monkeypatch):
    path, _ = written(tmp_path)
    (tmp_path / "other.gguf").write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="expected one GGUF file, got 2; name one"):
        load_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no\.gguf"):
        load_checkpoint(tmp_path / "no.gguf")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_checkpoint(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(ImportError, match=r"pip install icltheory\[gguf\]"):
        load_checkpoint(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", CONFIGS)
def test_transformers_reads_the_same(model, kind, tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5.0")
    torch = pytest.importorskip("torch")
    path, weights = written(tmp_path, model, (kind,))
    same = tiny.write(tmp_path / "same", gguf_files.config_of(model), weights)
    ours = load_checkpoint(path, "float32")
    ids = np.random.default_rng(0).integers(0, 265, (2, 17))
    logits = np.asarray(ours.logits(ids))
    np.testing.assert_array_equal(load_checkpoint(same, "float32").logits(ids), logits)
    options = {"gguf_file": path.name, "dtype": torch.float64}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **options)
    with torch.no_grad():
        reference = theirs(torch.tensor(ids)).logits.numpy()
    error, largest = np.abs(logits - reference).max(), np.abs(logits).max()
    print(f"{model} {kind}: {error:.1e} of {largest:.1f}")
    # Torch in float32 is up to 2.4e-6 of the largest logit from torch in float64, and
    # rows of W_Q and W_K in a wrong order change it by a quarter.
    assert error <= 1e-5 * largest
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        tmp_path, gguf_file=path.name
    )
    for text in TEXTS:
        # Qwen's own tokenizer composes characters, which transformers does not.
        form = unicodedata.normalize("NFC", text) if "qwen" in model else text
        assert ours.tokenizer.encode(text) == tokenizer(form)["input_ids"], text
