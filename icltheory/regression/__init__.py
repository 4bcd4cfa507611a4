"""In-context regression: tasks, shifts, untrained predictors and exact risks."""

from icltheory.regression import (
    bayes,
    flow,
    ltb,
    predictors,
    rates,
    risks,
    shifts,
    tasks,
)
from icltheory.regression.prompts import PrefixPrompt, Prompt

__all__ = [
    "PrefixPrompt",
    "Prompt",
    "bayes",
    "flow",
    "ltb",
    "predictors",
    "rates",
    "risks",
    "shifts",
    "tasks",
]
