"""What a run will take: operations and bytes against loops, and the command line."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from experiments.real_model import cost, main
from experiments.real_model.config import PRESETS
from experiments.real_model.measure import Subject
from experiments.real_model.published import CONFIGS
from icltheory.bridge.cost import model_cost
from icltheory.bridge.families import read_architecture

FIXTURES = Path(__file__).parents[1] / "bridge" / "fixtures"
SMALL = {"n_layer": 5, "n_embd": 16, "n_head": 2, "rotary_dim": 2, "vocab_size": 20}
ARCH = read_architecture({**CONFIGS["gptj"], **SMALL})
CONFIG = dataclasses.replace(
    PRESETS["gptj"],
    tasks=("rte",),
    shots=(0, -1),
    most_shots=4,
    update_shots=(4,),
    examples=10,
    search_examples=20,
    test_examples=30,
    layers=(0, 2, 4),
    grid_rates=(0.5,),
    rates=(0.0, 0.5, 0.9),
    arms=("algorithm1", "scale", "temperature"),
    draws=2,
)
SHOWN, QUESTION = 10 * 89, 86


def layer_tokens(prefix, questions, below, rates):
    """Tokens that run through a layer of five, one layer after another."""
    tokens, count = prefix + questions * QUESTION, 0
    for _ in range(below):
        count += tokens  # once for all rates
    for _ in range(below, 5):
        for _ in range(rates):
            count += tokens
    return count


def test_operations_are_those_of_a_loop():
    found = cost.work(CONFIG, ARCH, "rte")
    flops = {
        prefix: model_cost(ARCH, context=prefix + QUESTION // 2).layer_flops
        for prefix in (0, 4 * 89, SHOWN)
    }
    grid = sum(layer_tokens(SHOWN, 10, layer, 2) for layer in (0, 2, 4))
    assert found["grid"] == pytest.approx(grid * flops[SHOWN])
    unpruned = 2 * 2 * 3 * layer_tokens(SHOWN, 10, 5, 1) * flops[SHOWN]
    for prefix in (0, 4 * 89):
        unpruned += 2 * layer_tokens(prefix, 30, 5, 1) * flops[prefix]
    assert found["unpruned"] == pytest.approx(unpruned)
    # Algorithm 1 for two draws and modules, one arm for both and one for attention.
    searches = 2 * layer_tokens(SHOWN, 50, 5, 1)
    for _ in range(2 * 2 + 2 + 1):
        middle = (layer_tokens(SHOWN, 20, below, 2) for below in (2, 3))
        searches += sum(middle) / 2 + layer_tokens(SHOWN, 30, 5, 1)
    assert found["searches"] == pytest.approx(searches * flops[SHOWN])


def test_bytes_are_those_of_the_arrays_and_devices_share_weights():
    held, sizes = cost.memory(CONFIG, ARCH), model_cost(ARCH)
    assert held["weights"] == sizes.num_bytes
    square, wide = 16 * 16, 16 * 64
    pruned = 3 * (4 * square + 2 * wide) * 2  # rates, bytes
    assert held["pruned matrices of a layer"] == pruned
    token = 2 * 5 * 16 * 2
    prefix = SHOWN * token * (1 + 3 * 2)
    assert held["keys and values of the demonstrations"] == prefix
    factors = 4 * 33 * 16 + 2 * 81 * 16
    disk = sizes.num_bytes + 4 * 5 * factors
    assert held["on disk: weights and singular systems"] == disk
    on_device = [held[name] for name in held if name[:7] not in ("on disk", "togethe")]
    assert held["together"] == pytest.approx(sum(on_device))
    shared = cost.memory(CONFIG, ARCH, devices=2)
    assert shared["weights"] == model_cost(ARCH, devices=2).device_bytes
    share = shared["weights"] / held["weights"]
    assert 0.5 < share < 0.6  # norms and biases are whole
    name = "pruned matrices of a layer"
    assert shared[name] == pytest.approx(share * held[name])


def test_demonstrations_are_as_many_as_the_searches_have():
    subject = object.__new__(Subject)
    subject.config = PRESETS["gptj"]
    for task, (demonstrations, *_) in cost.SIZES.items():
        assert subject.shots(task) == demonstrations


def test_the_command_prints_the_published_models(capsys):
    main(["cost", "--preset", "llama2", "--flops-per-second", "1e15"])
    assert "6,738,415,616 parameters in float16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--flops-per-second 0", "flops_per_second: expected a number above 0, got 0"),
        ("--devices 0", "devices: expected at least 1, got 0"),
        ("--checkpoint /nope", "checkpoint: expected a folder with config.json, got "),
    ],
)
def test_mistakes_are_one_line(words, said):
    with pytest.raises((ValueError, OSError), match=f"^{said}"):
        main(["cost", *words.split()])


def test_a_config_says_what_fits(capsys, monkeypatch, tmp_path):
    shutil.copy(FIXTURES / "llama" / "config.json", tmp_path)
    line = ["cost", "--checkpoint", str(tmp_path), "--devices", "4"]
    main(line)
    shown = capsys.readouterr().out
    assert "11,976 parameters" in shown
    assert "GB on each of 4" in shown
    assert "the run fits" in shown
    monkeypatch.setattr("icltheory.bridge.cost.free_memory", lambda: 0)
    main(line)
    assert "the run does not fit" in capsys.readouterr().out
