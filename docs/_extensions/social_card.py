"""Tags by which other sites show a link to a page: title, description and picture.

The description is the first sentence of a page's answer, or the site's. A picture and
links to the page itself need the site's address, ``html_baseurl``.
"""

import html
import re
from typing import Any

from docutils import nodes

from experiments.ledger import formulas

ABOUT = (
    "Exact risks and bounds for in-context learning, in JAX, tested on trained "
    "transformers."
)
PICTURE = "_images/learning.png"  # that of the start page
_LENGTH = 200


def describe(doctree: nodes.document | None) -> str:
    """What a page says in short, cut at a word, or what the site is about."""
    for paragraph in doctree.findall(nodes.paragraph) if doctree else ():
        if paragraph.astext().startswith("In short. "):
            parts = (
                formulas.plain(f"${node.astext()}$")
                if isinstance(node, nodes.math)
                else node.astext()
                for node in paragraph.children
            )
            text = " ".join("".join(parts).split()).removeprefix("In short. ")
            short = text[:_LENGTH].rpartition(" ")[0]
            return text if len(text) <= _LENGTH else f"{short} ..."
    return ABOUT


def add_tags(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Adds the tags to the head of a page."""
    about = describe(doctree)
    title = re.sub(r"<[^>]*>", "", context.get("title", ""))
    tags = {
        "og:type": "website",
        "og:site_name": app.config.project,
        "og:title": html.unescape(title) or app.config.project,
        "og:description": about,
    }
    if base := app.config.html_baseurl:
        tags["og:url"] = context["pageurl"]
        tags["og:image"] = f"{base.rstrip('/')}/{PICTURE}"
        tags["twitter:card"] = "summary_large_image"
    lines = [f'<meta name="description" content="{html.escape(about)}" />']
    lines += [
        f'<meta property="{name}" content="{html.escape(value)}" />'
        for name, value in tags.items()
    ]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def setup(app: Any) -> dict[str, Any]:
    """Connects to the build."""
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
