"""Names that other packages still use."""

__all__: list[str] = []
