"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.command_line import Launch, parse

__all__ = ["Launch", "parse"]
