"""Models that experiments share: trained on regression, resumed exactly, snapshots.

``train(recipe, run)`` trains one model inside a run folder, or continues where
an interrupted run stopped, and returns the parameters at the end and at given steps.
"""

from experiments._trained.fit import Fitted as Fitted
from experiments._trained.fit import Timing as Timing
from experiments._trained.fit import check_snapshots as check_snapshots
from experiments._trained.fit import fit as fit
from experiments._trained.recipes import GPT2_CPU as GPT2_CPU
from experiments._trained.recipes import GPT2_GPU as GPT2_GPU
from experiments._trained.recipes import Recipe as Recipe
from experiments._trained.recipes import linear_recipe as linear_recipe
from experiments._trained.references import (
    gradient_descent_errors as gradient_descent_errors,
)
from experiments._trained.train import TrainedModels as TrainedModels
from experiments._trained.train import train as train

__all__ = [
    "GPT2_CPU",
    "GPT2_GPU",
    "Fitted",
    "Recipe",
    "Timing",
    "TrainedModels",
    "check_snapshots",
    "fit",
    "gradient_descent_errors",
    "linear_recipe",
    "train",
]
