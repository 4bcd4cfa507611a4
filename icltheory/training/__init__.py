"""Pretraining on in-context tasks: one loop that stays on the device.

The pieces, each in its own module, are a curriculum (which coordinates and points
count), an objective (what is minimised), an optimiser, a step (state to state), and the
loop that scans many steps in one dispatch. A step is any function of that type; replace
it and the loop, the checkpoints and the experiments stay as they are.
"""

from icltheory.training.checkpoints import Checkpoints as Checkpoints
from icltheory.training.curriculum import Curriculum as Curriculum
from icltheory.training.curriculum import Ramp as Ramp
from icltheory.training.devices import data_mesh as data_mesh
from icltheory.training.devices import initialize_distributed as initialize_distributed
from icltheory.training.evaluation import prefix_errors as prefix_errors
from icltheory.training.loop import Chunk as Chunk
from icltheory.training.loop import Step as Step
from icltheory.training.loop import TrainState as TrainState
from icltheory.training.loop import init_state as init_state
from icltheory.training.loop import make_step as make_step
from icltheory.training.loop import run as run
from icltheory.training.loop import stream_key as stream_key
from icltheory.training.objectives import in_context_loss as in_context_loss
from icltheory.training.optimizers import OptimizerConfig as OptimizerConfig
from icltheory.training.optimizers import learning_rate as learning_rate
from icltheory.training.optimizers import make_optimizer as make_optimizer

__all__ = [
    "Checkpoints",
    "Chunk",
    "Curriculum",
    "OptimizerConfig",
    "Ramp",
    "Step",
    "TrainState",
    "data_mesh",
    "in_context_loss",
    "init_state",
    "initialize_distributed",
    "learning_rate",
    "make_optimizer",
    "make_step",
    "prefix_errors",
    "run",
    "stream_key",
]
