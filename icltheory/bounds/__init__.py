"""Generalisation bounds of in-context learning."""

__all__: list[str] = []
