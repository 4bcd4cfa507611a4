"""Predictors in context without training: values that answer one query or every prefix.

``Ridge(0.25).predict(X, y, x_query)`` answers after all examples, X (N, d), and
``predict_prefixes(X, y)`` after each of the first k = 0, ..., P - 1, much faster than P
calls; ``jax.vmap`` answers many prompts. The dtype follows the prompt.
"""

from icltheory.regression.predictors.base import (
    LinearInLabels,
    LinearPredictor,
    NoClosedForm,
    Predictor,
)
from icltheory.regression.predictors.least_squares import Bayes, LeastSquares, Ridge
from icltheory.regression.predictors.others import (
    DiscreteMMSE,
    Lasso,
    LassoFit,
    NearestNeighbors,
)
from icltheory.regression.predictors.steps import (
    Averaging,
    LinearStep,
    Newton,
    Steps,
    Zero,
    tune_step_size,
)

__all__ = [
    "Averaging",
    "Bayes",
    "DiscreteMMSE",
    "Lasso",
    "LassoFit",
    "LeastSquares",
    "LinearInLabels",
    "LinearPredictor",
    "LinearStep",
    "NearestNeighbors",
    "Newton",
    "NoClosedForm",
    "Predictor",
    "Ridge",
    "Steps",
    "Zero",
    "tune_step_size",
]
