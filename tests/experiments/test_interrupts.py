"""Ctrl-C: a checkpoint, the command that continues, and exit status 130."""

import signal

import pytest

from experiments import garg_linear
from experiments._frame import interrupts
from experiments._frame.command_line import parse
from experiments._frame.program import run_program
from experiments._frame.run import Run
from experiments.garg_linear.main import Switches
from tests.experiments.test_garg_linear import run_folder


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
