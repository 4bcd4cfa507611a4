"""The record of one statement in the ledger."""

import dataclasses

__all__ = ["EVIDENCE", "IDENTITIES", "PROOFS", "STATUSES", "Statement"]

STATUSES = (
    "exact",
    "true",
    "conditional",
    "vacuous",
    "reconstructed",
    "false as written",
    "empirical",
    "no claim",
)
EVIDENCE = (
    "proof",
    "symbolic",
    "exact arithmetic",
    "numerical",
    "simulation",
    "none",
)
PROOFS = "docs/reference/derivations"
IDENTITIES = "tests/identities"


@dataclasses.dataclass(frozen=True)
class Statement:
    """A numbered statement of a paper.

    Attributes:
        paper: Authors and year.
        label: Number in the paper.
        says: What it claims, in a few words.
        status: ``exact`` (an identity or a definition), ``true`` (an inequality or
            property with a proof), ``conditional``, ``vacuous`` (its assumption never
            holds), ``reconstructed`` (the printed form is lost or was recalled),
            ``false as written``, ``empirical`` (an observation), or ``no claim``.
        corrected: Form or condition under which it holds; empty where it stands.
        functions: Names below ``icltheory`` that compute it.
        tests: Tests that check it, ``file.py::name``, the file below
            ``tests/identities`` unless it has a folder of its own; ``*`` matches any
            part of a name, and ``name[W_V*]`` only the cases of these parameters.
        evidence: The strongest kind there is for what the row says: ``proof``,
            ``symbolic``, ``exact arithmetic``, ``numerical``, ``simulation``,
            ``none``.
        source: Where the proof is: ``page#section`` of ``docs/reference/derivations``
            or a paper with the number of its theorem.
    """

    paper: str
    label: str
    says: str
    status: str
    corrected: str = ""
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    evidence: str = "none"
    source: str = ""

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(
                f"status: expected one of {', '.join(STATUSES)}, got {self.status}"
            )
        if self.evidence not in EVIDENCE:
            raise ValueError(
                f"evidence: expected one of {', '.join(EVIDENCE)}, got {self.evidence}"
            )
        if (self.evidence == "proof") != bool(self.source):
            raise ValueError(
                f"source: expected a source for the evidence proof and '' for any "
                f"other, got {self.source!r} for {self.evidence}"
            )
        if self.status == "true" and self.evidence != "proof":
            raise ValueError(
                f"evidence: expected proof where status is true, got {self.evidence}"
            )
        for pattern in self.tests:
            if pattern.count("::") != 1:
                raise ValueError(f"tests: expected file.py::name, got {pattern}")

    @property
    def derivation(self) -> str:
        """Path of the section that proves the statement; empty for a cited paper."""
        page, _, section = self.source.partition("#")
        return f"{PROOFS}/{page}.md#{section}" if section and " " not in page else ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Test patterns with the full path of their file."""
        return tuple(
            test if "/" in test.split("::")[0] else f"{IDENTITIES}/{test}"
            for test in self.tests
        )
