"""The pages of the documentation: numbers, figures and links lead to what exists."""

import re
from pathlib import Path

import pytest

from experiments import publish
from experiments.__main__ import experiments
from experiments._frame.lookup import lookup, read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if not {"api", "_build", "jupyter_execute"} & set(page.parts)
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


def named(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_page_with_these_headings(name):
    text = (DOCS / "experiments" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}: ")
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
    made = {"ledger", "profiles", "changelog", "contributing", "benchmarks"}
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
    with pytest.raises(ValueError, match="no 'none' in"):
        lookup("garg_linear/curves/none")
    with pytest.raises(ValueError, match="no such stored result"):
        lookup("nothing/curves")


def test_the_list_of_experiments_is_complete():
    text = (ROOT / "experiments" / "README.md").read_text()
    for one in experiments():
        assert f"| `{one.name}` | {one.summary.rstrip('.')} |" in text
        time = next(iter(one.presets.values()), None)
        if time is not None:
            assert f"| {time.removesuffix(', 2 cores')} |" in text
    gallery = (DOCS / "experiments" / "index.md").read_text()
    for name in EXPERIMENTS:
        assert f":link: {name}\n" in gallery
