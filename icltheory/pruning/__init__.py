"""SVD pruning of layered models."""

__all__: list[str] = []
