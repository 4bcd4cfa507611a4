"""Programs of tests that need several devices or processes, started as their own."""

import json
import os
import socket
import subprocess
import sys


def launch(module, devices, *args, **environment):
    """Starts a module with so many devices of the host; it prints JSON."""
    flags = os.environ.get("XLA_FLAGS", "")  # those of every test, to compile quickly
    flags += f" --xla_force_host_platform_device_count={devices}"
    # LAPACK on many host devices waits for threads of one pool, which must be ample.
    environment |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "NPROC": "64"}
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Exit status, the last line as JSON, and what was said on the error stream."""
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert out, err
    return process.returncode, json.loads(out.splitlines()[-1]), err


def finish_pair(first, second):
    """Both processes of one program; none is left behind where one fails."""
    try:
        last, front = finish(second), finish(first)
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    return front, last


def free_port():
    """A port on which the first process can be reached."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
