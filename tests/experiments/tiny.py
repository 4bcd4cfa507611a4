"""An experiment that trains nothing, for tests of the frame."""

import dataclasses
import sys

from experiments.frame import Check, Flags, Report, experiment
from experiments.frame.config import depends_on_all_steps
from icltheory.training import Curriculum, OptimizerConfig, Ramp


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A training."""

    steps: int = 200  # training steps
    chunk_steps: int = 10  # steps per dispatch
    optimizer: OptimizerConfig = OptimizerConfig(warmup_steps=20)

    def __post_init__(self):
        if self.optimizer.warmup_steps > self.steps:
            raise ValueError("optimizer.warmup_steps: expected at most steps")

    def needs_all_steps(self):
        return depends_on_all_steps(self.optimizer.schedule)


@dataclasses.dataclass(frozen=True)
class Config(Recipe):
    """Sizes."""

    prompts: int = 8  # evaluation prompts
    penalty: float = 0.5  # of the ridge
    dim: int = 5  # input dimension
    num_points: int = 11  # points of a prompt
    curriculum: Curriculum = Curriculum(Ramp(2, 5, 1, 10), Ramp(5, 11, 2, 10))
    part: Recipe = Recipe()
    needs: str | None = None  # why the run cannot be extended

    def needs_all_steps(self):
        return self.needs or super().needs_all_steps()


@dataclasses.dataclass(frozen=True)
class Switches(Flags):
    """Switches."""

    error: float = 0.1  # what is measured
    loud: bool = False  # nothing


# The name of an experiment is that of the module of its config.
Config.__module__ = "experiments.tiny"
sys.modules["experiments.tiny"] = sys.modules[__name__]
PRESETS = {"cpu": Config(), "gpu": Config(prompts=64)}


@experiment(PRESETS, flags=Switches())
def main(config, run, flags):
    """Returns the error that it is given."""
    with run.phase("training"):
        run.console.print("of no interest")
    check = Check("error", flags.error, 0.2, "<=")
    return Report({"prompts": config.prompts}, checks=[check], interval_level=0.9)
