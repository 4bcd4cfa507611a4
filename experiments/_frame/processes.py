"""Several processes as one experiment: the options that say which, and joining them."""

import argparse

from experiments._frame.slurm import tasks_of_srun
from icltheory import training


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the options of an experiment that runs on several devices and hosts."""
    parser.add_argument("--devices", type=int)
    parser.add_argument("--coordinator")
    parser.add_argument("--num-processes", type=int)
    parser.add_argument("--process-id", type=int)


def join(flags: argparse.Namespace) -> None:
    """Joins this process to the others, if the options or ``srun`` say there are any.

    Raises:
        ValueError: if some of the options are missing or out of range.
    """
    if flags.num_processes == 1:
        return
    told = (flags.coordinator, flags.num_processes, flags.process_id)
    if any(value is not None for value in told):
        training.initialize_distributed(*told)
    elif tasks_of_srun() > 1:
        training.initialize_distributed()
