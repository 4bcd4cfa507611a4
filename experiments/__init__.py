"""Experiments: ``python -m experiments.NAME``; nothing imports them.

In a wheel they lie inside ``icltheory``, where ``icltheory run NAME`` runs them.
"""

from pathlib import Path

IN_WHEEL = Path(__file__).parents[1].name == "_shipped"


def words_of(name: str) -> tuple[str, ...]:
    """The words of a command line that runs an experiment here."""
    here = "python", "-m", f"{__name__}.{name}"
    return ("icltheory", "run", name) if IN_WHEEL else here
