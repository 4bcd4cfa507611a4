"""Sending experiments to a cluster: what is asked of it, and what is refused."""

import json
import sys
import types
from pathlib import Path

import pytest

from experiments import garg_linear
from experiments._frame import command_line, processes, slurm

TINY = {
    "dim": 2,
    "num-points": 5,
    "width": 8,
    "num-layers": 1,
    "num-heads": 2,
    "steps": 20,
    "chunk-steps": 10,
    "eval-prompts": 64,
    "optimizer.warmup-steps": 2,
    "curriculum.dims.start": 2,
    "curriculum.dims.end": 2,
    "curriculum.points.start": 5,
    "curriculum.points.end": 5,
}
ARGS = [part for name, value in TINY.items() for part in (f"--{name}", str(value))]
CLUSTER = ["--slurm.partition", "gpu", "--slurm.time", "1:30:00"]


class Executor:
    """A stand-in for submitit's executors that keeps what it is given."""

    def __init__(self, folder, max_num_timeout):
        type(self).folder, type(self).requeues = Path(folder), max_num_timeout

    def update_parameters(self, **given):
        type(self).given = given

    def submit(self, job):
        type(self).job = job
        self.folder.mkdir(parents=True)
        paths = types.SimpleNamespace(stdout=self.folder / "77_0_log.out")
        return types.SimpleNamespace(job_id="77", paths=paths)


@pytest.fixture
def cluster(monkeypatch):
    stand_in = types.SimpleNamespace(SlurmExecutor=Executor, LocalExecutor=Executor)
    monkeypatch.setitem(sys.modules, "submitit", stand_in)
    monkeypatch.setattr(slurm, "module_run", lambda: "experiments.garg_linear")
    return Executor


def parse(args, parallel=True):
    return command_line.parse(
        garg_linear.PRESETS,
        args,
        flags=processes.Processes() if parallel else None,
    )


def where(rank=0, tasks=1, job="1234"):
    """What submitit tells a process of a job."""
    hosts = [f"node{n}" for n in range(tasks)]
    return types.SimpleNamespace(
        num_tasks=tasks, global_rank=rank, hostnames=hosts, job_id=job
    )


def test_a_line_is_submitted_less_what_is_said_to_the_cluster(
    cluster, tmp_path, capsys
):
    line = ["--steps", "30", "--output", str(tmp_path), "--preset", "gpu"]
    more = ["--slurm.nodes", "2", "--slurm.gpus-per-node", "8", "--slurm.account", "a"]
    with pytest.raises(SystemExit) as stop:
        parse([*CLUSTER, *line, *more])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "job 77: garg_linear on 2 x 8 GPUs" in printed
    assert str(cluster.folder) in printed
    assert cluster.folder.parent == tmp_path / "slurm"
    assert cluster.job.args == tuple(line)
    assert cluster.given == {
        "job_name": "garg_linear",
        "partition": "gpu",
        "nodes": 2,
        "gpus_per_node": 8,
        "tasks_per_node": 1,
        "time": 90,
        "account": "a",
    }
    asked = json.loads((cluster.folder / "request.json").read_text())
    assert (asked["nodes"], asked["args"]) == (2, line)


def test_each_host_runs_one_process_that_knows_the_others(tmp_path):
    job = slurm.Job("experiments.x", ("--a", "1"), tmp_path, "python")
    alone = ["python", "-m", "experiments.x", "--a", "1", "--output", str(tmp_path)]
    assert job.command(where()) == alone
    second = job.command(where(1, 2, "5000"))
    assert second == [
        *alone,
        *("--coordinator", f"node0:{61440 + 5000 % 4096}"),
        *("--num-processes", "2", "--process-id", "1"),
    ]


def test_a_requeued_job_goes_on_with_the_run_that_it_began(tmp_path):
    job = slurm.Job("experiments.x", (), tmp_path, "python")
    run = tmp_path / "x" / "stamp"
    run.mkdir(parents=True)
    assert "--resume" not in job.command(where())  # it died before it wrote anything
    (run / "config.json").write_text("{}")
    assert job.command(where())[-2:] == ["--resume", str(run)]
    asked = slurm.Job("experiments.x", ("--resume", "mine"), tmp_path, "python")
    assert asked.command(where()) == ["python", "-m", "experiments.x", *asked.args]


@pytest.mark.parametrize(
    ("time", "expected"),
    [("90", 90), ("1:30", 2), ("1:30:00", 90), ("2-0", 2880), ("1-2:30", 1590)],
)
def test_limits_are_written_as_slurm_has_them(time, expected):
    assert slurm.minutes(time) == expected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--slurm.nodes", "0"], "slurm.nodes: expected a positive number, got 0"),
        (["--slurm.time", "soon"], "slurm.time: expected M, H:M:S or D-H:M:S, got so"),
        (["--slurm.nodes", "2"], "slurm.time: expected a limit such as 2:00:00, got N"),
        (
            ["--slurm.local", "--slurm.nodes", "2"],
            "slurm.nodes: expected 1 with slurm.",
        ),
        (
            [*CLUSTER, "--preset", "big"],
            "preset: expected one of cpu, gpu, paper,",
        ),
        ([*CLUSTER, "--stps", "3"], "stps: unknown option; did you mean --steps"),
    ],
)
def test_mistakes_are_told_before_anything_is_queued(cluster, args, message):
    cluster.job = None
    with pytest.raises(ValueError, match=message) as caught:
        parse(args)
    assert "\n" not in str(caught.value)
    assert cluster.job is None


def test_an_experiment_of_one_process_is_refused_two_hosts(cluster, monkeypatch):
    with pytest.raises(
        ValueError, match="slurm: expected one host and one task, got 2"
    ):
        parse([*CLUSTER, "--slurm.nodes", "2"], parallel=False)
    for name, value in (("STEP_NODELIST", "a"), ("PROCID", "0"), ("NTASKS", "3")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    with pytest.raises(
        ValueError, match="slurm: expected one host and one task, got 3"
    ):
        parse([], parallel=False)


def test_tasks_of_srun_join_each_other(monkeypatch):
    joined = []
    monkeypatch.setattr(
        processes.training, "initialize_distributed", lambda *a: joined.append(a)
    )
    processes.Processes().begin()
    assert joined == []
    for name, value in (("STEP_NODELIST", "a"), ("PROCID", "0"), ("NTASKS", "2")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    processes.Processes().begin()
    told = ["--coordinator", "a:1", "--num-processes", "2", "--process-id", "0"]
    parse([*told, "--preset", "cpu"])
    assert joined == [(), ("a:1", 2, 0)]


def test_without_submitit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    monkeypatch.setattr(slurm, "module_run", lambda: "experiments.garg_linear")
    with pytest.raises(ValueError, match=r"submitit is not installed; .*\[slurm\]"):
        parse(CLUSTER)


def test_without_slurm_there_is_one_line(monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(slurm, "module_run", lambda: "experiments.garg_linear")
    with pytest.raises(ValueError, match="slurm: .*srun"):
        parse(CLUSTER)


@pytest.mark.slow
def test_a_local_job_trains(tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    asked = slurm.request(slurm.Request(local=True), ["--slurm.local"])
    executor = submitit.LocalExecutor(tmp_path)
    executor.update_parameters(**slurm.parameters(asked, "garg_linear"))
    job = slurm.Job("experiments.garg_linear", ("--preset", "cpu", *ARGS), tmp_path)
    submitted = executor.submit(job)
    submitted.result()
    (run,) = (tmp_path / "garg_linear").iterdir()
    assert (run / "result.json").is_file()
    assert job.begun() == run
    assert isinstance(job.checkpoint(), submitit.helpers.DelayedSubmission)


def test_only_a_module_can_be_sent():
    with pytest.raises(
        ValueError, match="slurm: expected a start by python -m experiments.NAME"
    ):
        slurm.module_run()
