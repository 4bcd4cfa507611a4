"""In-context classification of patterns by nonlinear transformers (Li et al.)."""

__all__: list[str] = []
