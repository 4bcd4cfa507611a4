"""Old names."""

from icltheory.regression.sources import LinearClassification, QuadraticRegression

__all__ = ["LinearClassification", "QuadraticRegression"]
