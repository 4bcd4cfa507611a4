"""Experiments as users run them: in a process of their own, or within this one."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def program(experiment, args):
    """``python -m experiments.EXPERIMENT ARGS``, begun."""
    return subprocess.Popen(
        [sys.executable, "-m", f"experiments.{experiment}", *args],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, timeout):
    """Its status, output and complaints, once it has ended."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def status(experiment, args):
    """``python -m experiments.EXPERIMENT ARGS`` within this process: its status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["program", *args])
        patch.delitem(sys.modules, f"experiments.{experiment}", raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(f"experiments.{experiment}", run_name="__main__")
    return ended.value.code
