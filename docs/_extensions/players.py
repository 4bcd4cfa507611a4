"""Animations without another site: their buttons are characters, not an icon font.

Matplotlib's player of an animation loads the font of its buttons from a content
network, and without a connection the buttons are empty. ``site.css`` has characters.
"""

import re
from typing import Any

from docutils import nodes

_FONT = re.compile(r"<link[^>]*font-awesome[^>]*>")


def without_icon_font(app: Any, doctree: nodes.document, name: str) -> None:
    """Takes the link to the font out of a page with a player."""
    for raw in list(doctree.findall(nodes.raw)):
        text = raw.astext()
        if _FONT.search(text):
            plain = _FONT.sub("", text)
            raw.replace_self(nodes.raw("", plain, format=raw["format"]))


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("doctree-resolved", without_icon_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
