"""Old names of :mod:`experiments.shared.training`."""

from experiments.shared.training import fit as fit
from experiments.shared.training import mean_metrics as mean_metrics
