"""Re-exported from :mod:`experiments.frame`."""

from experiments.frame import Check, Claim, Report, largest

__all__ = ["Check", "Claim", "Report", "largest"]
