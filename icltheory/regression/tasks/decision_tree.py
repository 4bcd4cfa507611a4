"""Old names."""

from icltheory.regression.sources import DecisionTree

__all__ = ["DecisionTree"]
