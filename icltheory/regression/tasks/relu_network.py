"""Old names."""

from icltheory.regression.sources import ReluNetwork

__all__ = ["ReluNetwork"]
