"""Ctrl-C and the other ends of a job: the command that continues, and the status."""

import errno
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from experiments.frame import Run, experiment
from experiments.frame.command_line import parse
from experiments.frame.exits import deferred, run_program
from tests.experiments.tiny import PRESETS, Switches
from tests.processes import ROOT


def exit_of(main):
    with pytest.raises(SystemExit) as ended:
        run_program(main)
    return ended.value.code


def raising(error):
    def main():
        raise error

    return main


def test_the_first_interrupt_waits_and_the_second_does_not():
    before, said = signal.getsignal(signal.SIGINT), []

    def works():
        with deferred(said.append) as interrupt:
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
        assert exit_of(lambda: signal.raise_signal(number)) == 128 + number
    finally:
        signal.signal(number, before)
    by = "" if name == "INT" else f" by SIG{name}"
    assert capsys.readouterr().err == f"interrupted{by}; no run was begun\n"


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run_program(lambda: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("x")])
def test_errors_are_raised_whole_if_the_user_asks_for_it(monkeypatch, error):
    monkeypatch.setenv("ICLTHEORY_TRACEBACK", "1")
    with pytest.raises(type(error) if isinstance(error, ValueError) else error):
        run_program(raising(error))


@pytest.mark.parametrize(
    "write",
    [
        "print",
        pytest.param("run._Console(0).print", marks=pytest.mark.slow),
    ],
)
def test_output_that_nobody_reads_ends_a_run_in_order(write):
    code = (
        f"from experiments.frame import exits, run; write = {write}\n"
        "def main():\n"
        "    exits.continue_with('this')\n"
        "    while True: write(1)\n"
        "exits.run_program(main)"
    )
    read, written = os.pipe()
    line, pipes = [sys.executable, "-c", code], {"stderr": subprocess.PIPE}
    victim = subprocess.Popen(line, cwd=ROOT, stdout=written, text=True, **pipes)
    os.close(written)
    os.close(read)
    _, err = victim.communicate(timeout=60)
    assert victim.returncode == 128 + signal.SIGPIPE
    assert err == "interrupted by SIGPIPE; to continue: this\n"


def test_a_full_disk_is_one_line_with_the_command_that_continues(
    tmp_path, capsys, monkeypatch
):
    def full(path, text):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def fills():
        run = Run.begin(parse(PRESETS, ["--output", str(tmp_path)]))
        monkeypatch.setattr(Path, "write_text", full)
        run.write_json("result.json", {})

    assert exit_of(fills) == 2
    (line,) = capsys.readouterr().err.splitlines()
    (folder,) = (tmp_path / "tiny").iterdir()
    assert line.startswith("error: [Errno 28] No space left on device: ")
    command = f"python -m experiments.tiny --resume {folder}"
    assert line.endswith(f"; to continue: {command}")
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_a_platform_that_is_not_there_is_one_line(capsys, monkeypatch):
    with pytest.raises(AssertionError):
        run_program(raising(AssertionError))
    monkeypatch.setattr(jax, "devices", raising(AssertionError))
    assert exit_of(jax.devices) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: JAX_PLATFORMS: expected a platform of this machine")


@pytest.mark.slow
def test_no_command_shows_a_traceback_for_an_unknown_platform():
    line = [sys.executable, "-m", "experiments.cot"]
    env = {**os.environ, "JAX_PLATFORMS": "abacus"}
    ended = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "error: JAX_PLATFORMS: expected a platform of this machine, got 'aba" in line


def test_the_command_that_continues_has_the_switches(tmp_path, capsys):
    args = ["--loud", "--error", "1", "--quiet", "--output", str(tmp_path)]

    def stopped():
        Run.begin(parse(PRESETS, args, flags=Switches()))
        raise KeyboardInterrupt

    assert exit_of(stopped) == 130
    (folder,) = (tmp_path / "tiny").iterdir()
    out, err = capsys.readouterr()
    assert err == (
        "interrupted; to continue: python -m experiments.tiny --resume "
        f"{folder} --error 1.0 --loud --quiet\n"
    )
    assert out == ""


def test_an_interrupted_sweep_names_the_runs_that_are_left(tmp_path, capsys):
    @experiment(PRESETS)
    def main(config, run):
        raise KeyboardInterrupt

    args = ["--quiet", "--output", str(tmp_path), "--sweep", "prompts=7,9"]
    assert exit_of(lambda: main(args)) == 130
    told = capsys.readouterr().err
    assert told.endswith(
        f"; then python -m experiments.tiny {shlex.join(args[:3])} --prompts 9\n"
    )
