"""Gradient noise of in-context learning."""

__all__: list[str] = []
