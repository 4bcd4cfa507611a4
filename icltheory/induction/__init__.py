"""Induction heads: scores of attention heads, and a hand-built circuit.

The scores of Olsson et al., "In-context Learning and Induction Heads" (2022), for the
heads of any layered model: prefix matching, previous token, copying and in-context
score. :func:`induction_circuit` gives two layers of attention that repeat a sequence.

Stability: provisional.
"""

from icltheory.induction.circuit import InductionCircuit, induction_circuit
from icltheory.induction.scores import (
    Head,
    HeadScores,
    copying_ratio,
    copying_score,
    find_heads,
    head_copying,
    head_scores,
    in_context_score,
    prefix_matching_score,
    previous_token_score,
)

__all__ = [
    "Head",
    "HeadScores",
    "InductionCircuit",
    "copying_ratio",
    "copying_score",
    "find_heads",
    "head_copying",
    "head_scores",
    "in_context_score",
    "induction_circuit",
    "prefix_matching_score",
    "previous_token_score",
]
