"""The benchmarks of the suite by module name, with their expected times."""

from typing import NamedTuple


class Expected(NamedTuple):
    """Expected time in seconds of a full benchmark, including its start.

    Attributes:
        cpu: On two cores; ``None`` where it needs an accelerator.
        gpu: On one accelerator; ``None`` where it makes no sense there.
    """

    cpu: float | None
    gpu: float | None


BENCHMARKS = {
    "trajectory": Expected(cpu=40, gpu=60),
    "bounds": Expected(cpu=40, gpu=60),
    "exact_risk": Expected(cpu=45, gpu=60),
    "predictors": Expected(cpu=50, gpu=60),
    "pruning_sweep": Expected(cpu=55, gpu=60),
    "train_step": Expected(cpu=60, gpu=180),
    "theory": Expected(cpu=60, gpu=120),
    "scaling": Expected(cpu=None, gpu=60),
    "launches": Expected(cpu=None, gpu=120),
    "kernels": Expected(cpu=None, gpu=40),
    "flow": Expected(cpu=70, gpu=120),
    "ensemble": Expected(cpu=60, gpu=240),
    "prune_search": Expected(cpu=90, gpu=400),
}
