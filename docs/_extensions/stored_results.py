r"""Numbers and tables of ``experiments/results`` on the pages, never typed by hand.

The role ``{result}`` inserts one number: ``{result}`garg_linear/curves/Transformer/9```
walks through ``result.json``; in a table, ``k=10`` takes the row whose column ``k`` has
the cell ``10``, and the next step its column. A format may follow:
``{result}`garg_linear/tables/0/k=10/Transformer :.2f```. The directive
``{result-table}`` shows a table of a run, with a choice of its rows and columns;
``{result-claims}`` shows the papers' claims beside what was measured, and
``{result-findings}`` the sentences that sum up a run; ``{result-run}`` says how to
reproduce a run and what its checks found. Lists and tables that are too long to be
taken in at a glance are closed, and a click opens them.
"""

import html
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from lookup import RESULTS, column, lookup, read
from sphinx.util.docutils import SphinxDirective, SphinxRole

from experiments.ledger import formulas
from icltheory.runs import number

# Entries of a list, and rows of a table, that a reader takes in at a glance.
_GLANCE = 8
_ROWS = 15
# Columns that fit beside each other in ordinary type.
_COLUMNS = 7
_INTERVAL = re.compile(r"\[[^\]]*\]|\([-+\d][^)]*\)|\+- \S+")


class Result(SphinxRole):
    """One number."""

    def run(self):
        """Inserts it."""
        stored = RESULTS / self.text.split("/")[0].strip() / "result.json"
        self.env.note_dependency(str(stored))
        try:
            return [nodes.Text(lookup(self.text))], []
        except ValueError as error:
            line = f"result: {error}"
            return [], [self.inliner.reporter.error(line, line=self.lineno)]


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(";") if part.strip()]


class _Stored(SphinxDirective):
    """A directive about one stored run; without that run its page has an error."""

    def read(self, name: str, file: str = "result.json") -> dict[str, Any]:
        """What is stored, which the page then depends on."""
        self.env.note_dependency(str(RESULTS / name / file))
        try:
            return read(name, file)
        except ValueError as error:
            raise self.error(str(error)) from None


class ResultTable(_Stored):
    """A table of a run: ``NAME INDEX``, with ``:columns:`` and ``:rows:`` to choose.

    Both lists have semicolons between their entries; a row is known by its first cell,
    or by the column that ``:key:`` names. Cells may be given other words by ``:rename:
    CELL -> WORDS; ...``.
    """

    required_arguments = 2
    option_spec = {
        "columns": directives.unchanged,
        "rows": directives.unchanged,
        "key": directives.unchanged,
        "title": directives.unchanged,
        "rename": directives.unchanged,
    }

    def run(self):
        """Builds the table."""
        name, index = self.arguments
        table = self.read(name)["tables"][int(index)]
        heads, named = table["columns"], _list(self.options.get("columns"))
        try:
            at = [column(table, name) for name in named] or range(len(heads))
            key = column(table, self.options["key"]) if "key" in self.options else 0
        except ValueError as error:
            raise self.error(str(error)) from None
        chosen = _list(self.options.get("rows"))
        rows = [r for r in table["rows"] if not chosen or str(r[key]) in chosen]
        if chosen and sorted(str(r[key]) for r in rows) != sorted(chosen):
            raise self.error(
                f"rows: expected one row each of {[r[key] for r in table['rows']]}"
            )
        words = self.words()
        head = [words.get(c, c) for c in (_plain(heads[i]) for i in at)]
        body = [[words.get(c, c) for c in (_plain(row[i]) for i in at)] for row in rows]
        title = self.options.get("title", table["title"])
        long = len(body) > _ROWS
        found: list[nodes.Node] = [_table(head, body, "" if long else title)]
        if table["caption"]:
            found.append(nodes.paragraph(text=table["caption"]))
        return _closed(f"{_words(title)}: {len(body)} rows", *found) if long else found

    def words(self) -> dict[str, str]:
        """Words for a reader, by what the run wrote."""
        pairs = [entry.split(" -> ") for entry in _list(self.options.get("rename"))]
        return dict(pairs)


def _plain(cell: Any) -> str:
    return " ".join(str(cell).split())


def _words(title: str) -> str:
    """A title where no formula can be shown."""
    return formulas.plain(html.unescape(title))


def _table(
    head: list[str], body: list[list[str]], title: str, kind: str = "numbers"
) -> nodes.table:
    wide = ["wide"] if len(head) > _COLUMNS else []
    table = nodes.table(classes=["stored-result", kind, *wide])
    if title:
        table += nodes.title("", "", *_text(title))
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _cells(head))
    group += nodes.tbody("", *map(_cells, body))
    table += group
    return table


def _cells(texts: list[str]) -> nodes.row:
    # A line may end before an interval, not within it.
    texts = [_INTERVAL.sub(lambda one: one[0].replace(" ", "\xa0"), t) for t in texts]
    return nodes.row(
        "", *(nodes.entry("", nodes.paragraph("", "", *_text(t))) for t in texts)
    )


def _text(text: str) -> list[nodes.Node]:
    """Text, with a formula wherever dollars enclose one."""
    parts = re.split(r"\$([^$]+)\$", html.unescape(text))
    kinds = (nodes.Text, lambda formula: nodes.math(formula, formula))
    return [kinds[i % 2](part) for i, part in enumerate(parts) if part]


def _closed(summary: str, *content: nodes.Node) -> list[nodes.Node]:
    """Content that a click on its summary shows."""
    start = f'<details class="more"><summary>{html.escape(summary)}</summary>'
    return [
        nodes.raw("", start, format="html"),
        *content,
        nodes.raw("", "</details>", format="html"),
    ]


class ResultClaims(_Stored):
    """Claims of the papers beside what a run measured."""

    required_arguments = 1
    option_spec = {"title": directives.unchanged}

    def run(self):
        """Builds the table."""
        [name] = self.arguments
        claims = self.read(name)["claims"]
        head = ["claim", "measured", "holds"]
        expected = any(claim["expected"] for claim in claims)
        if expected:
            head.insert(1, "if it holds")
        body = []
        for claim in claims:
            row = [claim["claim"], claim["measured"], "yes" if claim["held"] else "no"]
            if expected:
                row.insert(1, claim["expected"])
            body.append(row)
        title = self.options.get("title", "Claims and measurements")
        table = _table(head, body, title, "claims")
        if len(claims) <= _GLANCE:
            return [table]
        held = sum(claim["held"] for claim in claims)
        return _closed(f"{len(claims)} claims, of which {held} hold", table)


class ResultFindings(_Stored):
    """The sentences that sum up a run; those after the ``:first:`` ones are closed."""

    required_arguments = 1
    option_spec = {"first": directives.nonnegative_int}

    def run(self):
        """Builds the list."""
        [name] = self.arguments
        lines = self.read(name)["findings"]
        first = self.options.get("first", len(lines))
        shown = [_bullets(lines[:first])] if first else []
        rest = lines[first:]
        more = f"{len(rest)} {'more ' if first else ''}findings"
        return shown + (_closed(more, _bullets(rest)) if rest else [])


def _bullets(lines: list[str]) -> nodes.bullet_list:
    found = nodes.bullet_list()
    for line in lines:
        found += nodes.list_item("", nodes.paragraph("", "", *_text(line)))
    return found


class ResultRun(_Stored):
    """The command, the revision and the checks of a stored run."""

    required_arguments = 1

    def run(self):
        """Builds the list."""
        [name] = self.arguments
        stored, result = self.read(name, "config.json"), self.read(name)
        where = stored["environment"]
        about = (
            f"Revision {where['revision']}, jax {where['jax']}, Python "
            f"{where['python']}, {where['cores']} x {where['device']}. "
            f"Checks: {result['verdict']}."
        )
        # The folder of the run is no part of what it computes.
        command = re.sub(r" --output \S+", "", stored["command"])
        block = nodes.literal_block(command, command, language="sh")
        checks = _bullets([in_words(check) for check in result["checks"]])
        more = f"{len(checks)} check{'s' * (len(checks) > 1)}, each with its tolerance"
        return [block, nodes.paragraph(text=about), *_closed(more, checks)]


def in_words(check: dict[str, Any]) -> str:
    """Describes one check of ``result.json`` in a sentence."""
    measured, reference, tolerance = (
        f"{number(check[key]):.4g}" for key in ("measured", "reference", "tolerance")
    )
    slack = "" if number(check["tolerance"]) == 0 else f" plus {tolerance}"
    expected = f"at most {reference}{slack}"
    if check["relation"] == "within":
        expected = f"a distance of at most {tolerance} from {reference}"
    return f"{check['name']}: expected {expected}, measured {measured}."


def setup(app: Any) -> dict[str, Any]:
    """Registers the role and the directives."""
    app.add_role("result", Result())
    app.add_directive("result-table", ResultTable)
    app.add_directive("result-claims", ResultClaims)
    app.add_directive("result-findings", ResultFindings)
    app.add_directive("result-run", ResultRun)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
