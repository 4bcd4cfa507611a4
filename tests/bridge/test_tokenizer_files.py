r"""Tokens that only the files beside tokenizer.json name, as transformers reads them.

The numbers are those of transformers 5.24.0 (``AutoTokenizer`` and the special tokens
that ``generate`` prepares); the slow test asks it again where it is installed:

    uv run --with torch --with transformers \
        pytest -m slow tests/bridge/test_tokenizer_files.py
"""

import json

import pytest

from icltheory.bridge import Tokenizer

pytest.importorskip("tokenizers")

X, Y, E = "<|x|>", "<|y|>", "<|e|>"
TEXTS = (f"a{X}b", f"{Y} a {X}b", f"ab{E}xyab")
LETTERS = [E, *"abexy<|> ", "xy"]


def token(content, **flags):
    plain = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, "special": True, **plain, **flags}


BACKEND = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": 0, **token(E)}],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": {"type": "Fuse"},
    "model": {
        **{"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False},
        "vocab": {letter: i for i, letter in enumerate(LETTERS)},
        "merges": ["x y"],
    },
}
SAID = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": E, "eos_token": E}
CONFIG = {"model_type": "llama", "bos_token_id": 0, "eos_token_id": 0}
SAY, MAP, ADDED = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
GENERATION = "generation_config.json"


def listed(**tokens):
    return {**SAID, "added_tokens_decoder": tokens.pop("decoder"), **tokens}


# Files that are not as above (None: absent).
FILES = {
    "plain": {},
    "added": {ADDED: {X: 11}},
    "added, not in order": {ADDED: {Y: 12, X: 11}},
    "added, a known word": {ADDED: {"xy": 10}},
    "added, special by the map": {ADDED: {X: 11}, MAP: {"eos_token": X}},
    "decoder": {SAY: listed(decoder={"0": token(E), "11": token(X)})},
    "decoder, stripped": {
        SAY: listed(decoder={"11": token(X, lstrip=True, rstrip=True)})
    },
    "decoder, a word": {
        SAY: listed(decoder={"11": token("ab", special=False, single_word=True)})
    },
    "decoder before added": {SAY: listed(decoder={"0": token(E)}), ADDED: {X: 11}},
    "decoder before the map": {
        SAY: listed(decoder={"11": token(Y)}),
        MAP: {"eos_token": Y, "pad_token": X},
    },
    "additional": {SAY: {**SAID, "additional_special_tokens": [X, Y]}},
    "extra": {SAY: {**SAID, "extra_special_tokens": [Y]}},
    "extra, with names": {SAY: {**SAID, "extra_special_tokens": {"image_token": X}}},
    "a name of its own": {SAY: {**SAID, "image_token": X, "add_bos_token": True}},
    "additional in the map": {MAP: {"additional_special_tokens": [Y, X]}},
    "additional in both": {
        SAY: {**SAID, "additional_special_tokens": [X]},
        MAP: {"additional_special_tokens": [Y]},
    },
    "the map before": {MAP: {"eos_token": token(Y)}, ADDED: {X: 11}},
    "null in the map": {MAP: {"eos_token": None}},
    "new named ones": {
        SAY: {**SAID, "pad_token": Y, "unk_token": X, "bos_token": None}
    },
    "a known word that ends": {SAY: {**SAID, "eos_token": "xy"}},
    "none in tokenizer.json": {"tokenizer.json": {**BACKEND, "added_tokens": []}},
    "special tokens are split": {SAY: {**SAID, "split_special_tokens": True}},
    "several ends": {GENERATION: {"bos_token_id": 0, "eos_token_id": [0, 7, 3]}},
    "another end": {GENERATION: {"eos_token_id": 7}},
    "no end": {GENERATION: {"bos_token_id": 0}},
    "ends in the config": {"config.json": {**CONFIG, "eos_token_id": [5, 9]}},
    "only the map": {
        SAY: None,
        MAP: {"bos_token": E, "eos_token": Y},
        ADDED: {Y: 11},
        "config.json": {**CONFIG, "model_type": "phi3"},
    },
}
# Numbers of X and Y (None: their letters), of the tokens that begin and end, and of
# those that end a text for ``generate``.
EXPECTED = {
    "plain": (None, None, 0, 0, [0]),
    "added": (11, None, 0, 0, [0]),
    "added, not in order": (11, 12, 0, 0, [0]),
    "added, a known word": (None, None, 0, 0, [0]),
    "added, special by the map": (11, None, 0, 11, [0]),
    "decoder": (11, None, 0, 0, [0]),
    "decoder, stripped": (11, None, 0, 0, [0]),
    "decoder, a word": (None, None, 0, 0, [0]),
    "decoder before added": (None, None, 0, 0, [0]),
    "decoder before the map": (None, 11, 0, 0, [0]),
    "additional": (11, 12, 0, 0, [0]),
    "extra": (None, 11, 0, 0, [0]),
    "extra, with names": (11, None, 0, 0, [0]),
    "a name of its own": (11, None, 0, 0, [0]),
    "additional in the map": (12, 11, 0, 0, [0]),
    "additional in both": (11, None, 0, 0, [0]),
    "the map before": (11, 12, 0, 12, [0]),
    "null in the map": (None, None, 0, None, [0]),
    "new named ones": (11, 12, None, 0, [0]),
    "a known word that ends": (None, None, 0, 10, [0]),
    "none in tokenizer.json": (None, None, 0, 0, [0]),
    "special tokens are split": (None, None, 0, 0, [0]),
    "several ends": (None, None, 0, 0, [0, 3, 7]),
    "another end": (None, None, 0, 0, [7]),
    "no end": (None, None, 0, 0, []),
    "ends in the config": (None, None, 0, 0, [5, 9]),
    "only the map": (None, 11, 0, 11, [0]),
}
# The third text where it is another.
THIRD = {
    "decoder, a word": [11, 0, 10, 1, 2],
    "special tokens are split": [1, 2, 6, 7, 3, 7, 8, 10, 1, 2],
}


def folder_of(name, path):
    files = {"tokenizer.json": BACKEND, SAY: SAID, "config.json": CONFIG, **FILES[name]}
    for file, value in files.items():
        if value is not None:
            (path / file).write_text(json.dumps(value), "utf-8")
    return path, files["config.json"]


def ids_of(name):
    """The expected numbers of the three texts."""
    x, y, *_ = EXPECTED[name]
    X, Y = ([6, 7, n, 7, 8] if i is None else [i] for n, i in ((4, x), (5, y)))
    space = [] if name == "decoder, stripped" else [9]
    third = THIRD.get(name, [1, 2, 0, 10, 1, 2])
    return [[1, *X, 2], [*Y, 9, 1, *space, *X, 2], third]


@pytest.mark.parametrize("name", FILES)
def test_numbers_and_ends_are_those_of_transformers(name, tmp_path):
    tokenizer = Tokenizer(*folder_of(name, tmp_path))
    _, _, bos, eos, ends = EXPECTED[name]
    assert [tokenizer.encode(text) for text in TEXTS] == ids_of(name)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (bos, eos)
    # The tokenizer's own end is one too, which generate knows only if it is told.
    assert tokenizer.eos_ids == {*ends, eos} - {None}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_transformers_says_so(name, tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5.0")
    pytest.importorskip("torch")
    folder, config = folder_of(name, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert [theirs.encode(text) for text in TEXTS] == ids_of(name)
    assert (theirs.bos_token_id, theirs.eos_token_id) == EXPECTED[name][2:4]
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    made = transformers.LlamaConfig(**sizes, **{**config, "model_type": "llama"})
    transformers.LlamaForCausalLM(made).save_pretrained(folder / "model")
    written = folder / "model" / GENERATION
    written.unlink()
    if GENERATION in FILES[name]:
        written.write_text(json.dumps(FILES[name][GENERATION]))
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "model")
    prepared, _ = model._prepare_generation_config(None)
    model._prepare_special_tokens(prepared, True)
    ends = prepared._eos_token_tensor
    assert ([] if ends is None else sorted(ends.tolist())) == EXPECTED[name][4]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {ADDED: {X: 13}},
            f"expected 13 as the number of .*{X[2]}.*, got 11, the next",
        ),
        ({SAY: listed(decoder={"11": 5})}, "expected the added tokens of a tokenizer"),
        ({SAY: listed(decoder=[X])}, "expected the added tokens of a tokenizer"),
        ({SAY: {**SAID, "eos_token": 5}}, "expected the added tokens of a tokenizer"),
        ({ADDED: [X]}, f"{ADDED}: expected a JSON object, got list"),
    ],
)
def test_files_that_cannot_be_followed_are_named(files, message, tmp_path):
    for file, value in {"tokenizer.json": BACKEND, **files}.items():
        (tmp_path / file).write_text(json.dumps(value))
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer(tmp_path).encode("a")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
