"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame import check_at_least, check_seeds, expect

__all__ = ["check_at_least", "check_seeds", "expect"]
