"""The presets gptj and llama2 on small checkpoints of exactly their architecture."""

import json

import jax
import pytest

from experiments import real_model
from experiments.real_model.published import CONFIGS
from icltheory.bridge import load_checkpoint
from icltheory.bridge.tasks import load_task
from tests.bridge.tasks_data import WRITERS
from tests.experiments.true_checkpoints import SIZES, write_true_checkpoint

# What is smaller than in the preset.
FEW = """
    --tasks rte --layers 0 13 27 --examples 2 --search-examples 2 --test-examples 2
    --shots 1 --most-shots 2 --draws 1 --arms algorithm1 scale --modules mlp
    --update-queries 2 --update-shots 1 --batch-size 2
"""


def beginnings(task):
    return [task.prefix(None), *(task.query(e) for e in task.validation[:20])]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["gptj", "llama2"])
def test_the_command_line_of_a_preset_runs_on_its_architecture(preset, tmp_path):
    (tmp_path / "tasks" / "rte").mkdir(parents=True)
    WRITERS["rte"](tmp_path / "tasks" / "rte")
    task = load_task("rte", tmp_path / "tasks" / "rte")
    folder = write_true_checkpoint(preset, tmp_path / "checkpoint", beginnings(task))
    line = ["--preset", preset, "--checkpoint", str(folder)]
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


@pytest.mark.parametrize("preset", ["gptj", "llama2"])
def test_the_small_checkpoints_are_laid_out_as_the_published_ones(preset, tmp_path):
    changes = {"n_layer": 1} if preset == "gptj" else {"num_hidden_layers": 1}
    folder = write_true_checkpoint(preset, tmp_path / "c", ["a text: pos"], **changes)
    names = {path.name for path in folder.iterdir()}
    shards = {f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)}
    tables = {"model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"}
    assert names == {"config.json", *tables, *shards}
    model = load_checkpoint(folder, "float16")
    encode, decode = model.tokenizer.encode, model.tokenizer.decode
    text = "two words\n and a \u2603"
    assert decode(encode(text)) == text
    first = {"gptj": [], "llama2": [1]}[preset]
    assert encode("pos")[: len(first)] == first
    assert len(encode("a text: pos")) == len(encode("a text:")) + 1
    # Nothing but sizes is another than in the published config.
    stored = json.loads((folder / "config.json").read_text())
    other = {k for k in stored if stored[k] != CONFIGS[preset][k]}
    assert other <= {*SIZES[preset], *changes}
