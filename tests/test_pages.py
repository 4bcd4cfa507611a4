"""The pages of the documentation: numbers, figures and links lead to what exists."""

import fnmatch
import functools
import importlib.util
import re
from pathlib import Path

import pytest

from experiments import publish
from experiments.ledger.statements import node_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# A build writes pages of its own beside them.
_BUILT = {"api", "_build", "jupyter_execute", "benchmarks.md", "changelog.md"}
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if not (_BUILT | {"contributing.md"}) & set(page.parts)
)
# A source distribution has none.
PICTURES = any(publish.RESULTS.rglob("*.png"))
STORED = publish.sources()
# A further preset of an experiment is shown on a page of another name.
EXPERIMENTS = [name for name, source in STORED.items() if name == source.experiment]
HEADINGS = [
    "Question",
    "Setting",
    "Result",
    "What it shows",
    "What it does not show",
    "Reproduce",
]


names = functools.cache(node_names)


def extension(name):
    """A module of ``docs/_extensions``, which is no package."""
    spec = importlib.util.spec_from_file_location(
        name, DOCS / "_extensions" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cards, stored = extension("experiment_cards"), extension("lookup")
column, lookup, read = stored.column, stored.lookup, stored.read


def named(page):
    return str(page.relative_to(DOCS))


def tables(page):
    """The tables of stored runs that a page shows: run, index and options."""
    directive = r"^`{3,}\{result-table\} (\w+) (\d+)\n((?::.*\n)*)"
    return [
        (name, int(index), dict(re.findall(r"^:(\w+): (.*)$", options, re.M)))
        for name, index, options in re.findall(directive, page.read_text(), re.M)
    ]


def entries(text):
    return [one.strip() for one in text.split(";") if one.strip()]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_page_with_these_headings(name):
    text = (DOCS / "experiments" / f"{name}.md").read_text()
    front, title = r"^(?:---\n.*?\n---\n\n)?", rf"# [^\n]+\? \({name}\)\n\n"
    figure = r"```\{figure\} \S+\n"  # the answer first, then the figure
    short = r"\*\*In short\.\*\* [^\n]+\n\n"
    assert re.search(rf"{front}{title}{short}{figure}", text, re.DOTALL)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert "```{result-run} " + name in text
    assert publish.shown_figures(name)


@pytest.mark.parametrize("name", sorted(set(STORED) - set(EXPERIMENTS)))
def test_further_presets_are_shown_on_a_page(name):
    assert publish.shown_figures(name)
    pages = [page for page in PAGES if f"{{result-run}} {name}\n" in page.read_text()]
    assert len(pages) == 1


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_numbers_tables_and_figures_of_a_page_are_stored(page):
    text = page.read_text()
    for path in re.findall(r"\{result\}`([^`]+)`", text):
        lookup(path)
    for name, index in re.findall(r"^`{3,}\{result-table\} (\w+) (\d+)$", text, re.M):
        assert read(name)["tables"][int(index)]["rows"]
    for kind, name in re.findall(r"^`{3,}\{result-(\w+)\} (\w+)$", text, re.M):
        part = {"claims": "claims", "findings": "findings", "run": "checks"}[kind]
        assert read(name)[part]
    for figure in re.findall(r"(?:\{figure\}|:img-top:) (\S+)", text):
        assert (page.parent / figure).exists() or not PICTURES, figure


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.name)
def test_links_to_files_lead_to_files(page):
    made = {"changelog", "contributing", "benchmarks"}
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if re.match(r"[a-z]+:", link) or "{" in link:
            continue
        if link.endswith(".png") and not PICTURES:
            continue
        target = (page.parent / link).resolve()
        if target.parent.name == "reference" and target.stem in made:
            continue  # written by the build from a page of the repository
        assert target.exists() or target.parts[-2:] == ("api", "index.md"), link


def test_a_path_leads_to_one_number():
    measured = read("garg_linear")["curves"]["Transformer"]["mean"][10]
    assert lookup("garg_linear/curves/Transformer/mean/10 :.3f") == f"{measured:.3f}"
    cell = lookup("garg_linear/tables/0/k=10/one-layer optimum")
    assert cell == "0.3750"
    # The name of this column has a slash in it.
    assert float(lookup("bound_vs_error/tables/0/d N b L=5 1000 20 2/best/err")) > 1
    gain = read("real_model_night")["arms"][0]["mean"]
    path = "real_model_night/arms/0/mean"
    assert lookup(f"{path} :+.2pp") == f"{100 * gain:+.2f}"
    with pytest.raises(ValueError, match="no 'none' in"):
        lookup("garg_linear/curves/none")
    with pytest.raises(ValueError, match="expected one row with error=ICL, got 6"):
        lookup("cot/tables/0/error=ICL/321")
    with pytest.raises(ValueError, match="no such stored result"):
        lookup("nothing/curves")


@pytest.mark.parametrize("name", STORED)
def test_columns_of_a_stored_table_have_names_of_their_own(name):
    for table in read(name).get("tables", ()):
        heads = [] if isinstance(table, str) else table["columns"]
        assert len(set(heads)) == len(heads)


@pytest.mark.parametrize("page", [p for p in PAGES if tables(p)], ids=named)
def test_options_of_a_table_name_what_it_has(page):
    for name, index, options in tables(page):
        table = read(name)["tables"][index]
        for head in entries(options.get("columns", "")):
            column(table, head)
        known = [*table["columns"], *(str(c) for row in table["rows"] for c in row)]
        for old in entries(options.get("rename", "")):
            assert old.split(" -> ")[0] in known
        firsts = [str(row[0]) for row in table["rows"]]
        for row in entries(options.get("rows", "")):
            assert firsts.count(row) == 1


def test_a_name_that_two_columns_or_keys_have_is_refused(monkeypatch):
    table = {"columns": ["K", "flow", "flow"], "rows": [["8", "63.2", "2412.0"]]}
    found = {"tables": [table], "a": {"b": 1}, "a/b": 2}
    monkeypatch.setattr(stored, "read", lambda name: found)
    with pytest.raises(ValueError, match="expected one column 'flow', got 2 in"):
        lookup("x/tables/0/K=8/flow")
    with pytest.raises(ValueError, match="x/a/b: expected one key at 'a', got several"):
        lookup("x/a/b")


AUTHORS = r"((?:(?:Ver )?[A-Z][\w'-]+(?:, | and )?)+)"
CITATION = re.compile(rf"{AUTHORS}(?: et al\.)?,? \(?((?:18|19|20)\d\d)\b")


def test_every_source_is_in_the_bibliography():
    def key(authors, year):
        return re.split(", | and | ", authors)[0], year

    text = (DOCS / "reference" / "bibliography.md").read_text()
    works = {
        key(*w)
        for w in re.findall(rf"^- (?:von )?{AUTHORS}.*?\((\d{{4}})\)", text, re.M)
    }
    quoted = {("Cavo", "2012")}  # in the example of another source
    for path in sorted((ROOT / "icltheory").rglob("*.py")):
        for source in re.findall(
            r"Source: (.*?)(?:\n\n|\"\"\")", path.read_text(), re.S
        ):
            cited = {key(*one) for one in CITATION.findall(" ".join(source.split()))}
            assert cited <= works | quoted, path


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_test_that_a_page_cites_exists(page):
    text = page.read_text()
    for file in re.findall(r"`(tests/[\w/.]+)(?:::\w+)?`", text):
        assert (ROOT / file).exists() or "NAME" in file or "AUTHOR" in file, file
    cited = re.findall(r"`(tests/[\w/.]+\.py)::(\w+)`", text)
    for file, name in cited:
        name = name.partition("[")[0]
        assert fnmatch.filter(names(ROOT / file, ROOT), f"{file}::{name}"), name


def test_every_experiment_has_a_card():
    found, sources = {one.page: one for one in cards.cards()}, publish.sources()
    for name in EXPERIMENTS:
        folder, figure = found[name].picture.split("/")
        assert sources[folder].experiment == name
        assert figure in publish.shown_figures(folder), name
    text = cards.index(
        (DOCS / "experiments" / "index.md").read_text(), [*found.values()]
    )
    assert all(f"{one.card} <{name}>" in text for name, one in found.items())
    pictures = re.findall(r":img-top: (\S+)", text)
    assert len(pictures) == sum(one.picture is not None for one in found.values())
    for picture in pictures:
        assert (DOCS / "experiments" / picture).exists() or not PICTURES, picture


def test_a_card_of_an_unknown_group_is_refused():
    card = cards.Card("page", "words", "Nothing", 1)
    with pytest.raises(ValueError, match="group: expected one of"):
        cards.index("<!-- cards: Something -->\n<!-- contents -->", [card])
