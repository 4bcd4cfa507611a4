"""Several devices and several processes give the losses of one device."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from icltheory.training import data_mesh, initialize_distributed

PROGRAM = [sys.executable, "-m", "tests.training.parallel_run"]


def launch(devices, *args):
    flags = f"{os.environ['XLA_FLAGS']} "  # those of every test, for quick compiling
    flags += f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [*PROGRAM, *map(str, args)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_devices_and_processes_give_the_losses_of_one_device(tmp_path):
    one = finish(launch(1, tmp_path / "one"))
    eight = finish(launch(8, tmp_path / "eight"))
    address = f"127.0.0.1:{free_port()}"
    pair = [launch(2, tmp_path / "two", address, 2, rank) for rank in (0, 1)]
    two = [finish(process) for process in pair]
    assert (one["devices"], eight["devices"]) == (1, 8)
    assert two[0] == two[1]
    assert two[0]["devices"] == 4
    for other in (eight, two[0]):
        # The same batches, summed in another order in float32.
        np.testing.assert_allclose(other["losses"], one["losses"], rtol=2e-5)


def test_a_mesh_of_more_devices_than_there_are_is_refused():
    with pytest.raises(ValueError, match="num_devices: expected 1 to"):
        data_mesh(10_000)


def test_a_process_out_of_range_is_refused():
    with pytest.raises(ValueError, match="process_id: expected 0 to 1, got 2"):
        initialize_distributed("127.0.0.1:1", 2, 2)
