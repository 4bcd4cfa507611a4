"""In-context regression: tasks, shifts, predictors, exact risks and trained attention.

Stability: stable.
"""

from icltheory.regression import (
    bayes,
    features,
    flow,
    kernel_descent,
    ltb,
    position,
    predictors,
    rates,
    risks,
    shifts,
    tasks,
)
from icltheory.regression.population import LinearPopulation
from icltheory.regression.prompts import PrefixPrompt, Prompt

__all__ = [
    "LinearPopulation",
    "PrefixPrompt",
    "Prompt",
    "bayes",
    "features",
    "flow",
    "kernel_descent",
    "ltb",
    "position",
    "predictors",
    "rates",
    "risks",
    "shifts",
    "tasks",
]
