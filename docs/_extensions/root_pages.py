"""Pages of the repository that are pages of the site too, and the ledger's links."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
# Page of the site, and the file that it shows.
PAGES = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "benchmarks": "benchmarks/README.md",
}
_ELSEWHERE = {"experiments/README.md": "../experiments/index.md"}
_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FUNCTION = re.compile(r"(?<!\[)`([a-z][\w.]*\.\w+)`(?!\])")
_TEST = re.compile(r"\[(`[^`]+`)\]\(\.\./\.\./tests/[^)]+\)")


def write_pages(app: Any) -> None:
    """Writes each page whose file has changed."""
    for page, file in PAGES.items():
        text = (ROOT / file).read_text()
        if page == "benchmarks":  # its tables need the whole width
            text = f"---\nhide-toc: true\n---\n\n{text}"
        text = _LINK.sub(lambda m, at=file: _led(m, posixpath.dirname(at)), text)
        target = REFERENCE / f"{page}.md"
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def _led(match: re.Match[str], folder: str) -> str:
    """A link to a file of the repository, led to its page; without one, its text."""
    picture, text, link = match.groups()
    if re.match(r"[a-z]+:|#", link):
        return match[0]
    file, _, anchor = link.partition("#")
    file = posixpath.normpath(posixpath.join(folder, file))
    if picture:
        return f"![{text}](../../{file})"
    known = {path: f"{page}.md" for page, path in PAGES.items()} | _ELSEWHERE
    if file.startswith("docs/"):
        known[file] = f"../{file.removeprefix('docs/')}"
    if file not in known:
        return text if text.startswith("`") else f"{text} (`{file}`)"
    return f"[{text}]({known[file]}{anchor and '#'}{anchor})"


def _ledger(app: Any, page: str, source: list[str]) -> None:
    """Links the functions of the ledger; its tests are no pages of the site."""
    if page == "reference/ledger":
        source[0] = _FUNCTION.sub(_function, _TEST.sub(r"\1", source[0]))


def _function(match: re.Match[str]) -> str:
    name = match[1]
    # The file of a test ends like a function's name.
    return (
        match[0] if name.endswith(".py") else f"{{py:obj}}`{name} <icltheory.{name}>`"
    )


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", _ledger)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
