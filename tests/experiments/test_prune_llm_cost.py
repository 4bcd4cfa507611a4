"""What a run will take: counts against loops, lengths of prompts, the command line."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from experiments.prune_llm import cost
from experiments.prune_llm.config import PRESETS
from experiments.prune_llm.published import FILE
from experiments.prune_llm.published_models import CONFIGS
from icltheory._safetensors import SafetensorsFile
from icltheory.bridge.cost import device_bytes, model_cost
from icltheory.bridge.families import read_architecture
from icltheory.bridge.tasks import load_task
from tests.bridge.evaluation_tasks import Letters, choice, classification
from tests.bridge.tasks_data import WRITERS
from tests.experiments.true_checkpoints import write_true_checkpoint

FIXTURES = Path(__file__).parents[1] / "bridge" / "fixtures"
SMALL = {"n_layer": 5, "n_embd": 16, "n_head": 2, "rotary_dim": 2, "vocab_size": 20}
ARCH = read_architecture({**CONFIGS["gptj"], **SMALL})
SIZES = {"toy": cost.TaskSize(4, 40.0, 3.0, 10, 6)}
CONFIG = dataclasses.replace(
    PRESETS["gptj"],
    tasks=("toy",),
    rates=(0.0, 0.5, 0.9),
    layers=(0, 2, -1),
    shots=(-1, 2),
    layers_at_once=2,
)


def token_layers(prefix, layers, modules, rates):
    """Tokens that run through a layer, one after another."""
    tokens = [1] * int(prefix + 10 * 3)
    count = 0
    for group in (layers[:2], layers[2:]):
        count += sum(tokens) * max(group)  # below the pruned layers: once
        for layer in group:
            for _ in range(modules):
                for _ in range(rates):
                    count += sum(sum(tokens) for _ in range(layer, 5))
    return count


def test_operations_of_the_grid_are_those_of_a_loop():
    (work,) = cost.works(CONFIG, ARCH, SIZES)
    total = 0
    for prefix in (40, 20):  # all four demonstrations, and two
        flops = model_cost(ARCH, "float16", round(prefix + 1.5)).layer_flops
        total += token_layers(prefix, (0, 2, 4), 2, 3) * flops
    assert work.grid_flops == pytest.approx(total)


def test_arms_are_counted_and_a_search_of_the_grid_is_not_counted_twice():
    alone = dataclasses.replace(CONFIG, arms=())
    flops = model_cost(ARCH, "float16", 42).layer_flops
    (work,) = cost.works(alone, ARCH, SIZES)
    # The deepest layer is in the grid: only the test set is left, at two rates.
    assert work.search_flops == pytest.approx(2 * (40 + 6 * 3) * (4 + 2 * 1) * flops)
    grid = 10 * 3 * 2 * 3 * 2
    assert work.answers == grid + 2 * 2 * 6
    (more,) = cost.works(CONFIG, ARCH, SIZES)
    test = (40 + 6 * 3) * ((2 + 2 * 3) + (4 + 2 * 1))
    search = (40 + 10 * 3) * ((2 + 3 * 3) + (4 + 3 * 1))
    extra = more.search_flops - work.search_flops
    assert extra == pytest.approx(2 * (test + search) * flops)
    assert more.answers == work.answers + 2 * 2 * (10 * 3 + 2 * 6)


def test_bytes_are_those_of_the_arrays():
    held = cost.memory(CONFIG, ARCH, SIZES)
    sizes = model_cost(ARCH)
    assert held.weights == sizes.num_bytes
    square, wide = 16 * 16, 16 * 64
    assert held.pruned == 2 * 3 * (4 * square + 2 * wide) * 2  # layers, rates, bytes
    token = 2 * 5 * 16 * 2
    assert held.prefix == pytest.approx(40 * token * (1 + 3 * 2 * (5 + 3) / 5))
    factors = 4 * 33 * 16 + 2 * 81 * 16
    layers = 5  # those of the grid, and a random one for each module
    assert held.disk == sizes.num_bytes + 4 * layers * factors
    assert held.total == pytest.approx(
        held.weights + held.pruned + held.prefix + held.activations
    )


def test_assumed_sizes_are_those_of_the_tables():
    stored = json.loads(FILE.read_text())["sizes"]
    assert stored == {task: size.test for task, size in cost.ASSUMED.items()}


def test_prompts_are_measured_by_a_tokenizer():
    encode = Letters().encode
    task = classification(6)
    size = cost.measured_size(task, encode)
    rows = [len(encode(task.prefix(None) + task.query(e))) for e in task.validation]
    assert size.prefix == len(encode(task.prefix(None)))
    assert size.prefix + size.question == pytest.approx(sum(rows) / len(rows))
    assert size[3:] == (6, 0)
    # Both options of an example are run.
    task = choice(5)
    size, total = cost.measured_size(task, encode), 0
    for example in task.validation:
        for option in task.options(example):
            row = task.prefix(None) + task.query(example) + option
            total += len(encode(row)) - size.prefix
    assert size.question == pytest.approx(total / 5)


def test_the_command_prints_the_published_models(capsys):
    cost.main(["--preset", "gptj", "--flops-per-second", "1e15"])
    assert "6,050,882,784 parameters in float16" in capsys.readouterr().out
    with pytest.raises(ValueError, match="task_folder: expected --checkpoint as well"):
        cost.main(["--task-folder", "folder"])
    for words, said in {
        (
            "--flops-per-second",
            "0",
        ): "flops_per_second: expected a number above 0, got 0",
        ("--devices", "0"): "devices: expected at least 1, got 0",
        (
            "--checkpoint",
            "/nope",
        ): "checkpoint: expected a folder with config.json, got ",
    }.items():
        with pytest.raises((ValueError, OSError), match=f"^{said}"):
            cost.main(words)


def test_the_command_says_what_fits_from_headers_alone(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(SafetensorsFile, "read", None)  # no weight is read
    line = ["--checkpoint", str(FIXTURES / "llama"), "--devices", "4"]
    cost.main(line)
    shown = capsys.readouterr().out
    assert "Checkpoint: 11,976 parameters" in shown
    assert "float16" in shown  # that of the file
    assert "GB on each of 4" in shown
    assert "the run fits" in shown
    shutil.copy(FIXTURES / "llama" / "config.json", tmp_path)
    cost.main(["--checkpoint", str(tmp_path)])  # as with weights in Flax's format
    assert "Memory: 11,976 parameters" in capsys.readouterr().out
    monkeypatch.setattr(cost, "free_memory", lambda: 0)
    cost.main(line)
    assert "the run does not fit" in capsys.readouterr().out


def test_devices_share_weights_and_pruned_matrices():
    alone, shared = (cost.memory(CONFIG, ARCH, SIZES, n) for n in (1, 2))
    assert shared.weights == device_bytes(ARCH, "float16", 2)
    share = shared.weights / alone.weights
    assert 0.5 < share < 0.6  # norms and biases are whole
    assert shared.pruned == pytest.approx(share * alone.pruned)
    for name in ("prefix", "activations", "disk"):
        assert getattr(shared, name) == getattr(alone, name)


@pytest.mark.slow
def test_the_command_measures_a_folder(tmp_path, capsys):
    texts = []
    for name, write in WRITERS.items():
        (tmp_path / "tasks" / name).mkdir(parents=True)
        write(tmp_path / "tasks" / name)
        task = load_task(name, tmp_path / "tasks" / name)
        texts += [task.prefix(None), task.query(task.validation[0])]
    folder = write_true_checkpoint("llama2", tmp_path / "c", texts, num_hidden_layers=4)
    line = ["--preset", "llama2", "--checkpoint", str(folder)]
    cost.main([*line, "--task-folder", str(tmp_path / "tasks")])
    shown = capsys.readouterr().out
    assert "agnews" in shown
    assert "6,738" not in shown
