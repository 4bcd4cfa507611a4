"""Submits a command to a Slurm cluster by submitit, with one process per host.

``--slurm.nodes 2 --slurm.time 60 OPTIONS`` submits what the line without the
``--slurm`` options would run. A job that is requeued continues from its checkpoint.
"""

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from experiments.frame.config import expect

_PREFIX = "--slurm."


@dataclasses.dataclass(frozen=True)
class Request:
    """Resources to request from Slurm; ``None`` selects the cluster's default."""

    partition: str | None = None  # Where to queue.
    nodes: int = 1  # Hosts; each runs one process, with all its devices.
    gpus_per_node: int | None = None  # GPUs of each host.
    cpus_per_task: int | None = None  # Cores of each host.
    mem_gb: int | None = None  # Memory of each host.
    # Limit as Slurm writes it: minutes, H:M:S or D-H:M:S; required unless the job
    # is local.
    time: str | None = None
    account: str | None = None  # Whom to charge.
    qos: str | None = None  # Quality of service.
    constraint: str | None = None  # Features of the hosts, such as ``h200``.
    requeues: int = 3  # How often a job whose time is up is queued again.
    local: bool = False  # Run on this machine instead, as a test.


def request(asked: Request, argv: list[str]) -> Request | None:
    """Returns the checked request of a command line; ``None`` without Slurm options."""
    if not any(word.startswith(_PREFIX) for word in argv):
        return None
    for name, value in dataclasses.asdict(asked).items():
        least = int(name == "nodes")
        wanted = "a positive number" if least else "0 or more"
        expect(type(value) is not int or value >= least, f"slurm.{name}", wanted, value)
    limited, wanted = asked.time is not None or asked.local, "a limit such as 2:00:00"
    expect(limited, "slurm.time", wanted, "None; pass --slurm.time")
    alone = not asked.local or asked.nodes == 1
    expect(alone, "slurm.nodes", "1 with slurm.local", asked.nodes)
    minutes(asked.time or "1")
    return asked


def check_processes(job: Request | None, several: bool) -> None:
    """Raises if a job or ``srun`` has several processes, and the experiment has one."""
    processes = tasks_of_srun() if job is None else job.nodes
    got = f"{processes}: this experiment runs in one process"
    expect(several or processes <= 1, "slurm", "one host and one task", got)


def tasks_of_srun() -> int:
    """Returns the task count of the ``srun`` that started this process, else 1."""
    by_srun = {"SLURM_STEP_NODELIST", "SLURM_PROCID"} <= set(os.environ)
    return int(os.environ.get("SLURM_NTASKS", "1")) if by_srun else 1


def minutes(time: str) -> int:
    """Converts a Slurm time limit to minutes, rounded up."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    expect(found is not None, "slurm.time", "M, H:M:S or D-H:M:S", time)
    assert found is not None
    days, first, second, third = (int(part or 0) for part in found.groups())
    # With days or three numbers, Slurm reads the first as hours, else as minutes.
    if found[1] is None and found[4] is None:
        first, second, third = 0, first, second
    seconds = ((days * 24 + first) * 60 + second) * 60 + third
    return max(1, -(-seconds // 60))


@dataclasses.dataclass(frozen=True)
class Job:
    """What submitit calls once on each host; the run is made below ``output``."""

    name: str
    args: tuple[str, ...]
    output: Path

    def __call__(self) -> None:
        """Runs the experiment, or continues the run of an earlier attempt."""
        status = subprocess.run(self.command()).returncode
        if status:
            raise RuntimeError(f"{self.name}: expected status 0, got {status}")

    def command(self) -> list[str]:
        """Returns the command of a process; those of several hosts find each other."""
        command = [sys.executable, "-m", f"experiments.{self.name}", *self.args]
        if "--resume" in self.args:
            return command
        # No host creates the run before all hosts have looked for it, since they join
        # each other first.
        begun = sorted(self.output.glob("*/*/config.json"))[:1]
        resume = [word for path in begun for word in ("--resume", str(path.parent))]
        return [*command, "--output", str(self.output), *resume]

    def checkpoint(self) -> Any:
        """Returns what submitit requeues after a time limit or a preemption."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def submit(asked: Request, name: str, lines: list[list[str]], output: Path) -> None:
    """Submits an experiment, of several command lines as one array.

    Prints the jobs, and where their logs and their runs are.
    """
    try:
        import submitit
    except ImportError as error:
        raise ValueError(
            "slurm: the package submitit is not installed; run "
            "pip install 'icltheory[slurm]'"
        ) from error
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    folder = (output / "slurm" / f"{name}-{stamp}").absolute()
    cluster, requeues = "local" if asked.local else "slurm", asked.requeues
    try:
        make = submitit.AutoExecutor
        executor = make(folder, cluster, slurm_max_num_timeout=requeues)
    except RuntimeError as error:
        raise ValueError(f"slurm: {error}") from error
    executor.update_parameters(
        name=name,
        timeout_min=minutes(asked.time or "60"),
        tasks_per_node=1,
        nodes=asked.nodes,
        gpus_per_node=asked.gpus_per_node,
        cpus_per_task=asked.cpus_per_task,
        mem_gb=asked.mem_gb,
        slurm_partition=asked.partition,
        slurm_account=asked.account,
        slurm_qos=asked.qos,
        slurm_constraint=asked.constraint,
    )
    several, jobs = len(lines) > 1, []
    with executor.batch() if several else contextlib.nullcontext():
        for i, line in enumerate(lines):
            args = without_options(line)
            inside = folder / str(i) if several else folder
            jobs.append((executor.submit(Job(name, args, inside)), args, inside))
    hosts = f"{asked.nodes} x {asked.gpus_per_node or 0} GPUs"
    for job, args, inside in jobs:
        made = " (resumed)" if "--resume" in args else f"; its run is made in {inside}"
        print(f"job {job.job_id}: {name} on {hosts}{made}\nlogs: {job.paths.stdout}")


def without_options(argv: list[str]) -> tuple[str, ...]:
    """Returns a command line without its ``--slurm`` options."""
    rest, words = [], iter(argv)
    for word in words:
        if not word.startswith(_PREFIX):
            rest.append(word)
        elif "=" not in word and word != f"{_PREFIX}local":
            next(words, None)  # skips its value
    return tuple(rest)
