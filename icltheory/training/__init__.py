"""Pretraining on in-context tasks, in one loop on the device.

The pieces, each in its own module, are a curriculum (which coordinates and points
count), an objective (what is minimised), an optimiser, a step (state to state), and the
loop that scans many steps in one dispatch. A step is any function of that type; replace
it and the loop, the checkpoints and the experiments stay as they are.

Stability: provisional.
"""

from icltheory.training.averaging import averaged as averaged
from icltheory.training.averaging import with_average as with_average
from icltheory.training.checkpoints import Checkpoints as Checkpoints
from icltheory.training.curriculum import Curriculum as Curriculum
from icltheory.training.curriculum import Ramp as Ramp
from icltheory.training.devices import device_mesh as device_mesh
from icltheory.training.devices import initialize_distributed as initialize_distributed
from icltheory.training.devices import over_members as over_members
from icltheory.training.devices import shard_members as shard_members
from icltheory.training.devices import to_host as to_host
from icltheory.training.ensemble import EnsembleState as EnsembleState
from icltheory.training.ensemble import init_ensemble as init_ensemble
from icltheory.training.ensemble import make_ensemble_step as make_ensemble_step
from icltheory.training.evaluation import prefix_errors as prefix_errors
from icltheory.training.loop import Chunk as Chunk
from icltheory.training.loop import Phase as Phase
from icltheory.training.loop import run as run
from icltheory.training.members import Ensemble as Ensemble
from icltheory.training.members import Member as Member
from icltheory.training.mixed_ensemble import SideBySide as SideBySide
from icltheory.training.mixed_ensemble import side_by_side as side_by_side
from icltheory.training.objectives import bayes_targets as bayes_targets
from icltheory.training.objectives import in_context_loss as in_context_loss
from icltheory.training.optimizers import OptimizerConfig as OptimizerConfig
from icltheory.training.optimizers import learning_rate as learning_rate
from icltheory.training.optimizers import make_optimizer as make_optimizer
from icltheory.training.steps import Step as Step
from icltheory.training.steps import Task as Task
from icltheory.training.steps import TrainState as TrainState
from icltheory.training.steps import init_state as init_state
from icltheory.training.steps import make_step as make_step
from icltheory.training.steps import stream_key as stream_key

__all__ = [
    "Checkpoints",
    "Chunk",
    "Curriculum",
    "Ensemble",
    "EnsembleState",
    "Member",
    "OptimizerConfig",
    "Phase",
    "Ramp",
    "SideBySide",
    "Step",
    "Task",
    "TrainState",
    "averaged",
    "bayes_targets",
    "device_mesh",
    "in_context_loss",
    "init_ensemble",
    "init_state",
    "initialize_distributed",
    "learning_rate",
    "make_ensemble_step",
    "make_optimizer",
    "make_step",
    "over_members",
    "prefix_errors",
    "run",
    "shard_members",
    "side_by_side",
    "stream_key",
    "to_host",
    "with_average",
]
