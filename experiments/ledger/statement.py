"""What a line of the ledger says."""

import dataclasses

__all__ = ["IDENTITIES", "STATUSES", "Statement"]

STATUSES = ("exact", "true", "conditional", "false as written", "empirical")
IDENTITIES = "tests/identities"


@dataclasses.dataclass(frozen=True)
class Statement:
    """A numbered statement of a paper.

    Attributes:
        paper: Authors and year.
        label: Number in the paper.
        says: What it claims, in a few words.
        status: ``exact`` (an identity), ``true`` (an inequality or property),
            ``conditional``, ``false as written``, or ``empirical``: no theorem.
        corrected: Form or condition under which it holds; empty where it stands.
        functions: Names below ``icltheory`` that compute it.
        tests: Tests that check it, ``file.py::name``, the file below
            ``tests/identities`` unless it has a folder of its own; ``*`` matches any
            part of a name, and ``name[W_V*]`` only the cases of these parameters.
    """

    paper: str
    label: str
    says: str
    status: str
    corrected: str = ""
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(
                f"status: expected one of {', '.join(STATUSES)}, got {self.status}"
            )
        for pattern in self.tests:
            if pattern.count("::") != 1:
                raise ValueError(f"tests: expected file.py::name, got {pattern}")

    @property
    def patterns(self) -> tuple[str, ...]:
        """The tests with the whole path of their file."""
        return tuple(
            test if "/" in test.split("::")[0] else f"{IDENTITIES}/{test}"
            for test in self.tests
        )
