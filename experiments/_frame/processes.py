"""Options that join several processes into one run of an experiment."""

import dataclasses

from experiments._frame.options import Flags
from experiments._frame.slurm import tasks_of_srun
from icltheory import training


@dataclasses.dataclass(frozen=True)
class Processes(Flags):
    """Options of an experiment that runs on several devices and hosts.

    Attributes:
        devices: Devices over which a batch is split; all of them unless given.
        coordinator: HOST:PORT of the first process.
        num_processes: How many processes run this experiment.
        process_id: Number of this process, from 0.
    """

    devices: int | None = None
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    def begin(self) -> None:
        """Joins this process to the others if the options or ``srun`` name several.

        Raises:
            ValueError: if some of the options are missing or out of range.
        """
        if self.num_processes == 1:
            return
        told = (self.coordinator, self.num_processes, self.process_id)
        if any(value is not None for value in told):
            training.initialize_distributed(*told)
        elif tasks_of_srun() > 1:
            training.initialize_distributed()
