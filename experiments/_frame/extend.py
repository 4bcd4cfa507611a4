"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.config import STEPS, changes_between, depends_on_all_steps

__all__ = ["STEPS", "changes_between", "depends_on_all_steps"]
