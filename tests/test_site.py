"""The built pages show the stored numbers, and cite tests that exist."""

import importlib
import itertools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from experiments.ledger.statements import node_names
from tests.test_pages import PAGES, ROOT, entries, named, tables

pytest.importorskip("sphinx", reason="needs the group docs")
bs4 = pytest.importorskip("bs4")
pytestmark = pytest.mark.slow
RESULTS = ROOT / "experiments" / "results"
# Notebooks are not run, and modules have no pages.
CONF = """
import sys
sys.path[:0] = [{extensions!r}, {root!r}]
extensions = ["myst_parser", "sphinx_design", "errata", "stored_results"]
exclude_patterns = ["_build", "reference/api", "jupyter_execute"]
smartquotes = False
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath", "deflist"]
"""
ROLE = re.compile(r"\{result\}`([^`]+)`")

LISTS = re.compile(r"\{result-(claims|findings)\} (\w+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    extensions = str(ROOT / "docs" / "_extensions")
    conf = CONF.format(extensions=extensions, root=str(ROOT))
    (folder / "conf.py").write_text(conf)
    line = ["-q", "-c", str(folder), "-d", str(folder / "trees")]
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            *line,
            str(ROOT / "docs"),
            str(folder / "out"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert built.returncode == 0, built.stderr
    assert "result" not in built.stderr
    return folder / "out"


def parsed(site, page):
    text = (site / named(page)).with_suffix(".html").read_text()
    return bs4.BeautifulSoup(text, "html.parser").find(role="main")


def words(text):
    return " ".join(str(text).replace("$", "").split())


def shown(cell):
    """The words of a cell, without the marks that the build puts around a formula."""
    return words(re.sub(r"\\[()]", "", cell.get_text()))


@pytest.mark.parametrize("page", [p for p in PAGES if tables(p)], ids=named)
def test_every_cell_of_a_table_is_the_stored_one(site, page):
    built = parsed(site, page).select("table.stored-result.numbers")
    assert len(built) == len(tables(page))
    for table, (name, index, options) in zip(built, tables(page), strict=True):
        stored = json.loads((RESULTS / name / "result.json").read_text())
        heads, rows = (stored["tables"][index][part] for part in ("columns", "rows"))
        chosen = entries(options.get("columns", ""))
        places = [at for head in chosen for at, h in enumerate(heads) if h == head]
        assert len(places) == len(chosen)
        places = places or range(len(heads))
        kept = entries(options.get("rows", ""))
        rows = [row for row in rows if not kept or row[0] in kept]
        expected = [[words(row[at]) for at in places] for row in [heads, *rows]]
        found = [
            [shown(cell) for cell in row.select("th, td")] for row in table.select("tr")
        ]
        for got, want in zip(found, expected, strict=True):
            for one, other in zip(got, want, strict=True):
                renamed = f"{other} -> {one}" in options.get("rename", "")
                renamed |= "words" in options and not re.match(r"[-+.\d]", other)
                assert one == other or renamed, (name, index)


def readings(value, steps):
    """Every value to which the steps lead."""
    if not steps:
        yield value
    for used in range(1, len(steps) + 1):
        step, rest = "/".join(steps[:used]), steps[used:]
        if isinstance(value, list) and step.lstrip("-").isdigit():
            yield from readings(value[int(step)], rest)
        if isinstance(value, dict) and step in value:
            yield from readings(value[step], rest)
        head, _, cell = step.partition("=")
        for row in (
            value["rows"] if isinstance(value, dict) and "columns" in value else ()
        ):
            cells = [*zip(value["columns"], row, strict=True)]
            if (head, cell) in cells:
                yield from (c for h, c in cells if h == "/".join(rest))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if ROLE.search(p.read_text())], ids=named
)
def test_every_number_in_a_sentence_is_the_stored_one(site, page):
    built = shown(parsed(site, page))
    # A number stands between the plain words around it.
    around = rf"([\w\s,]*){ROLE.pattern}([\w\s,]*)"
    parts = page.read_text().split("\n\n")
    for before, path, after in (m for one in parts for m in re.findall(around, one)):
        path, _, spec = words(path).partition(" :")
        name, *steps = path.split("/")
        stored = json.loads((RESULTS / name / "result.json").read_text())
        (value,) = readings(stored, steps)
        if spec:
            times = 100 if spec.endswith("pp") else 1
            value = f"{float(value) * times:{spec.replace('pp', 'f')}}"
        assert words(f"{before}{value}{after}") in built, path


@pytest.mark.parametrize(
    "page", [p for p in PAGES if LISTS.search(p.read_text())], ids=named
)
def test_every_claim_and_finding_is_the_stored_one(site, page):
    built = shown(parsed(site, page))
    for kind, name in LISTS.findall(page.read_text()):
        listed = json.loads((RESULTS / name / "result.json").read_text())[kind]
        for one in listed:
            assert words(one["measured"] if kind == "claims" else one) in built


def test_every_test_that_the_errata_cite_exists(site):
    page = parsed(site, ROOT / "docs" / "concepts" / "errata.md")
    cited = re.findall(r"tests/[\w/.]+::\S*", page.get_text(" "))
    assert len(cited) > 100
    for name in {one.rstrip(",") for one in cited}:
        assert name in node_names(ROOT / name.split("::")[0], ROOT)


def test_the_curves_behind_the_sliders_are_those_of_the_library():
    sys.path.insert(0, str(ROOT / "docs" / "_extensions"))
    explore = importlib.import_module("explore")
    text = explore.FILE.read_text()
    rows = json.loads(text.removeprefix("window.exploreData = ").removesuffix(";\n"))
    grid = itertools.product(explore.DIMS, explore.NOISES, explore.DECAYS)
    assert [(row["d"], row["noise"], row["decay"]) for row in rows] == list(grid)
    for place in (0, 19):
        row = rows[place]
        found = explore.curves(row["d"], row["noise"], row["decay"])
        assert found.keys() == row["curves"].keys()
        for name, curve in found.items():
            got, stored = (np.array(c, float) for c in (curve, row["curves"][name]))
            np.testing.assert_allclose(got, stored, rtol=2e-3, atol=1e-9)
