"""The ledger: what it declares is there, and what it shows is what happened."""

import ast
import functools
import re
from pathlib import Path

import pytest

from experiments.ledger import collect, main, measure, report, rows
from experiments.ledger.statements import STATEMENTS, Statement

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_holds(size, record_property):
    if size == 4:
        pytest.skip("counts for nothing")
    record_property("error", -1e-16 * size)

def test_fails(record_property):
    record_property("error", float("inf"))
    record_property("error", float("nan"))
    assert False, "on purpose"

@pytest.mark.slow
def test_takes_long(): pass

def test_belongs_to_nobody(): pass
"""


# --- what is declared


@pytest.fixture
def parsed_once(monkeypatch):
    """Sources are parsed once for all statements."""
    monkeypatch.setattr(collect, "node_names", PARSED)


PARSED = functools.cache(collect.node_names)


@pytest.mark.usefixtures("parsed_once")
@pytest.mark.parametrize("said", STATEMENTS, ids=lambda s: f"{s.paper}: {s.label}")
def test_functions_and_tests_of_a_statement_exist(said):
    assert not collect.missing_functions(said)
    assert not collect.unmatched(said, ROOT)
    assert said.tests or said.status in ("empirical", "no claim")


@pytest.mark.usefixtures("parsed_once")
def test_every_identity_test_belongs_to_a_statement():
    assert not collect.orphans(STATEMENTS, ROOT)


@functools.cache
def slow_tests(file):
    """Test functions of a file of which no case is in the quick tier."""
    tree = ast.parse((ROOT / file).read_text())
    marked = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = ("pytest.mark.slow", "SLOW")
    return {
        f"{file}::{node.name}"
        for node in marked
        if any(ast.unparse(mark) in names for mark in node.decorator_list)
    }


@pytest.mark.usefixtures("parsed_once")
def test_every_statement_has_a_quick_test():
    left_out = [
        f"{said.paper}: {said.label}"
        for said in STATEMENTS
        if said.tests
        and all(
            case in slow_tests(case.split("::")[0])
            for case in collect.claimed(said, ROOT)
        )
    ]
    assert left_out == []


CORRECTED = ("false as written", "conditional", "vacuous", "reconstructed")
QUICKLY_KNOWN = ("numerical", "symbolic", "exact arithmetic")


def sections(page):
    """Anchors of the headings of a page, as the site and code hosts make them."""
    text = (ROOT / page).read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("said", STATEMENTS, ids=lambda s: f"{s.paper}: {s.label}")
def test_evidence_is_there(said):
    """A proof is a section that exists; what is computed has a test."""
    if said.derivation:
        page, _, section = said.derivation.partition("#")
        assert section in sections(page)
    elif said.source:
        assert re.search(r"\d", said.source)  # the number of a theorem
    if said.evidence in QUICKLY_KNOWN:
        assert said.tests
    if said.status in ("true", "conditional", "vacuous"):
        assert said.evidence != "none"


def test_labels_are_unique_and_false_statements_say_what_is_right():
    labels = [(said.paper, said.label) for said in STATEMENTS]
    assert len(set(labels)) == len(labels)
    for said in STATEMENTS:
        if said.status in CORRECTED:
            assert said.corrected, said.label


def test_a_statement_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="^status: expected one of exact, true"):
        Statement("A", "1", "says", "maybe")
    with pytest.raises(ValueError, match=r"^tests: expected file.py::name, got test_a"):
        Statement("A", "1", "says", "exact", tests=("test_a",))
    with pytest.raises(ValueError, match="^evidence: expected one of proof, symbolic"):
        Statement("A", "1", "says", "exact", evidence="rumour")
    with pytest.raises(ValueError, match="^source: expected a source for the evidence"):
        Statement("A", "1", "says", "exact", evidence="proof")
    with pytest.raises(
        ValueError, match="^evidence: expected proof where status is tr"
    ):
        Statement("A", "1", "says", "true", evidence="numerical")
    page = Statement("A", "1", "", "true", evidence="proof", source="bounds#lemma-2")
    assert page.derivation == "docs/reference/derivations/bounds.md#lemma-2"
    cited = Statement(
        "A", "1", "", "true", evidence="proof", source="B 2017, Theorem 1"
    )
    assert cited.derivation == ""


# --- what is run


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project with tests of every kind, and statements about them."""
    # What this project's own plugins import takes longer than the tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    folder = tmp_path / "tests" / "identities"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(TESTS)
    (tmp_path / "tests" / "test_beside.py").write_text("def test_a(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    return tmp_path


def say(label, *tests, status="exact"):
    return Statement("A | B", label, "x_1 < *2*", status, "", (), tests)


HOLDS = say("1", "test_small.py::test_ho*", "tests/test_beside.py::test_a")
FAILS = say("2", "test_small.py::test_fails", status="false as written")
LONG, NONE = say("3", "test_small.py::test_takes_long"), say("4")


def test_names_come_from_the_source_and_patterns_match_them(project):
    file = project / "tests" / "identities" / "test_classes.py"
    file.write_text(
        "class TestA:\n    def test_b(self): pass\n    def other(self): 0\n"
    )
    names = collect.node_names(file, project)
    assert names == ["tests/identities/test_classes.py::TestA::test_b"]
    missing = say("5", "test_small.py::test_gone", "test_gone.py::test_a")
    assert collect.unmatched(missing, project) == list(missing.patterns)
    assert not collect.unmatched(HOLDS, project)
    some = say("6", "test_small.py::test_h*[2*]")
    case = "tests/identities/test_small.py::test_holds[2]"
    assert collect.is_claimed(some, case)
    assert collect.is_claimed(HOLDS, case)
    assert not collect.is_claimed(some, case.replace("2", "3"))
    assert not collect.is_claimed(FAILS, case)
    lost = collect.orphans([HOLDS, FAILS, LONG], project)
    assert lost == [*names, "tests/identities/test_small.py::test_belongs_to_nobody"]
    lacking = Statement("A", "1", "says", "exact", "", ("linalg.svd", "linalg.nothing"))
    assert collect.missing_functions(lacking) == ["linalg.nothing"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_outcomes_and_the_largest_number_over_the_parameters(project, processes):
    statements = [HOLDS, FAILS, LONG, NONE]
    asked = main.targets(statements, project)
    assert asked == ["tests/identities", "tests/test_beside.py::test_a"]
    session = measure.run_tests(asked, project, quick=True, processes=processes)
    assert not session.healthy
    assert "on purpose" in session.output
    made = rows.make_rows(statements, session, project)
    outcomes = [row.outcome for row in made]
    assert outcomes == ["passed (4)", "FAILED (1)", "not run", "no test"]
    (error,) = made[0].measured
    assert (error.name, error.value, error.count) == ("error", -3e-16, 3)
    assert rows.number(error) == "error: -3e-16 (largest of 3)"
    assert rows.number(made[1].measured[0]) == "error: nan (largest of 2)"
    assert rows.summary(made) == (
        "4 statements: 3 exact, 1 false as written; evidence: 4 none; "
        "tests: 1 passed, 1 FAILED, 1 not run, 1 no test"
    )


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_no_success(project):
    (project / "tests" / "identities" / "test_broken.py").write_text("import nothing_x")
    session = measure.run_tests(["tests/identities"], project, processes="0")
    assert not session.healthy
    assert "nothing_x" in session.output


# --- what is printed and written


def test_the_command_prints_every_statement_and_writes_the_page(project, capsys):
    output = project / "page.md"
    arguments = ["--quick", "--output", str(output), "--processes", "0"]
    everything = say("6", "test_small.py::test_belongs*")
    status = main.main(arguments, [HOLDS, LONG, NONE, everything, FAILS], project)
    printed = capsys.readouterr().out
    assert status == 1
    assert "FAILED" in printed
    assert "on purpose" in printed
    text = output.read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[1:]] == [f"| {k}" for k in "13462"]
    assert "error: -3e-16 (largest of 3)" in lines[1]
    assert "| none | no test |" in lines[3]
    assert r"x\_1 \< \*2\*" in lines[1]
    assert [path.name for path in project.glob(".writing*")] == []


def test_success_needs_every_test_and_no_orphan(project, capsys):
    path = project / "tests" / "identities" / "test_small.py"
    path.write_text("def test_holds(): pass\n")
    arguments = ["--output", str(project / "page.md"), "--processes", "0"]
    assert main.main(arguments, [HOLDS], project) == 0
    assert main.main(arguments, [say("1", "test_small.py::test_x")], project) == 1
    assert "no statement claims tests/identities/test_small.py::test_holds" in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_page_is_whole_or_not_there(tmp_path):
    with pytest.raises(ValueError, match="^output: expected a file in a folder"):
        main.main(
            ["--output", str(tmp_path / "nowhere" / "page.md")], [HOLDS], tmp_path
        )
    (tmp_path / "page.md").mkdir()
    with pytest.raises(ValueError, match="^output: expected a file that can be writ"):
        report.write_whole(tmp_path / "page.md", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]
