"""Sending experiments to a cluster: what is asked of it, and what is refused."""

import contextlib
import sys
import types
from pathlib import Path

import pytest

from experiments import garg_linear
from experiments.frame import Processes, command_line, slurm
from tests.experiments.test_garg_linear import arguments

CLUSTER = ["--slurm.partition", "gpu", "--slurm.time", "1:30:00"]


class Executor:
    """A stand-in for submitit's executor that keeps what it is given."""

    def __init__(self, folder, cluster, slurm_max_num_timeout):
        type(self).folder, type(self).cluster = Path(folder), cluster

    def update_parameters(self, **given):
        type(self).given = {k: v for k, v in given.items() if v is not None}

    @contextlib.contextmanager
    def batch(self):
        type(self).batches += 1
        yield

    def submit(self, job):
        type(self).job = job
        type(self).jobs.append(job)
        paths = types.SimpleNamespace(stdout=self.folder / "77_0_log.out")
        return types.SimpleNamespace(job_id="77", paths=paths)


@pytest.fixture
def cluster(monkeypatch):
    stand_in = types.SimpleNamespace(AutoExecutor=Executor)
    monkeypatch.setitem(sys.modules, "submitit", stand_in)
    Executor.job, Executor.jobs, Executor.batches = None, [], 0
    return Executor


@pytest.fixture
def by_srun(monkeypatch):
    for name, value in (("STEP_NODELIST", "a"), ("PROCID", "0"), ("NTASKS", "3")):
        monkeypatch.setenv(f"SLURM_{name}", value)


def parse(args, parallel=True):
    flags = Processes() if parallel else None
    return command_line.parse(garg_linear.PRESETS, args, flags=flags)


def test_a_line_is_submitted_less_what_is_said_to_the_cluster(
    cluster, tmp_path, capsys
):
    line = ["--steps", "30", "--output", str(tmp_path), "--preset", "gpu"]
    more = ["--slurm.nodes", "2", "--slurm.gpus-per-node=8", "--slurm.account", "a"]
    with pytest.raises(SystemExit) as stop:
        parse([*CLUSTER, *line, *more])
    assert stop.value.code == 0
    job, logs = capsys.readouterr().out.splitlines()
    made = f"its run is made in {cluster.folder}"
    assert job == f"job 77: garg_linear on 2 x 8 GPUs; {made}"
    assert logs == f"logs: {cluster.folder / '77_0_log.out'}"
    assert cluster.folder.parent == tmp_path / "slurm"
    assert cluster.job == slurm.Job("garg_linear", tuple(line), cluster.folder)
    assert cluster.cluster == "slurm"
    assert cluster.given == {
        "name": "garg_linear",
        "slurm_partition": "gpu",
        "nodes": 2,
        "gpus_per_node": 8,
        "tasks_per_node": 1,
        "timeout_min": 90,
        "slurm_account": "a",
    }


def test_a_sweep_is_one_array_whose_runs_are_apart(cluster, tmp_path, capsys):
    line = ["--sweep", "num_layers=1,2", "--output", str(tmp_path)]
    with pytest.raises(SystemExit) as stop:
        garg_linear.main([*CLUSTER, *line])
    assert stop.value.code == 0
    assert cluster.batches == 1
    words = [("--output", str(tmp_path), "--num_layers", value) for value in "12"]
    assert [job.args for job in cluster.jobs] == words
    assert [job.output for job in cluster.jobs] == [cluster.folder / i for i in "01"]
    assert len(capsys.readouterr().out.splitlines()) == 4
    cluster.jobs.clear()
    with pytest.raises(ValueError, match="^--num-layers: expected a number, got none"):
        garg_linear.main([*CLUSTER, "--sweep", "num_layers=2,none"])
    assert not cluster.jobs


def test_a_requeued_job_goes_on_with_the_run_that_it_began(tmp_path):
    job, run = slurm.Job("x", ("--a", "1"), tmp_path), tmp_path / "x" / "stamp"
    run.mkdir(parents=True)
    line = [sys.executable, "-m", "experiments.x", "--a", "1"]
    line += ["--output", str(tmp_path)]
    assert job.command() == line  # it died before it wrote anything
    (run / "config.json").write_text("{}")
    assert job.command() == [*line, "--resume", str(run)]
    asked = slurm.Job("x", ("--resume", "mine"), tmp_path)
    assert asked.command()[3:] == ["--resume", "mine"]


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
        (["--slurm.local", "--slurm.nodes", "2"], "slurm.nodes: expected 1 with slurm"),
        ([*CLUSTER, "--preset", "big"], "preset: expected one of cpu, gpu, paper,"),
        ([*CLUSTER, "--stps", "3"], "stps: unknown option; did you mean --steps"),
    ],
)
def test_mistakes_are_told_before_anything_is_queued(cluster, args, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(args)
    assert "\n" not in str(caught.value)
    assert cluster.job is None


def test_an_experiment_of_one_process_is_refused_several(cluster, by_srun):
    for line, count in (([*CLUSTER, "--slurm.nodes", "2"], 2), ([], 3)):
        with pytest.raises(ValueError, match=f"one host and one task, got {count}"):
            parse(line, parallel=False)


def test_tasks_of_srun_join_each_other(monkeypatch, request):
    joined, name = [], "icltheory.training.initialize_distributed"
    monkeypatch.setattr(name, lambda *a: joined.append(a))
    Processes().begin()
    assert joined == []
    request.getfixturevalue("by_srun")
    Processes().begin()
    told = ["--coordinator", "a:1", "--num-processes", "2", "--process-id", "0"]
    parse([*told, "--preset", "cpu"])
    assert joined == [(), ("a:1", 2, 0)]
    # The further lines of a sweep are read in processes that have joined.
    monkeypatch.setattr("jax.distributed.is_initialized", lambda: True)
    parse([*told, "--preset", "cpu"])
    assert len(joined) == 2


def test_without_submitit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"submitit is not installed; .*\[slurm\]"):
        parse(CLUSTER)


def test_without_slurm_there_is_one_line(monkeypatch, tmp_path):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="slurm: .*srun"):
        parse([*CLUSTER, "--output", str(tmp_path)])


@pytest.mark.slow
def test_a_local_job_trains(tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    made, submit = [], submitit.AutoExecutor.submit
    keep = lambda self, job: made.append(submit(self, job)) or made[0]  # noqa: E731
    monkeypatch.setattr(submitit.AutoExecutor, "submit", keep)
    line = ["--slurm.local", "--slurm.mem-gb", "2", *arguments(tmp_path, steps=20)]
    with pytest.raises(SystemExit):
        parse(line)
    made[0].result()
    (result,) = tmp_path.glob("slurm/*/garg_linear/*/result.json")
    job = slurm.Job("garg_linear", (), result.parents[2])
    assert job.command()[-2:] == ["--resume", str(result.parent)]
    assert isinstance(job.checkpoint(), submitit.helpers.DelayedSubmission)
