"""Pretraining on in-context tasks, in one loop on the device.

:func:`fit` trains a model on a source in one call. Its pieces, each in its own module,
are a curriculum (which coordinates and points count), an objective (what is minimised),
an optimiser, a step (state to state), and the loop that scans many steps in one
dispatch. A step is any function of that type; replace it and the loop, the checkpoints
and the experiments stay as they are.

Stability: provisional.
"""

from icltheory.training.checkpoints import Checkpoints
from icltheory.training.devices import (
    device_mesh,
    initialize_distributed,
    over_members,
    shard_members,
    to_host,
)
from icltheory.training.ensemble import (
    EnsembleState,
    Member,
    init_ensemble,
    make_ensemble_step,
)
from icltheory.training.fits import Fit, TrainedModel, fit, load_fit
from icltheory.training.loop import Chunk, run
from icltheory.training.objectives import bayes_targets, in_context_loss, prefix_errors
from icltheory.training.optimizers import (
    OptimizerConfig,
    averaged,
    learning_rate,
    make_optimizer,
    with_average,
)
from icltheory.training.steps import (
    Curriculum,
    Ramp,
    Step,
    Task,
    TrainState,
    init_state,
    make_step,
    stream_key,
)

__all__ = [
    "Checkpoints",
    "Chunk",
    "Curriculum",
    "EnsembleState",
    "Fit",
    "Member",
    "OptimizerConfig",
    "Ramp",
    "Step",
    "Task",
    "TrainState",
    "TrainedModel",
    "averaged",
    "bayes_targets",
    "device_mesh",
    "fit",
    "in_context_loss",
    "init_ensemble",
    "init_state",
    "initialize_distributed",
    "learning_rate",
    "load_fit",
    "make_ensemble_step",
    "make_optimizer",
    "make_step",
    "over_members",
    "prefix_errors",
    "run",
    "shard_members",
    "stream_key",
    "to_host",
    "with_average",
]
