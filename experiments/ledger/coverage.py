"""Prints every label of the five documents with the row of the ledger that covers it.

Command
    python -m experiments.ledger.coverage

The labels of statements, displays, tables and figures are data of the repository
(``labels.json``), by document: the documents are not part of it.
"""

import json
from pathlib import Path

from experiments.ledger.statements import STATEMENTS, Statement

LABELS = Path(__file__).with_name("labels.json")


def labels() -> dict[str, dict[str, str]]:
    """Returns each document's labels with the name of their row, ``paper: label``."""
    return json.loads(LABELS.read_text())


def row_of(name: str) -> Statement:
    """Returns the row of a name such as ``Yao: Eq. (1)``."""
    found = [said for said in STATEMENTS if said.name == name]
    if len(found) != 1:
        raise ValueError(f"labels: expected one row of {name}, got {len(found)}")
    return found[0]


def main() -> None:
    """Prints the list."""
    for document, rows in labels().items():
        print(f"{document}: {len(rows)} labels")
        for label, name in rows.items():
            row = row_of(name)
            print(f"  {label:24} {row.status:16} {row.evidence:16} {name}")


if __name__ == "__main__":
    main()
