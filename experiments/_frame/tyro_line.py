"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.command_line import read_line

__all__ = ["read_line"]
