"""The experiment that names algorithms end to end, and its refusals."""

import json

import pytest

from experiments import which_algorithm

_TINY = "steps 20 chunk-steps 10 checkpoint-every 10 width 8 num-heads 2 num-layers 1"
_TINY += " dim 2 num-points 5 optimizer.warmup-steps 5"


def tiny(part):
    words = _TINY.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for name, value in pairs for word in (f"--{part}.{name}", value)]


@pytest.mark.slow
def test_a_small_run_reports_every_model(tmp_path):
    words = [*tiny("gpt2"), *tiny("tasks"), "--gpt2.snapshots", "0", "20"]
    words += [
        "--layers",
        "1",
        "--linear-steps",
        "20",
        "--num-prompts",
        "64",
        "--output",
    ]
    result = which_algorithm.main([*words, str(tmp_path)])
    (folder,) = (tmp_path / "which_algorithm").iterdir()
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    assert {path.name for path in folder.glob("*.png")} == {"map.png", "along.png"}
    assert all(check["passed"] for check in result["checks"])
    first = result["models"][0]
    assert first["closest"] == "gradient descent (steps 3, step size 0.35)"
    assert first["share"] < 1e-20
    names = ["three steps by hand", "linear attention, L = 1", "transformer"]
    names += ["transformer, 4 tasks", "transformer, new tasks"]
    assert [row["model"] for row in result["models"]] == names
    along = result["along"]
    assert [row["model"] for row in along["training"]] == [0, 20]
    assert len(along["a linear probe"]) == len(along["its own read-out"]) == 2
    assert len(result["claims"]) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--num-prompts", "4"], "num_prompts: expected at least 8, got 4"),
        (["--gpt2.noise-var", "0"], "gpt2: expected a gpt2 with noise_var > 0"),
        (["--tasks.seeds", "1", "2"], "tasks.seeds: expected one seed"),
        (["--gpt2.snapshots"], "gpt2.snapshots: expected at least one step"),
        (["--layers", "0"], "layers: expected numbers of layers >= 1"),
        (["--pool-size", "0"], "pool_size: expected at least 1, got 0"),
    ],
)
def test_impossible_configs_are_refused_before_anything_is_written(
    change, message, refused
):
    refused(which_algorithm.main, change, message)
