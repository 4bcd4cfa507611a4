"""A link to each executed notebook, at the end of its page."""

from typing import Any


def _link(app: Any, page: str, source: list[str]) -> None:
    if source[0].startswith("---\nfile_format: mystnb"):
        name = page.rpartition("/")[2]
        source[0] += f"\n\nThis page as a notebook: {{nb-download}}`{name}.ipynb`\n"


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("source-read", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
