"""Maps every statement, display, table and figure of the five documents to its row.

Command
    python -m experiments.ledger.coverage [FOLDER]

What it does
    Prints the labels of the five documents, each with the row of the ledger that covers
    it. The labels are data of the repository (``labels.json``): the documents are not
    part of it. With a folder that holds them, it reads their labels again and says what
    is missing on either side; then the status is 1.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from experiments.ledger.statements import STATEMENTS, Statement

__all__ = ["labels", "main", "read_labels", "row_of"]

LABELS = Path(__file__).with_name("labels.json")
KINDS = "Theorem|Lemma|Corollary|Remark|Definition|Assumption|Proposition|Example|Case"


def labels() -> dict[str, dict[str, str]]:
    """Returns each document's labels with the name of their row, ``paper: label``."""
    return json.loads(LABELS.read_text())


def row_of(name: str) -> Statement:
    """Returns the row of a name such as ``Yao: Eq. (1)``."""
    found = [said for said in STATEMENTS if said.name == name]
    if len(found) != 1:
        raise ValueError(f"labels: expected one row of {name}, got {len(found)}")
    return found[0]


def _numbered(pattern: str, text: str, shape: str) -> Iterator[str]:
    for match in re.finditer(pattern, text, re.MULTILINE):
        yield shape.format(*match.groups())


def _displays(text: str) -> Iterator[str]:
    for index, _ in enumerate(re.finditer(r"\$\$.+?\$\$", text, re.DOTALL)):
        yield f"display {index + 1}"


def _paper_of_yao(text: str) -> Iterator[str]:
    body, appendix = text.split("# References")[0], text.split("# **A Related")[1]
    text = body + appendix
    # A bold label starts a statement, as does "**Theorem 2** (", but not within a
    # sentence.
    yield from _numbered(rf"^\*\*({KINDS}) (\d+)(?:\*\* \(|\.)", text, "{} {}")
    yield from _numbered(r"^(Table|Figure|Algorithm) (\d+)", text, "{} {}")
    yield from _numbered(r"\((a|b)\) (?:Trained|The effect)", text, "Figure 5{}")
    # An equation's number is in its display, after it, or only where the text mentions
    # it.
    tags = re.findall(r"(?:quad|\$,?|Eq\.)\s*(?:<sup>)?\((\d{1,2})\)", text)
    yield from (f"Eq. ({tag})" for tag in sorted(set(tags), key=int))
    yield from (f"Eq. ({tag})" for tag in re.findall(r"Eq\. \((\*+)\)", _plain(text)))
    yield from _displays(text)
    for name in ("Expected generalization error", "Matrix condition number"):
        yield from (f"Definition: {name}" for _ in re.findall(rf"\*\*{name}", text))


def _plain(text: str) -> str:
    return text.replace("\\", "")


def _slides_of_yao(text: str) -> Iterator[str]:
    yield from _numbered(r"^(Lemma|Theorem) (\d\.\d) \(", text, "{} {}")
    yield from _numbered(r"^(Remark) (\d) \(", text, "{} {}")
    yield from _numbered(r"(Figure) (\d\.\d):", text, "{} {}")
    yield from _numbered(r"^ ?(Algorithm) \(Deal", text, "{}")


def _summary_of_yao(text: str) -> Iterator[str]:
    for heading, mark in (
        ("Key Results", "- "),
        ("First Experiments", r"\d\. "),
        ("Next Checks", r"\d\. "),
    ):
        part = re.split(rf"{heading}[:*]*\n", text)[1].split("\n## ")[0]
        count = len(re.findall(rf"^{mark}", part, re.MULTILINE))
        yield from (f"{heading} {index + 1}" for index in range(count))


def _paper_of_zhang(text: str) -> Iterator[str]:
    rows = re.findall(rf"^({KINDS}) ([A-H0-9]\.\d+)(?:\.| \()", text, re.MULTILINE)
    yield from (f"{kind} {number}" for kind, number in rows)
    tags = re.findall(r"\(([A-H3-6]\.\d+)\)", text)
    yield from (f"Eq. ({tag})" for tag in dict.fromkeys(tags))
    yield from _numbered(r"in (Table) (\d)\.", text, "{} {}")


def _slides_of_li(text: str) -> Iterator[str]:
    yield from _numbered(rf"^#+ ({KINDS}) (\d)", text, "{} {}")
    yield from _numbered(r"^\*?(Table|Figure) (\d+):", text, "{} {}")
    tags = re.findall(r"quad \((\d+)\)|\\tag\{(\d+)\}", text)
    yield from (f"Eq. ({first or second})" for first, second in tags)
    yield from _displays(text)


DOCUMENTS: dict[str, Callable[[str], Iterator[str]]] = {
    "yao2024_svd_pruning.md": _paper_of_yao,
    "yao2024_svd_pruning_slides.txt": _slides_of_yao,
    "yao2024_svd_pruning_summary.md": _summary_of_yao,
    "zhang2024_linear_transformer_block.txt": _paper_of_zhang,
    "li2024_nonlinear_icl_cot_slides.md": _slides_of_li,
}


def read_labels(folder: Path) -> dict[str, list[str]]:
    """Reads the labels in the texts of a folder, by document and in order."""
    return {
        name: list(dict.fromkeys(read((folder / name).read_text())))
        for name, read in DOCUMENTS.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the list, and compares it with the texts of a folder; 1 if they differ."""
    arguments = sys.argv[1:] if argv is None else argv
    known, missing = labels(), 0
    for document, rows in known.items():
        print(f"{document}: {len(rows)} labels")
        for label, name in rows.items():
            row = row_of(name)
            print(f"  {label:24} {row.status:16} {row.evidence:16} {name}")
    for folder in arguments:
        for document, found in read_labels(Path(folder)).items():
            for label in set(found) ^ set(known[document]):
                side = "list" if label in found else "text"
                print(f"{document}: {label} is missing in the {side}")
                missing += 1
    return int(missing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
