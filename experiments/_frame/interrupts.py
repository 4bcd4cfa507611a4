"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.exits import Interrupt, deferred

__all__ = ["Interrupt", "deferred"]
