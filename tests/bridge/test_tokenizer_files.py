r"""Tokens that only the files beside tokenizer.json name, as transformers reads them.

The numbers are those of transformers 5.24.0 (``AutoTokenizer`` and the special tokens
that ``generate`` prepares); the slow test asks it again where it is installed:

    uv run --with torch --with transformers \
        pytest -m slow tests/bridge/test_tokenizer_files.py
"""

import json
from typing import Any, NamedTuple

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
SAY, MAP = "tokenizer_config.json", "special_tokens_map.json"
ADDED = "added_tokens.json"
GENERATION = "generation_config.json"


def listed(tokens):
    return {SAY: {**SAID, "added_tokens_decoder": tokens}}


class Case(NamedTuple):
    """Files that are not as above (None: absent), and what is expected of them.

    ``x`` and ``y`` are the numbers of X and Y (None: their letters); the others are the
    tokens that begin and end, and those that end a text for ``generate``.
    """

    files: dict[str, Any]
    x: int | None = None
    y: int | None = None
    bos: int | None = 0
    eos: int | None = 0
    ends: tuple[int, ...] = (0,)


def said(**tokens):
    return {SAY: {**SAID, **tokens}}


ALONE = {SAY: None, MAP: {"bos_token": E, "eos_token": Y}, ADDED: {Y: 11}}
CASES = {
    "plain": Case({}),
    "added": Case({ADDED: {X: 11}}, 11),
    "added, not in order": Case({ADDED: {Y: 12, X: 11}}, 11, 12),
    "added, a known word": Case({ADDED: {"xy": 10}}),
    "added, special by the map": Case(
        {ADDED: {X: 11}, MAP: {"eos_token": X}}, 11, eos=11
    ),
    "decoder": Case(listed({"0": token(E), "11": token(X)}), 11),
    "decoder, stripped": Case(listed({"11": token(X, lstrip=True, rstrip=True)}), 11),
    "decoder, a word": Case(
        listed({"11": token("ab", special=False, single_word=True)})
    ),
    "decoder before added": Case({**listed({"0": token(E)}), ADDED: {X: 11}}),
    "decoder before the map": Case(
        {**listed({"11": token(Y)}), MAP: {"eos_token": Y, "pad_token": X}}, y=11
    ),
    "additional": Case(said(additional_special_tokens=[X, Y]), 11, 12),
    "extra": Case(said(extra_special_tokens=[Y]), y=11),
    "extra, with names": Case(said(extra_special_tokens={"image_token": X}), 11),
    "a name of its own": Case(said(image_token=X, add_bos_token=True), 11),
    "additional in the map": Case({MAP: {"additional_special_tokens": [Y, X]}}, 12, 11),
    "additional in both": Case(
        {
            **said(additional_special_tokens=[X]),
            MAP: {"additional_special_tokens": [Y]},
        },
        11,
    ),
    "the map before": Case(
        {MAP: {"eos_token": token(Y)}, ADDED: {X: 11}}, 11, 12, eos=12
    ),
    "null in the map": Case({MAP: {"eos_token": None}}, eos=None),
    "new named ones": Case(
        said(pad_token=Y, unk_token=X, bos_token=None), 11, 12, bos=None
    ),
    "a known word that ends": Case(said(eos_token="xy"), eos=10),
    "none in tokenizer.json": Case({"tokenizer.json": {**BACKEND, "added_tokens": []}}),
    "special tokens are split": Case(said(split_special_tokens=True)),
    "several ends": Case(
        {GENERATION: {"bos_token_id": 0, "eos_token_id": [0, 7, 3]}}, ends=(0, 3, 7)
    ),
    "another end": Case({GENERATION: {"eos_token_id": 7}}, ends=(7,)),
    "no end": Case({GENERATION: {"bos_token_id": 0}}, ends=()),
    "ends in the config": Case(
        {"config.json": {**CONFIG, "eos_token_id": [5, 9]}}, ends=(5, 9)
    ),
    "only the map": Case(
        {**ALONE, "config.json": {**CONFIG, "model_type": "phi3"}}, y=11, eos=11
    ),
}
# The third text where it is another.
THIRD = {
    "decoder, a word": [11, 0, 10, 1, 2],
    "special tokens are split": [1, 2, 6, 7, 3, 7, 8, 10, 1, 2],
}


def folder_of(name, path):
    files = {"tokenizer.json": BACKEND, SAY: SAID, "config.json": CONFIG}
    files |= CASES[name].files
    for file, value in files.items():
        if value is not None:
            (path / file).write_text(json.dumps(value), "utf-8")
    return path, files["config.json"]


def ids_of(name):
    """The expected numbers of the three texts."""
    numbers = ((4, CASES[name].x), (5, CASES[name].y))
    X, Y = ([6, 7, n, 7, 8] if i is None else [i] for n, i in numbers)
    space = [] if name == "decoder, stripped" else [9]
    third = THIRD.get(name, [1, 2, 0, 10, 1, 2])
    return [[1, *X, 2], [*Y, 9, 1, *space, *X, 2], third]


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_ends_are_those_of_transformers(name, tmp_path):
    tokenizer = Tokenizer(*folder_of(name, tmp_path))
    case = CASES[name]
    assert [tokenizer.encode(text) for text in TEXTS] == ids_of(name)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (case.bos, case.eos)
    # The tokenizer's own end is one too, which generate knows only if it is told.
    assert tokenizer.eos_ids == {*case.ends, case.eos} - {None}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_transformers_says_so(name, tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5.0")
    pytest.importorskip("torch")
    case, (folder, config) = CASES[name], folder_of(name, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert [theirs.encode(text) for text in TEXTS] == ids_of(name)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (case.bos, case.eos)
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    made = transformers.LlamaConfig(**sizes, **{**config, "model_type": "llama"})
    transformers.LlamaForCausalLM(made).save_pretrained(folder / "model")
    written = folder / "model" / GENERATION
    written.unlink()
    if GENERATION in case.files:
        written.write_text(json.dumps(case.files[GENERATION]))
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "model")
    prepared, _ = model._prepare_generation_config(None)
    model._prepare_special_tokens(prepared, True)
    ends = prepared._eos_token_tensor
    assert tuple([] if ends is None else sorted(ends.tolist())) == case.ends


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({ADDED: {X: 13}}, f"expected 13 as the number of .*{X[2]}.*, got 11, the nex"),
        (listed({"11": 5}), "expected the added tokens of a tokenizer"),
        (listed([X]), "expected the added tokens of a tokenizer"),
        (said(eos_token=5), "expected the added tokens of a tokenizer"),
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
