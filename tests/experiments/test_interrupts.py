"""Ctrl-C and the other ends of a job: the command that continues, and the status."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from experiments import garg_linear
from experiments._frame import interrupts
from experiments._frame.command_line import parse
from experiments._frame.program import run_program
from experiments._frame.run import Run
from experiments.garg_linear import Switches
from tests.experiments.test_garg_linear import run_folder
from tests.processes import ROOT


def test_the_first_interrupt_waits_and_the_second_does_not():
    before, said = signal.getsignal(signal.SIGINT), []

    def works():
        with interrupts.deferred(said.append) as interrupt:
            assert not interrupt.asked
            # A scheduler may send a signal twice, to a process and to its group.
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.asked == signal.SIGTERM
            assert len(said) == 1
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        works()
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "USR2", "XCPU"])
def test_every_way_to_end_a_job_is_told_as_ctrl_c_is(name, capsys):
    number = getattr(signal, f"SIG{name}")
    # The tests themselves may run under nohup.
    usual = signal.default_int_handler if name == "INT" else signal.SIG_DFL
    before = signal.signal(number, usual)
    try:
        with pytest.raises(SystemExit) as ended:
            run_program(lambda: signal.raise_signal(number))
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number
    by = "" if name == "INT" else f" by SIG{name}"
    assert capsys.readouterr().err == f"interrupted{by}; no run was begun\n"


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run_program(lambda: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "write",
    [
        "print",
        pytest.param(
            "__import__('experiments._frame.run', fromlist='run')._console(0).print",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_output_that_nobody_reads_ends_a_run_in_order(write):
    code = (
        f"from experiments._frame import program; write = {write}\n"
        "def main():\n"
        "    program.continue_with('this')\n"
        "    while True: write(1)\n"
        "program.run_program(main)"
    )
    read, written = os.pipe()
    victim = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=written,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(written)
    os.close(read)
    _, err = victim.communicate(timeout=60)
    assert victim.returncode == 128 + signal.SIGPIPE
    assert err == "interrupted by SIGPIPE; to continue: this\n"


def test_a_full_disk_is_one_line_with_the_command_that_continues(
    tmp_path, capsys, monkeypatch
):
    launch = parse(garg_linear.PRESETS, ["--output", str(tmp_path)])

    def full(path, text):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def fills():
        run = Run.begin(launch, "nothing")
        monkeypatch.setattr(Path, "write_text", full)
        run.write_json("result.json", {})

    with pytest.raises(SystemExit) as ended:
        run_program(fills)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [Errno 28] No space left on device: ")
    folder = run_folder(tmp_path)
    assert line.endswith(
        f"; to continue: python -m experiments.garg_linear --resume {folder}"
    )
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_a_platform_that_is_not_there_is_one_line(capsys, monkeypatch):
    def fails(*_):
        raise AssertionError

    with pytest.raises(AssertionError):
        run_program(fails)
    monkeypatch.setattr(jax, "devices", fails)
    with pytest.raises(SystemExit) as ended:
        run_program(jax.devices)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: JAX_PLATFORMS: expected a platform of this machine")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experiments.cot", "benchmarks.flow", "benchmarks"])
def test_no_command_shows_a_traceback_for_an_unknown_platform(name, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", name],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "abacus"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "error: JAX_PLATFORMS: expected a platform of this machine, got 'aba" in line


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
