"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.progress import Activity, Display

__all__ = ["Activity", "Display"]
