"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame import Run

__all__ = ["Run"]
