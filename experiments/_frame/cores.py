"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.run import cores_usable

__all__ = ["cores_usable"]
