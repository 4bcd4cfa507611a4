"""Submits a command to a Slurm cluster by submitit, with one process per host.

``python -m experiments.NAME --slurm.nodes 2 --slurm.gpus-per-node 8 --slurm.time 60
OPTIONS`` submits what the same line without the ``--slurm`` options would run, prints
the job and the folder, and ends. A job that is requeued, because its time was up, it
was preempted, or a host died, goes on from the last checkpoint.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

_PREFIX = "--slurm."
# Ports of the coordinator, chosen by the job's number as JAX does under Slurm.
_FIRST_PORT, _NUM_PORTS = 61440, 4096


@dataclasses.dataclass(frozen=True)
class Request:
    """Resources to request from Slurm; ``None`` selects the cluster's default.

    Attributes:
        partition: Where to queue.
        nodes: Hosts; each runs one process, with all its devices.
        gpus_per_node: GPUs of each host.
        cpus_per_task: Cores of each host.
        mem_gb: Memory of each host.
        time: Limit as Slurm writes it: minutes, H:M:S or D-H:M:S; needed but locally.
        account: Whom to charge.
        qos: Quality of service.
        constraint: Features of the hosts, such as ``h200``.
        requeues: How often a job whose time is up is queued again.
        local: Run on this machine instead, as a try.
    """

    partition: str | None = None
    nodes: int = 1
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    time: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    requeues: int = 3
    local: bool = False


def request(asked: Request, argv: list[str]) -> Request | None:
    """Returns the Slurm request of a command line; ``None`` without Slurm options.

    Args:
        asked: Its ``--slurm`` options as they were read.
        argv: The command line.

    Raises:
        ValueError: if a number is not positive or the time is not one.
    """
    if not any(word.startswith(_PREFIX) for word in argv):
        return None
    for name, value in dataclasses.asdict(asked).items():
        if type(value) is int and value < (name == "nodes"):
            least = "a positive number" if name == "nodes" else "0 or more"
            raise ValueError(f"slurm.{name}: expected {least}, got {value}")
    if asked.time is not None:
        minutes(asked.time)
    elif not asked.local:
        raise ValueError(
            "slurm.time: expected a limit such as 2:00:00, got None; pass --slurm.time"
        )
    if asked.local and asked.nodes > 1:
        raise ValueError(f"slurm.nodes: expected 1 with slurm.local, got {asked.nodes}")
    return asked


def minutes(time: str) -> int:
    """Converts a Slurm time limit to minutes, rounded up.

    Raises:
        ValueError: if it is written in another way.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if found is None:
        raise ValueError(f"slurm.time: expected M, H:M:S or D-H:M:S, got {time}")
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    # If there are days or three numbers, Slurm reads the first number as hours, else as
    # minutes.
    hours_first = days is not None or len(parts) == 3
    weights = (3600, 60, 1) if hours_first else (60, 1)
    seconds = int(days or 0) * 86400
    seconds += sum(p * w for p, w in zip(parts, weights, strict=False))
    return max(1, -(-seconds // 60))


def without_flags(argv: list[str]) -> list[str]:
    """Returns the command line without its ``--slurm`` options."""
    rest, words = [], iter(argv)
    for word in words:
        if not word.startswith(_PREFIX):
            rest.append(word)
        elif "=" not in word and word != f"{_PREFIX}local":
            next(words, None)  # skips its value
    return rest


@dataclasses.dataclass(frozen=True)
class Job:
    """A submitted experiment, which submitit calls once on each host.

    Attributes:
        module: What to run, as ``experiments.garg_linear``.
        args: Its command line.
        output: Folder that the run is made in, this job's alone.
        python: Interpreter.
    """

    module: str
    args: tuple[str, ...]
    output: Path
    python: str = sys.executable

    def __call__(self) -> None:
        """Runs the experiment, or continues the run of an earlier attempt."""
        import submitit

        where = submitit.JobEnvironment()
        status = subprocess.run(self.command(where)).returncode
        if status:
            raise RuntimeError(f"{self.module}: expected status 0, got {status}")

    def command(self, where: Any) -> list[str]:
        """Returns the command of the process on one host."""
        command = [self.python, "-m", self.module, *self.args]
        if "--resume" not in self.args:
            run = self.begun()
            command += ["--output", str(self.output)]
            if run is not None:
                command += ["--resume", str(run)]
        if where.num_tasks > 1:
            port = _FIRST_PORT + int(re.sub(r"\D.*", "", where.job_id)) % _NUM_PORTS
            command += ["--coordinator", f"{where.hostnames[0]}:{port}"]
            command += ["--num-processes", str(where.num_tasks)]
            command += ["--process-id", str(where.global_rank)]
        return command

    def begun(self) -> Path | None:
        """Returns the run of an earlier attempt, if there is one.

        No host creates the run before all hosts have looked for it, since they join
        each other first.
        """
        found = sorted(self.output.glob("*/*/config.json"))
        return found[0].parent if found else None

    def checkpoint(self) -> Any:
        """Returns what submitit requeues after a time limit or a preemption."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def module_run() -> str:
    """Returns the module that ``python -m`` was given.

    Raises:
        ValueError: if the program was started in another way.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not re.fullmatch(r"experiments\.\w+(\.__main__)?", spec.name):
        got = sys.argv[0] if spec is None else f"python -m {spec.name}"
        raise ValueError(
            f"slurm: expected a start by python -m experiments.NAME, got {got}"
        )
    return spec.name.removesuffix(".__main__")


def submit(asked: Request, module: str, argv: list[str], output: Path) -> list[str]:
    """Submits an experiment.

    Args:
        asked: What to ask of the cluster.
        module: What to run.
        argv: Its command line, the ``--slurm`` options included.
        output: Folder under which runs are made.

    Returns:
        Lines for the user: the job, and where its logs and its run are.

    Raises:
        ValueError: if submitit is not installed or there is no Slurm.
    """
    try:
        import submitit
    except ImportError as error:
        raise ValueError(
            "slurm: the package submitit is not installed; run "
            "pip install 'icltheory[slurm]'"
        ) from error
    name = module.rpartition(".")[2]
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    folder = (output / "slurm" / f"{name}-{stamp}").absolute()
    executor = submitit.LocalExecutor if asked.local else submitit.SlurmExecutor
    try:
        submitter = executor(folder, max_num_timeout=asked.requeues)
    except RuntimeError as error:
        raise ValueError(f"slurm: {error}") from error
    submitter.update_parameters(**parameters(asked, name))
    args = tuple(without_flags(argv))
    job = submitter.submit(Job(module, args, folder))
    resumed = " (resumed)" if "--resume" in args else f"; its run is made in {folder}"
    (folder / "request.json").write_text(
        json.dumps({"module": module, "args": args, **dataclasses.asdict(asked)}) + "\n"
    )
    hosts = f"{asked.nodes} x {asked.gpus_per_node or 0} GPUs"
    return [
        f"job {job.job_id}: {name} on {hosts}{resumed}",
        f"logs: {job.paths.stdout}",
    ]


def tasks_of_srun() -> int:
    """Returns the task count of the ``srun`` that started this process, else 1."""
    if "SLURM_STEP_NODELIST" not in os.environ or "SLURM_PROCID" not in os.environ:
        return 1
    return int(os.environ.get("SLURM_NTASKS", "1"))


def parameters(asked: Request, name: str) -> dict[str, Any]:
    """Translates the request into parameters of submitit's executor."""
    limit = None if asked.time is None else minutes(asked.time)
    common = {"gpus_per_node": asked.gpus_per_node, "tasks_per_node": 1}
    if asked.local:
        given = common | {"timeout_min": limit or 60}
    else:
        given = common | {
            "job_name": name,
            "partition": asked.partition,
            "nodes": asked.nodes,
            "cpus_per_task": asked.cpus_per_task,
            "mem": None if asked.mem_gb is None else f"{asked.mem_gb}GB",
            "time": limit,
            "account": asked.account,
            "qos": asked.qos,
            "constraint": asked.constraint,
        }
    return {key: value for key, value in given.items() if value is not None}
