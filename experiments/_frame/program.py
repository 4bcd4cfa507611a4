"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.exits import continue_with, require_platform, run_program

__all__ = ["continue_with", "require_platform", "run_program"]
