"""Several devices and several processes give the numbers of one device."""

import re
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.training import devices, initialize_distributed
from tests.several_devices import finish, finish_pair, free_port, launch

PROGRAM = "tests.training.parallel_run"


def task_of_slurm(rank, port):
    """What srun tells the second of two tasks, one on each of two hosts."""
    return {
        "SLURM_JOB_ID": "1234",
        "SLURM_STEP_NODELIST": "localhost,localhost",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": "0",
        "JAX_COORDINATOR_PORT": str(port),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Reports of two processes x 4 devices, one of which died, and of one x 8."""
    folder, port = tmp_path_factory.mktemp("parallel"), free_port()
    pair = (
        launch(PROGRAM, 4, "two", folder / "two", **task_of_slurm(rank, port))
        for rank in (0, 1)
    )
    first, second = finish_pair(*pair)
    alone = finish(launch(PROGRAM, 8, "one", folder / "one", folder / "two"))
    assert alone[0] == 0, alone[2]
    return first, second, alone[1]


# The same batches, summed in another order in float32: a sum of the 112 squares of a
# batch may differ by 112 roundings of 6e-8, and Adam's steps pass it on.
RTOL = 2e-5


@pytest.mark.slow
def test_a_batch_over_eight_devices_gives_the_losses_of_one(runs):
    report = runs[2]
    assert report["devices"] == 8
    for name in ("parts", "one to eight", "two processes to one"):
        np.testing.assert_allclose(report[name], report["one"], rtol=RTOL, err_msg=name)


@pytest.mark.slow
def test_two_processes_of_slurm_are_one_program(runs):
    (_, first, _), (_, second, _), report = runs
    assert first == second
    assert (first["devices"], first["processes"]) == (8, 2)
    np.testing.assert_allclose(first["losses"], report["one"][:4], rtol=RTOL)
    both = np.asarray(report["ensemble None"]["losses"])[:, :2]
    np.testing.assert_allclose(first["ensemble"]["losses"], both, rtol=RTOL)


@pytest.mark.slow
def test_a_checkpoint_goes_from_eight_devices_to_one_bit_for_bit(runs):
    assert runs[2]["eight to one"] == 0.0


@pytest.mark.slow
def test_members_of_an_ensemble_never_talk(runs):
    report = runs[2]
    whole = report["ensemble None"]["losses"]
    assert report["ensemble 8"]["collectives"] == 0
    assert report["ensemble 2"]["collectives"] > 0  # the sums over the batch
    for parts in (8, 2):
        split = report[f"ensemble {parts}"]["losses"]
        np.testing.assert_allclose(split, whole, rtol=RTOL)


@pytest.mark.slow
def test_a_process_without_a_launcher_is_told_in_one_line(runs):
    said = runs[2]["no launcher"]
    assert "coordinator: expected the host:port of process 0 or a launcher" in said
    assert "\n" not in said


@pytest.mark.slow
def test_where_a_process_dies_the_others_end_and_say_so(runs):
    (code, _, err), (other, _, _), _ = runs
    assert other == 1
    assert code not in (0, -signal.SIGKILL)
    assert err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: devices.device_mesh(10_000), "num_devices: expected 1 to"),
        (
            lambda: devices.device_mesh(1, models=2),
            "models: expected a divisor of 1 devices",
        ),
        (
            lambda: devices.shard_members({"w": jnp.ones((3, 2))}, stand_in(2, 1)),
            "models: expected a divisor of 3 members, got 2",
        ),
        (
            lambda: devices.check_batch(10, 3, None),
            "accumulation: expected a divisor of batch_size 10, got 3",
        ),
        (
            lambda: devices.check_batch(12, 2, stand_in(1, 4)),
            "batch_size: expected a multiple of 4 devices x 2 parts, got 12",
        ),
        (
            lambda: devices.check_batch(12, 1, stand_in(4, 8)),
            "batch_size: expected a multiple of 8 devices x 1 parts, got 12",
        ),
        (
            lambda: initialize_distributed("127.0.0.1:1", 2, 2),
            "process_id: expected 0 to 1, got 2",
        ),
        (
            lambda: initialize_distributed(None, 2, 0),
            "coordinator: expected the host:port of process 0, got None",
        ),
        (
            lambda: initialize_distributed("127.0.0.1:1", 2),
            "process_id, num_processes: expected both with a coordinator",
        ),
    ],
)
def test_what_does_not_fit_the_devices_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_on_one_device_all_stays_as_it_is():
    mesh = devices.device_mesh(1)
    assert (mesh.size, dict(mesh.shape)) == (1, {"models": 1, "data": 1})
    values = np.arange(6.0).reshape(3, 2)
    tree = {"x": jnp.asarray(values)}
    for place in (devices.shard_batch, devices.replicate, devices.shard_members):
        placed = place(tree, mesh)
        np.testing.assert_array_equal(devices.to_host(placed)["x"], values)
        assert place(tree, None) is tree


def stand_in(models, data):
    """A mesh of so many devices that nothing is placed on."""
    again = np.full((models, data), jax.devices()[0])
    return jax.sharding.Mesh(again, ("models", "data"))


@pytest.mark.parametrize(
    ("tasks", "gpus", "expected"),
    [("1(x2)", "8", list(range(8))), ("8(x2)", "8", None), ("1(x2),2", "8", None)],
)
def test_a_task_alone_on_its_host_takes_all_gpus(monkeypatch, tasks, gpus, expected):
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", gpus)
    assert devices._whole_host() == expected
