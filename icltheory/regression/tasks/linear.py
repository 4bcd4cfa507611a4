"""Old names."""

from icltheory.regression.population import LinearPopulation as LinearRegression

__all__ = ["LinearRegression"]
