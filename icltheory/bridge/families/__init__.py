"""The decoder families, each with a short declaration.

A family reads its config into an :class:`~icltheory.bridge.Architecture` and says under
which names a checkpoint keeps which matrices, and in what layout. The same declaration
serves reading and writing.
"""

from icltheory.bridge.families.declare import Entry, Family, Stored
from icltheory.bridge.families.entries import entries_of
from icltheory.bridge.families.registry import FAMILIES, family_of, read_architecture

__all__ = [
    "FAMILIES",
    "Entry",
    "Family",
    "Stored",
    "entries_of",
    "family_of",
    "read_architecture",
]
