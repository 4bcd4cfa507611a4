"""The presets gptj and llama2 on small checkpoints of exactly their architecture."""

import json

import jax
import pytest

from experiments import prune_llm
from experiments.prune_llm.published_models import CONFIGS
from icltheory.bridge import load_checkpoint
from icltheory.bridge.tasks import load_task
from tests.bridge.tasks_data import WRITERS
from tests.experiments.true_checkpoints import SIZES, write_true_checkpoint

LAYERS = {"gptj": (28, 26), "llama2": (32, 30)}
# What is smaller than in the run of the paper; the rest is that of the preset.
FEW = """
    --tasks rte --modules mlp --layers -1 --examples 2 --shots 1 --batch-size 2
    --naive-examples 1 --profile authors_code --arms
"""


def beginnings(task):
    return [task.prefix(None), *(task.query(e) for e in task.validation[:20])]


# The prompts of the scripts end in a space, which is what the warning says.
@pytest.mark.filterwarnings("ignore:.*a space stands before the answer:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("preset", ["gptj", "llama2"])
def test_the_command_line_of_a_preset_runs_on_its_architecture(preset, tmp_path):
    (tmp_path / "tasks" / "rte").mkdir(parents=True)
    WRITERS["rte"](tmp_path / "tasks" / "rte")
    task = load_task("rte", tmp_path / "tasks" / "rte", "authors_code")
    folder = write_true_checkpoint(preset, tmp_path / "checkpoint", beginnings(task))
    line = ["--preset", preset, "--checkpoint", str(folder)]
    line += ["--task-folder", str(tmp_path / "tasks"), *FEW.split()]
    with jax.enable_x64(False):
        prune_llm.main([*line, "--output", str(tmp_path / "runs")])
    (run,) = (tmp_path / "runs" / "prune_llm").iterdir()
    result = json.loads((run / "result.json").read_text())
    config = json.loads((run / "config.json").read_text())["config"]
    assert config["rates"] == [0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995]
    assert config["dtype"] == "float16"
    depth, layer = LAYERS[preset]
    assert result["grid"]["rte"]["layers"] == [depth - 1]
    (row,), (beside,) = result["algorithm1"], result["beside published"]
    assert row["layer"] == beside["published"]["layer"] == layer
    assert beside["published"]["table"] == 6
    width = SIZES[preset].get("n_embd") or SIZES[preset]["hidden_size"]
    assert beside["differences"] == [
        f"width {width} for 4096",
        "other demonstrations",
        "2 for 277 test examples",
    ]


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
