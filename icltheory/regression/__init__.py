"""In-context regression: tasks, shifts, untrained predictors and exact risks."""

from icltheory.regression import ltb, predictors, risks, shifts, tasks
from icltheory.regression.prompts import PrefixPrompt, Prompt

__all__ = ["PrefixPrompt", "Prompt", "ltb", "predictors", "risks", "shifts", "tasks"]
