"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.config import read_config

__all__ = ["read_config"]
