"""The ledger as a page whose functions are links and whose rows can be filtered."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "ledger.md"
_FUNCTION = re.compile(r"(?<!\[)`([a-z][\w.]*\.\w+)`(?!\])")
_TEST = re.compile(r"\[`([^`]+)`\]\(tests/([^)]+)\)")


def write_page(app: Any) -> None:
    """Writes the page if the ledger has changed."""
    text = (ROOT / "LEDGER.md").read_text()
    text = _TEST.sub(r"`\2::\1`", text)
    text = _FUNCTION.sub(_linked, text)
    # Its tables need the whole width.
    text = f"---\nhide-toc: true\n---\n\n{text}"
    if not PAGE.exists() or PAGE.read_text() != text:
        PAGE.write_text(text)


def _linked(match: re.Match[str]) -> str:
    name = match[1]
    # The file of a test ends like a function's name.
    return (
        match[0] if name.endswith(".py") else f"{{py:obj}}`{name} <icltheory.{name}>`"
    )


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
