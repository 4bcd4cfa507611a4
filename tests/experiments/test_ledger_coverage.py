"""Every label of the five documents has a row; the list is that of the documents."""

import os
from pathlib import Path

import pytest

from experiments.ledger import coverage

# Folder with the documents, which are not part of the repository.
PAPERS = os.environ.get("ICLTHEORY_PAPERS", "")


@pytest.mark.parametrize("document", coverage.DOCUMENTS)
def test_every_label_has_a_row(document):
    rows = coverage.labels()[document]
    assert len(rows) > 5
    for name in rows.values():
        assert coverage.row_of(name).status


def test_list_has_the_documents_and_what_they_number():
    known = coverage.labels()
    assert list(known) == list(coverage.DOCUMENTS)
    paper, _, _, block, slides = known.values()
    assert {f"Theorem {i}" for i in (1, 2)} | {f"Lemma {i}" for i in range(1, 7)} <= {
        *paper
    }
    assert {f"Eq. ({i})" for i in range(1, 22)} <= {*paper}
    assert {f"Table {i}" for i in range(1, 9)} <= {*paper}
    assert {"Theorem 4.1", "Definition A.1", "Corollary 6.2", "Table 1"} <= {*block}
    assert {f"Figure {i}" for i in range(1, 29)} <= {*slides}
    assert {f"Eq. ({i})" for i in range(1, 13)} <= {*slides}


def test_a_name_without_a_row_is_refused():
    with pytest.raises(ValueError, match="^labels: expected one row of Yao: Eq. "):
        coverage.row_of("Yao: Eq. (99)")


def test_command_prints_a_line_for_every_label(capsys):
    assert coverage.main([]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] == " "]
    assert len(lines) == sum(len(rows) for rows in coverage.labels().values())
    assert any("Theorem 2 " in line and "vacuous" in line for line in lines)


def test_labels_are_read_from_texts(tmp_path, capsys):
    """Small texts in the layouts of the five documents; what is missing is named."""
    texts = dict.fromkeys(coverage.DOCUMENTS, "")
    paper, _, summary, block, slides = texts
    texts[paper] = (
        "**Lemma 1** (A name). Text.\n$$a$$\n(1)\n**Theorem 1** says.\nTable 2: A\n"
        "# References\n# **A Related Works**\n$$b \\quad (18)$$ see Eq. (\\*)\n"
    )
    texts[summary] = "".join(
        f"{heading}\n- a\n1. b\n## c\n"
        for heading in ("Key Results", "**First Experiments:**", "Next Checks")
    )
    texts[block] = "Lemma H.1 (Von Neumann).\n| (3.1) |\n"
    texts[slides] = "## Theorem 1 (In)\n$$x \\quad (1)$$\n*Figure 2: b*\n"
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = coverage.read_labels(tmp_path)
    both = ["Eq. (1)", "Eq. (18)", "Eq. (*)", "display 1", "display 2"]
    assert found[paper] == ["Lemma 1", "Table 2", *both]
    assert found[summary] == ["Key Results 1", "First Experiments 1", "Next Checks 1"]
    assert found[block] == ["Lemma H.1", "Eq. (3.1)"]
    assert found[slides] == ["Theorem 1", "Figure 2", "Eq. (1)", "display 1"]
    assert coverage.main([str(tmp_path)]) == 1
    assert f"{paper}: Lemma 2 is missing in the text" in capsys.readouterr().out


@pytest.mark.skipif(not Path(PAPERS or "nowhere").is_dir(), reason="no documents")
def test_list_is_that_of_the_documents():
    found = coverage.read_labels(Path(PAPERS))
    known = coverage.labels()
    assert {name: {*rows} for name, rows in found.items()} == {
        name: {*rows} for name, rows in known.items()
    }
