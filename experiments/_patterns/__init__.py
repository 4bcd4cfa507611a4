"""The names of :mod:`experiments.shared.patterns`, for experiments not yet ported."""

from experiments.shared.patterns import (
    PatternEnsemble,
    TrainedEnsemble,
    shifted_prompts,
    train_ensemble,
)

__all__ = ["PatternEnsemble", "TrainedEnsemble", "shifted_prompts", "train_ensemble"]
