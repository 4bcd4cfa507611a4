"""Experiments as processes of their own, that can be killed."""

import os
import subprocess
import sys
from pathlib import Path

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
