"""Language models in hand: logits, clipping, tokenizers, and one that is real."""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import LanguageModel, Tokenizer, load_checkpoint, prune_model
from icltheory.bridge.evaluation import generate, log_likelihoods
from icltheory.layered import LayeredModel, get_matrix
from tests.bridge.tiny import config_of, model_of, tensors_of, write
from tests.oracles import truncate

IDS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
SHARED = Path(__file__).parents[3] / "shared" / "data"
STORIES = SHARED / "models" / "stories260K"
TEXT = SHARED / "text" / "tinystories" / "tinystories_sample_cs336.txt"


def test_a_model_keeps_the_protocol_and_stays_as_it_is():
    model = model_of("gptj")
    assert isinstance(model, LayeredModel)
    assert model.num_layers == 2
    assert model.context_length == 24
    assert "gptj, 2 layers" in repr(model)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.source = "elsewhere"
    other = model.replace(params={**model.params, "head": {}})
    assert other.decoder is model.decoder
    assert model.params["head"]
    names = [spec.name for spec in model_of("llama").matrices(1)]
    assert names == ["W_Q", "W_K", "W_V", "W_O", "W_in", "W_gate", "W_out"]


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (np.array([1, 2]), None, r"token_ids: expected shape \(B, T\), got \(2,\)"),
        (IDS, np.ones((2, 3)), r"mask: expected shape \(2, 4\), got \(2, 3\)"),
        (IDS * 9, None, "token_ids: expected 0 to 36, got 72"),
        (IDS - 2, None, "token_ids: expected 0 to 36, got -1"),
        (np.zeros((1, 25), int), None, "expected at most 24 tokens, got 25"),
        (np.zeros((2, 0), int), None, r"at least one token, got shape \(2, 0\)"),
        (np.zeros((0, 2), int), None, r"at least one token, got shape \(0, 2\)"),
    ],
)
def test_wrong_tokens_are_refused(ids, mask, message):
    with pytest.raises(ValueError, match=message):
        model_of("llama").logits(ids, None if mask is None else mask.astype(bool))


@pytest.mark.parametrize("family", ["gptj", "phi3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_clipping_cuts_one_module_and_leaves_the_model(family, dtype):
    model = model_of(family, dtype)
    before = jax.tree.map(np.array, model.params)
    clipped = prune_model(model, "1:mlp:0.5")
    jax.tree.map(np.testing.assert_array_equal, model.params, before)
    for spec in model.matrices(1):
        old, new = (get_matrix(m.params, spec) for m in (model, clipped))
        assert new.dtype == old.dtype == jnp.dtype(dtype)
        if spec.group == "attn":
            assert new is old
            continue
        s, rank = np.linalg.svd(np.asarray(old, float))[1], min(old.shape) // 2
        # Rounding turns the kept subspace by more where the next value is near.
        turn = 1 + s[rank] / (s[rank - 1] - s[rank])
        error = np.abs(np.asarray(new, float) - truncate(old, rank)).max()
        assert error < 5 * float(jnp.finfo(dtype).eps) * s[0] * turn
    assert clipped.params["layers"][0] is model.params["layers"][0]
    same = prune_model(model, "0:all:0").params
    jax.tree.map(np.testing.assert_array_equal, same, before)


def write_tokenizer(folder, **config):
    """Words of a tiny language, with a token in front of every text."""
    import tokenizers

    words = ["<s>", "</s>", "<unk>", "yes", "no"]
    vocabulary = {word: i for i, word in enumerate(words)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<unk>"))
    made.add_special_tokens(words[:3])
    made.enable_truncation(2)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_the_tokenizer_is_the_checkpoints(tmp_path):
    pytest.importorskip("tokenizers")
    config = config_of("llama", eos_token_id=[1, 2])
    folder = write(tmp_path / "a", config, tensors_of(model_of("llama")))
    write_tokenizer(folder, bos_token={"content": "<s>"})
    tokenizer = load_checkpoint(folder).tokenizer
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.encode("yes no yes") == [0, 3, 4, 3]
    assert tokenizer.encode("yes maybe", special=False) == [3, 2]
    assert tokenizer.decode([0, 3, 4]) == "yes no"
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (0, 1, 5)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json: expected a tokenizer"):
        load_checkpoint(folder).tokenizer.encode("yes")


def test_a_checkpoint_without_a_tokenizer_loads(tmp_path, monkeypatch):
    folder = write(tmp_path / "a", config_of("gptj"), tensors_of(model_of("gptj")))
    model = load_checkpoint(folder)
    with pytest.raises(FileNotFoundError, match=f"{folder}: expected a tokenizer.json"):
        model.tokenizer  # noqa: B018
    with pytest.raises(FileNotFoundError, match="this model: expected a tokenizer"):
        LanguageModel(model.decoder, model.params).tokenizer  # noqa: B018
    write_tokenizer(folder)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install icltheory\[llm\]"):
        load_checkpoint(folder).tokenizer.encode("yes")


@pytest.mark.slow
@pytest.mark.skipif(not STORIES.is_dir(), reason="the stories model is not beside")
def test_a_real_llama_reads_and_tells_stories():
    """The numbers are those of an independent float64 program, on the same text."""
    pytest.importorskip("tokenizers")
    model = load_checkpoint(STORIES)
    assert model.tokenizer.bos_id == 1
    stories = map(str.strip, TEXT.read_text().split("<|endoftext|>"))
    stories = [story for story in stories if story]
    assert len(stories) == 5
    rows = [model.tokenizer.encode(story) for story in stories]
    found = log_likelihoods(model, rows, [1] * len(rows))
    mean = found.log_likelihood.sum() / found.num_tokens.sum()
    assert mean == pytest.approx(-1.266, abs=5e-4)
    (new,) = generate(model, [[1]], 47)
    story = model.tokenizer.decode([1, *new])
    assert story.startswith(
        "Once upon a time, there was a little girl named Lily. "
        "She loved to play outside in the park. One day, she saw a big, red ball."
    )
