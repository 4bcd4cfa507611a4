"""``--resume RUN --steps MORE`` of experiments: which it extends, and to what."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import garg_linear, implicit_noise, pattern_layers, small_lm
from experiments.frame import Run
from experiments.frame.command_line import parse
from experiments.shared.training import GPT2_CPU
from icltheory.training import OptimizerConfig
from tests.experiments.test_garg_linear import arguments, final_state, run_folder

CONSTANT = ["--optimizer.schedule", "constant"]


def stored(tmp_path, experiment, config):
    """The folder of a run with this config."""
    name = experiment.__name__.rpartition(".")[2]
    return Run.create(tmp_path, name, "cpu", config).folder


def refusal(folder, experiment, *args):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse(experiment.PRESETS, ["--resume", str(folder), *args])
    (line,) = str(caught.value).splitlines()
    return line


def test_other_shares_of_the_run_are_refused_too(tmp_path):
    folder = stored(tmp_path, small_lm, small_lm.PRESETS["cpu"])
    more = str(small_lm.PRESETS["cpu"].steps * 2)
    assert "the stages of the curriculum are shares" in refusal(
        folder, small_lm, "--steps", more
    )
    constant = dataclasses.replace(GPT2_CPU, optimizer=OptimizerConfig())
    config = dataclasses.replace(implicit_noise.PRESETS["cpu"], gpt2=constant)
    folder = stored(tmp_path, implicit_noise, config)
    assert "gpt2.steps: expected 3500" in (
        line := refusal(folder, implicit_noise, "--gpt2.steps", "7000")
    )
    assert "parts names the evaluated steps as shares" in line
    folder = stored(tmp_path, pattern_layers, pattern_layers.PRESETS["cpu"])
    assert "this training cannot be extended" in refusal(
        folder, pattern_layers, "--layers.steps", "9000"
    )


@pytest.mark.slow
def test_an_extended_run_equals_one_run_of_all_steps_bit_for_bit(tmp_path):
    """40 steps and 30 more of two seeds, against 70: weights, metrics and results."""
    seeds = ["--seeds", "3", "4"]
    sizes = {"checkpoint-every": 20, "chunk-steps": 10, "eval-prompts": 16}
    with jax.enable_x64(False):
        parts = [*arguments(tmp_path / "a", steps=40, **sizes), *CONSTANT, *seeds]
        garg_linear.main(parts)
        folder = run_folder(tmp_path / "a")
        found = garg_linear.main(["--resume", str(folder), "--steps", "70"])
        whole = [*arguments(tmp_path / "b", steps=70, **sizes), *CONSTANT, *seeds]
        expected = garg_linear.main([*whole, "--optimizer.warmup-steps", "5"])
    assert set(found["per_seed"]) == {"3", "4"}
    both = np.mean(list(found["per_seed"].values()), axis=0)
    np.testing.assert_allclose(both, found["curves"]["Transformer"]["mean"], rtol=1e-6)
    other = run_folder(tmp_path / "b")
    for key in found.keys() - {"timing"}:
        assert found[key] == expected[key], key
    (name, state), (other_name, other_state) = map(final_state, (folder, other))
    assert name == other_name == "step_00000070"
    jax.tree.map(np.testing.assert_array_equal, state, other_state)
    # The error curves along training are measured at shares of the run asked for.
    assert losses(folder) == losses(other)
    configs = [json.loads((f / "config.json").read_text()) for f in (folder, other)]
    assert configs[0]["config"] == configs[1]["config"]


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{**json.loads(line), "errors": None} for line in lines]
