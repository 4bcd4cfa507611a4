"""The directive ``{errata}``: statements of the ledger that have one status."""

import html
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from experiments.ledger.formulas import markdown
from experiments.ledger.statements import STATEMENTS, claimed

_LEADS = {"false as written": "Correction: ", "conditional": "Condition: "}


class Errata(SphinxDirective):
    """What each paper says, what holds instead, the function and the test."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Builds a list for each paper."""
        [status] = self.arguments
        found = [one for one in STATEMENTS if one.status == status]
        if not found:
            raise self.error(f"status: no statement is {status!r}")
        made: list[nodes.Node] = []
        for paper in dict.fromkeys(one.paper for one in found):
            made.append(nodes.rubric(text=paper))
            items = nodes.definition_list()
            for one in (one for one in found if one.paper == paper):
                items += self._item(one)
            items["classes"].append("errata")
            made.append(items)
        return made

    def _item(self, one) -> nodes.definition_list_item:
        said, _ = self.parse_inline(markdown(f": {one.says}"))
        said.insert(0, nodes.strong(text=one.label))
        lead = _LEADS.get(one.status, "")
        holds, _ = self.parse_inline(markdown(f"{lead}{one.corrected}."))
        term = nodes.term("", "", *said)
        body = nodes.definition("", nodes.paragraph("", "", *holds))
        where = nodes.paragraph()
        links = [f"{{py:obj}}`{f} <icltheory.{f}>`" for f in one.functions]
        if one.proof:
            page, _, section = one.proof.partition("#")
            links.append(f"[proof](/reference/derivations/{page}.md#{section})")
        inline, _ = self.parse_inline(", ".join(links))
        where += inline
        body += where
        if tests := ", ".join(claimed(one)):
            name = html.escape(tests)
            fold = f'<details class="more"><summary>tests</summary>{name}</details>'
            body += nodes.raw("", fold, format="html")
        return nodes.definition_list_item("", term, body)


def setup(app: Any) -> dict[str, Any]:
    """Registers the directive."""
    app.add_directive("errata", Errata)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
