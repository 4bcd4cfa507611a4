"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame import Processes

__all__ = ["Processes"]
