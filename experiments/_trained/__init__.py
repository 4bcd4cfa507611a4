"""Old names of :mod:`experiments.shared.training`."""

from experiments.shared.descent import (
    gradient_descent_errors as gradient_descent_errors,
)
from experiments.shared.training import GPT2_CPU as GPT2_CPU
from experiments.shared.training import GPT2_GPU as GPT2_GPU
from experiments.shared.training import Fitted as Fitted
from experiments.shared.training import Recipe as Recipe
from experiments.shared.training import Timing as Timing
from experiments.shared.training import TrainedModels as TrainedModels
from experiments.shared.training import check_snapshots as check_snapshots
from experiments.shared.training import fit as fit
from experiments.shared.training import linear_recipe as linear_recipe
from experiments.shared.training import mean_metrics as mean_metrics
from experiments.shared.training import train as train
