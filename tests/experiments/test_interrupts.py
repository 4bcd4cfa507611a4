"""Ctrl-C: a checkpoint, the command that continues, and exit status 130."""

import json
import shlex
import signal
import time

import jax
import numpy as np
import pytest

from experiments import garg_linear
from experiments._frame import interrupts
from experiments._frame.command_line import parse
from experiments._frame.program import run_program
from experiments._frame.run import Run
from experiments.garg_linear.main import Switches
from tests import processes
from tests.experiments.test_garg_linear import arguments, final_state, run_folder


def test_the_first_interrupt_waits_and_the_second_does_not():
    before, said = signal.getsignal(signal.SIGINT), []

    def works():
        with interrupts.deferred(said.append) as interrupt:
            assert not interrupt.asked
            signal.raise_signal(signal.SIGINT)
            assert interrupt.asked
            assert len(said) == 1
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        works()
    assert signal.getsignal(signal.SIGINT) is before


def test_the_command_that_continues_has_the_switches(tmp_path, capsys):
    args = ["--eval-shifts", "--devices", "1", "--quiet", "--output", str(tmp_path)]
    launch = parse(garg_linear.PRESETS, args, flags=Switches())

    def stopped():
        Run.begin(launch, "nothing")
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run_program(stopped)
    assert ended.value.code == 130
    folder = run_folder(tmp_path)
    out, err = capsys.readouterr()
    assert err == (
        "interrupted; to continue: python -m experiments.garg_linear --resume "
        f"{folder} --devices 1 --eval-shifts --quiet\n"
    )
    assert out == ""


@pytest.mark.slow
def test_interrupted_in_training_and_continued_it_ends_bit_for_bit_the_same(tmp_path):
    args = ["--checkpoint-every", "100000", "--optimizer.schedule", "constant"]
    victim = processes.program("garg_linear", [*arguments(tmp_path / "cut"), *args])
    deadline = time.monotonic() + 240
    while not list((tmp_path / "cut").glob("*/*/metrics.jsonl")):
        assert victim.poll() is None, processes.finish(victim, 60)
        assert time.monotonic() < deadline
        time.sleep(0.005)
    while not (run_folder(tmp_path / "cut") / "metrics.jsonl").read_text():
        time.sleep(0.005)
    victim.send_signal(signal.SIGINT)
    status, out, err = processes.finish(victim, timeout=300)
    folder = run_folder(tmp_path / "cut")
    assert status == 130, err
    assert "stopping after this chunk" in out
    *_, line = err.splitlines()
    told, _, command = line.partition(": ")
    assert told == "interrupted; to continue"
    python, dash, module, *words = shlex.split(command)
    assert (python, dash, module) == ("python", "-m", "experiments.garg_linear")
    assert words == ["--resume", str(folder)]
    steps = len((folder / "metrics.jsonl").read_text().splitlines()) * 5
    (checkpoint,) = (folder / "checkpoints").iterdir()
    assert checkpoint.name == f"step_{steps:08d}"
    assert 0 < steps < 120
    assert not (folder / "result.json").exists()

    status, out, err = processes.finish(processes.program("garg_linear", words), 300)
    assert status == 0, err
    assert f"resuming at step {steps}" in out
    with jax.enable_x64(False):
        garg_linear.main([*arguments(tmp_path / "whole"), *args])
    whole = run_folder(tmp_path / "whole")
    (name, state), (other_name, other) = map(final_state, (folder, whole))
    assert name == other_name
    jax.tree.map(np.testing.assert_array_equal, state, other)
    curves = [
        json.loads((f / "result.json").read_text())["curves"] for f in (folder, whole)
    ]
    assert curves[0] == curves[1]
