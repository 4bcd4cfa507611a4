"""Old names."""

from icltheory.regression.sources import SparseLinearRegression

__all__ = ["SparseLinearRegression"]
