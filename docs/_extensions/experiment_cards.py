"""Cards and contents of the experiments, from the front matter of their pages.

The front matter of a page under ``docs/experiments`` has the ``card`` (a few words),
the ``group`` under which it stands, its ``order`` there and, for a card with a picture,
the ``picture`` below ``experiments/results``. In ``index.md`` the line ``<!-- cards:
GROUP -->`` becomes the cards of a group, and ``<!-- contents -->`` the list of pages.
So a new page is found without a change of the index.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parents[1] / "experiments"
_CARDS = re.compile(r"^<!-- cards: (.+) -->$", re.MULTILINE)
_CONTENTS = "<!-- contents -->"
_CARD = """:::{{grid-item-card}} {one.card}
:link: {one.page}
:link-type: doc
:img-top: ../../experiments/results/{one.picture}
:img-alt: Main figure of {one.page}
`{one.page}`
:::
"""


class Card(NamedTuple):
    """What the index says of a page."""

    page: str
    card: str
    group: str
    order: int
    picture: str | None = None


def cards(folder: Path = FOLDER) -> list[Card]:
    """The cards of all pages, in the order of each group."""
    found = []
    for path in folder.glob("*.md"):
        front = re.match(r"---\n(.*?)\n---\n", path.read_text(), re.DOTALL)
        values = yaml.safe_load(front[1]) if front else {}
        if "card" in values:
            fields = {key: values[key] for key in Card._fields if key in values}
            found.append(Card(path.stem, **fields))
    return sorted(found, key=lambda one: (one.order, one.page))


def index(text: str, found: list[Card]) -> str:
    """The text of the index with its cards and contents.

    Raises:
        ValueError: If a page names a group that the index does not have.
    """
    groups = _CARDS.findall(text)
    strange = sorted({one.group for one in found} - set(groups))
    if strange:
        raise ValueError(f"group: expected one of {groups}, got {strange}")

    def grid(match: re.Match[str]) -> str:
        here = [one for one in found if one.group == match[1] and one.picture]
        made = "\n".join(_CARD.format(one=one) for one in here)
        return f"::::{{grid}} 1 2 3 3\n:gutter: 2\n\n{made}\n::::"

    listed = sorted(found, key=lambda one: groups.index(one.group))
    lines = [f"{one.card} <{one.page}>" for one in listed]
    lines.insert(0, "Run, interrupt and resume <running>")
    contents = "\n".join(["```{toctree}", ":hidden:", "", *lines, "```"])
    return _CARDS.sub(grid, text).replace(_CONTENTS, contents)


def _read(app: Any, page: str, source: list[str]) -> None:
    if page == "experiments/index":
        for path in FOLDER.glob("*.md"):
            app.env.note_dependency(str(path))
        source[0] = index(source[0], cards())


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
