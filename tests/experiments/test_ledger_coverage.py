"""Every label of the five documents has a row."""

import pytest

from experiments.ledger import coverage


@pytest.mark.parametrize("document", coverage.labels())
def test_every_label_has_a_row(document):
    rows = coverage.labels()[document]
    assert len(rows) > 5
    for name in rows.values():
        assert coverage.row_of(name).status


def test_list_has_the_documents_and_what_they_number():
    known = coverage.labels()
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
    coverage.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] == " "]
    assert len(lines) == sum(len(rows) for rows in coverage.labels().values())
    assert any("Theorem 2 " in line and "vacuous" in line for line in lines)
