"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame.run import environment, small_lm_digest

__all__ = ["environment", "small_lm_digest"]
