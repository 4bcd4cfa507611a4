"""Chain-of-thought and in-context inference on tasks of several steps (Li et al.)."""

__all__: list[str] = []
