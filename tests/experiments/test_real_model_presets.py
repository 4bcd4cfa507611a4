"""The presets gptj and llama2 on narrow checkpoints of otherwise their architecture.

Depth, heads, dtype, shards and the kind of tokenizer are those of the published ones.
"""

import json
import string

import jax
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from experiments import real_model
from experiments.real_model.published import CONFIGS
from icltheory.bridge import Decoder, LanguageModel, load_checkpoint
from icltheory.bridge.families import read_architecture
from tests.bridge.tasks_data import WRITERS
from tests.bridge.tiny import tensors_of, write_shards
from tests.experiments.test_real_model_run import byte_tokenizer
from tests.weights import drawn

# As narrow as 0.995 of the paper's grid allows: 200 singular values leave one.
SIZES = {
    "gptj": {"n_embd": 208, "rotary_dim": 4, "vocab_size": 400, "n_positions": 2048},
    "llama2": {"hidden_size": 256, "intermediate_size": 688, "vocab_size": 400},
}
# What is smaller than in the preset.
FEW = """
    --tasks rte --layers 0 13 27 --examples 2 --search-examples 2 --test-examples 2
    --shots 1 --most-shots 1 --draws 1 --arms algorithm1 scale --modules mlp
    --update-queries 2 --update-shots 1 --batch-size 2
"""


def llama_tokenizer():
    """LLaMA's kind: spaces as letters, bytes for the unknown, <s> in front."""
    special = ["<unk>", "<s>", "</s>"]
    rest = [*(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    words = [*special, *rest, *string.ascii_letters]
    vocabulary = {word: i for i, word in enumerate(words)}
    unknown = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    made = Tokenizer(models.BPE(vocabulary, [], **unknown))
    spaces = normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")
    made.normalizer = normalizers.Sequence([*spaces])
    parts = decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), *parts])
    both = "<s> $A", "<s> $A <s> $B", [("<s>", 1)]
    made.post_processor = processors.TemplateProcessing(*both)
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    return made


MADE = {
    "gptj": (byte_tokenizer, "GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>"),
    "llama2": (llama_tokenizer, "LlamaTokenizer", "<s>", "</s>"),
}


def checkpoint(preset, folder, **changes):
    """Random weights in float16, in shards with their index, and a tokenizer."""
    config = {**CONFIGS[preset], **SIZES[preset], **changes}
    decoder = Decoder(read_architecture(config))
    params = drawn(decoder.init, scale=0.05, dtype="float16")
    model = LanguageModel(decoder, params, config=config)
    write_shards(folder, config, tensors_of(model))
    make, kind, first, last = MADE[preset]
    make().save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": kind, "bos_token": first, "eos_token": last}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("as_for_a_user")  # annotations are checked a million times
@pytest.mark.parametrize("preset", SIZES)
def test_the_command_line_of_a_preset_runs_on_its_architecture(preset, tmp_path):
    (tmp_path / "tasks" / "rte").mkdir(parents=True)
    WRITERS["rte"](tmp_path / "tasks" / "rte")
    line = ["--preset", preset, "--checkpoint", str(checkpoint(preset, tmp_path / "c"))]
    line += ["--task-folder", str(tmp_path / "tasks"), *FEW.split()]
    with jax.enable_x64(False):
        result = real_model.main([*line, "--output", str(tmp_path / "runs")])
    (run,) = (tmp_path / "runs" / "real_model").iterdir()
    config = json.loads((run / "config.json").read_text())["config"]
    assert config["rates"] == [0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995]
    assert config["dtype"] == "float16"
    assert result["passed"]
    assert result["grid"]["mlp"]["layers"] == [0, 13, 27]
    assert [row["arm"] for row in result["searches"]] == ["algorithm1", "scale"]
    assert len(result["searches"][0]["validation"]) == 8


@pytest.mark.parametrize(("preset", "first"), [("gptj", []), ("llama2", [1])])
def test_texts_of_its_tokenizer_come_back_and_begin_as_they_should(
    preset, first, tmp_path
):
    few = {"n_layer": 1} if preset == "gptj" else {"num_hidden_layers": 1}
    tokenizer = load_checkpoint(checkpoint(preset, tmp_path / "c", **few)).tokenizer
    text = "two words\n and a \u2603"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("pos")[: len(first)] == first
