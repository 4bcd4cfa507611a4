"""The ledger: what it declares is there, and what it shows is what happened."""

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest

from experiments.ledger import coverage, formulas, main, statements
from experiments.ledger.statements import STATEMENTS, Statement

ROOT = Path(__file__).parents[2]
NAMES = [said.name for said in STATEMENTS]
CORRECTED = {"exact", "true", "no claim", "reproduced"} ^ statements.STATUSES.keys()
TESTS = """
import pytest

@pytest.mark.statement("A: 1")
@pytest.mark.statement("A: 2", case="2*")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_holds(size, record_property):
    if size == 4:
        pytest.skip("counts for nothing")
    record_property("error", -1e-16 * size)

@pytest.mark.statement("A: 3")
def test_fails(record_property):
    record_property("error", float("inf"))
    record_property("error", float("nan"))
    assert False, "on purpose"

@pytest.mark.slow
@pytest.mark.statement("A: 4")
def test_takes_long(): pass
"""
PASSES = '@pytest.mark.statement("A: 1")\ndef test_one(): pass\n'
MARKS = "slow: takes long\n    statement: names"


# --- what is declared


@pytest.mark.parametrize("said", STATEMENTS, ids=NAMES)
def test_functions_tests_and_pages_of_a_statement_exist(said):
    assert not [name for name in said.functions if not exists(name)]
    for page in said.experiments:
        assert (ROOT / "docs" / "experiments" / f"{page}.md").is_file()
    if said.proof:
        page, _, section = said.proof.partition("#")
        assert section in sections(page)
    tests = statements.claimed(said)
    if said.evidence != "none":
        assert tests or (said.evidence == "simulation" and said.experiments)
    if said.status in ("true", "conditional", "vacuous"):
        assert said.evidence != "none"
    if said.status in CORRECTED:
        assert said.corrected


def exists(name):
    """Whether a function, or a method or property of a class, can be imported."""
    module, _, symbol = f"icltheory.{name}".rpartition(".")
    outer, _, owner = module.rpartition(".")
    if owner[:1].isupper():
        return hasattr(getattr(importlib.import_module(outer), owner), symbol)
    return hasattr(importlib.import_module(module), symbol)


@functools.cache
def sections(page):
    """Anchors of the headings of a derivation, as the site and code hosts make them."""
    text = (ROOT / "docs/reference/derivations" / f"{page}.md").read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_paper_is_read_and_no_name_is_given_twice():
    files = Path(statements.__file__).parent.glob("*.toml")
    assert len({said.paper for said in STATEMENTS}) == len([*files])
    assert len(set(NAMES)) == len(NAMES)
    assert STATEMENTS[0].name == "Yao: Eq. (1)"


def test_every_identity_test_names_statements_that_exist():
    assert statements.without_mark() == []
    assert statements.unknown_names(STATEMENTS) == []


@functools.cache
def slow_tests(file):
    """Test functions of a file of which no case is in the quick tier."""
    tree = ast.parse((ROOT / file).read_text())
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        f"{file}::{test.name}"
        for test in tests
        if {"pytest.mark.slow", "SLOW"} & {*map(ast.unparse, test.decorator_list)}
    }


def test_every_statement_has_a_quick_test():
    for said in STATEMENTS:
        tests = statements.claimed(said)
        slow = [case for case in tests if case in slow_tests(case.split("::")[0])]
        assert slow != tests or not tests, said.name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "maybe"}, "^status: expected one of exact, true, .* got 'maybe'"),
        ({"evidence": "rumour"}, "^evidence: expected one of proof, symbolic"),
        ({"evidence": "proof"}, "^proof: expected page#section where the evidence is"),
        ({"proof": "bounds#lemma-2"}, "^proof: expected page#section where the evid"),
        ({"status": "true"}, "^proof: expected one for A: 1, which is true"),
    ],
)
def test_a_statement_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        say("1", **fields)


def test_formulas_are_readable_on_the_page_and_on_a_terminal():
    for text in (text for said in STATEMENTS for text in (said.says, said.corrected)):
        words, parts = text.split("$")[::2], text.split("$")[1::2]
        assert len(words) == len(parts) + 1  # every formula ends
        # A bar would end the cell of the table, and words are not LaTeX.
        assert not any("|" in part for part in parts)
        assert not any(re.search(r"[\\^]|\w_\w", word) for word in words)
        assert not {*"$\\{}"} & {*formulas.plain(text)}


def test_a_formula_on_a_terminal_has_unicode():
    norm = r"$\frac1N \sum_i \lVert \tilde W_{t-1} \rVert_F^2 \le \sqrt{2 I}$"
    text = formulas.plain(f"{norm}, and $a^\\top b$")
    assert text == "1/N ∑_i ‖W̃_(t-1)‖_F² ≤ √(2 I), and aᵀ b"
    fraction = r"$\log \frac{R^2 + 1}{N} \to \sigma_{\max}$"
    assert formulas.plain(fraction) == "log (R² + 1)/N → σ_max"
    assert formulas.markdown("a_1 *b* $c_1 * d$") == r"a\_1 \*b\* $c_1 * d$"


def test_the_page_is_that_of_the_rows_and_the_stored_numbers():
    when, rows = main.stored(STATEMENTS, ROOT)
    text = main.page(STATEMENTS, rows, when, ROOT)
    assert (ROOT / main.PAGE).read_text() == text, "python -m experiments.ledger --page"


# --- every label of the five documents


@pytest.mark.parametrize("document", coverage.labels())
def test_every_label_has_a_row(document):
    rows = coverage.labels()[document]
    assert len(rows) > 5
    for name in rows.values():
        assert coverage.row_of(name).status


def test_list_has_the_documents_and_what_they_number():
    known = coverage.labels()
    paper, _, _, block, slides = known.values()
    counts = {"Theorem {}": 2, "Lemma {}": 6, "Eq. ({})": 21, "Table {}": 8}
    for kind, count in counts.items():
        assert {kind.format(i) for i in range(1, count + 1)} <= {*paper}
    assert {"Theorem 4.1", "Definition A.1", "Corollary 6.2", "Table 1"} <= {*block}
    assert {f"Figure {i}" for i in range(1, 29)} <= {*slides}
    assert {f"Eq. ({i})" for i in range(1, 13)} <= {*slides}


def test_a_name_without_a_row_is_refused():
    with pytest.raises(ValueError, match="^labels: expected one row of Yao: Eq. "):
        coverage.row_of("Yao: Eq. (99)")


def test_command_prints_a_line_for_every_label(capsys):
    coverage.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] == " "]
    assert len(lines) == sum(len(rows) for rows in coverage.labels().values())
    assert any("Theorem 2 " in line and "vacuous" in line for line in lines)


# --- what is run


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project with tests of every kind, and a folder for the page."""
    # What this project's own plugins import takes longer than the tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    for folder in ("tests/identities", "docs/reference", "experiments/ledger"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests" / "identities" / "test_small.py").write_text(TESTS)
    (tmp_path / "tests" / "test_beside.py").write_text(f"import pytest\n\n{PASSES}")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n    {MARKS}\n")
    return tmp_path


def say(label, status="exact", **fields):
    return Statement("A | B", "A", label, "x_1 < *2*", status, **fields)


def test_marks_are_read_from_the_source(project):
    file = project / "tests" / "identities" / "test_all_of_it.py"
    file.write_text(
        'pytestmark = [SLOW, pytest.mark.statement("A: 1", "A: 9")]\n'
        "def test_b(): pass\ndef other(): 0\n"
    )
    beside = project / "tests" / "identities" / "test_without.py"
    beside.write_text("def test_belongs_to_nobody(): pass\n")
    of_file = "tests/identities/test_all_of_it.py::test_b"
    assert statements.node_names(file, project) == [of_file]
    holds, one = "tests/identities/test_small.py::test_holds", "tests/test_beside.py"
    of_1 = [of_file, holds, f"{one}::test_one"]
    assert statements.claimed(say("1"), project) == of_1
    assert statements.checked_by(f"{holds}[2]", project) == {"A: 1", "A: 2"}
    assert statements.checked_by(f"{holds}[3]", project) == {"A: 1"}
    known = tuple(map(say, "1234"))
    assert statements.unknown_names(known, project) == [f"{of_file}: A: 9"]
    lost = statements.without_mark(project)
    assert lost == ["tests/identities/test_without.py::test_belongs_to_nobody"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_outcomes_and_the_largest_number_over_the_parameters(project, processes):
    known = [*map(say, "1234"), say("5", status="false as written")]
    cases, failures = main.run_tests(
        ["tests"], project, quick=True, processes=processes
    )
    assert "on purpose" in failures
    rows = main.make_rows(known, cases, project)
    outcomes = [row.outcome for row in rows.values()]
    expected = ["passed (4)", "passed (1)", "FAILED (1)", "not run", "no test"]
    assert outcomes == expected
    assert rows["A: 1"].measured == [("error", -3e-16, 3)]
    assert [*rows["A: 1"].numbers()] == ["error: -3e-16 (largest of 3)"]
    assert [*rows["A: 3"].numbers()] == ["error: nan (largest of 2)"]
    assert main.summary(known, rows) == (
        "5 statements: 4 exact, 1 false as written; evidence: 5 none; "
        "tests: 2 passed, 1 FAILED, 1 not run, 1 no test"
    )


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_no_success(project):
    (project / "tests" / "identities" / "test_broken.py").write_text("import nothing_x")
    _, failures = main.run_tests(["tests"], project, quick=False, processes="0")
    assert "nothing_x" in failures


# --- what is printed and written


def test_the_command_stores_the_numbers_and_writes_the_page(project, capsys):
    known = tuple(map(say, "12345"))
    status = main.main(["--quick", "--processes", "0"], known, project)
    printed = capsys.readouterr().out
    assert status == 1
    assert "A: 3: FAILED (1)" in printed
    assert "on purpose" in printed
    text = (project / main.PAGE).read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[1:]] == [f"| {k}" for k in "12345"]
    assert "error: -3e-16 (largest of 3)" in lines[1]
    assert "[`test_beside.py`](../../tests/test_beside.py) (1)" in lines[1]
    assert "| none | no test |" in lines[5]
    assert r"x\_1 \< \*2\*" in lines[1]
    assert list(project.rglob(".writing*")) == []
    (project / main.PAGE).unlink()
    assert main.main(["--page"], known, project) == 0
    assert (project / main.PAGE).read_text() == text


def test_success_needs_every_test_to_name_a_statement(project, capsys):
    path = project / "tests" / "identities" / "test_small.py"
    path.write_text(f"import pytest\n\n{PASSES}")
    line = ["--output", str(project / "page.md"), "--processes", "0"]
    assert main.main(line, (say("1"),), project) == 0
    path.write_text(f"import pytest\n\n{PASSES}\ndef test_new(): pass\n")
    assert main.main(line, (say("1"),), project) == 1
    assert f"no statement: {path.relative_to(project)}::test_new" in (
        capsys.readouterr().out
    )


def test_the_page_is_whole_or_not_there(project):
    nowhere = str(project / "nowhere" / "page.md")
    with pytest.raises(ValueError, match="^output: expected a file in a folder"):
        main.main(["--output", nowhere], (), project)
    main.main(["--quick", "--processes", "0"], (say("1"),), project)
    (project / "folder.md").mkdir()
    line = ["--page", "--output", str(project / "folder.md")]
    with pytest.raises(ValueError, match="^output: expected a file that can be writ"):
        main.main(line, (say("1"),), project)
    assert list(project.rglob(".writing*")) == []
