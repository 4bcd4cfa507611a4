"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame import Flags

__all__ = ["Flags"]
