"""Old names."""

from icltheory.regression.pools import PromptPool, TaskPool, draw_indices

__all__ = ["PromptPool", "TaskPool", "draw_indices"]
