"""Beam search over sets of candidates, scored by a given function."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class State(NamedTuple):
    """A set of candidates in the order in which they were added.

    Attributes:
        chosen: Numbers of the candidates.
        scores: Score of the empty set and after each candidate.
    """

    chosen: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def score(self) -> float:
        """Score of the whole set."""
        return self.scores[-1]


class BeamResult(NamedTuple):
    """The result of a beam search.

    Attributes:
        best: The best set.
        evaluations: How many sets were scored, the empty one included.
        stopped: Why: ``"budget"``, ``"no improvement"`` or ``"no candidates"``.
    """

    best: State
    evaluations: int
    stopped: str


def beam_search(
    start: float,
    touched: Sequence[set[Any]],
    score: Callable[[list[tuple[tuple[int, ...], int]]], Sequence[float]],
    budget: int,
    beam: int,
) -> BeamResult:
    """Adds candidates one by one while the best set becomes strictly better.

    Args:
        start: Score of the empty set, which counts as one evaluation.
        touched: What each candidate acts on; two that share some are never together.
        score: From pairs of a set and a candidate that is added to it to the scores.
        budget: Most sets that are scored.
        beam: How many sets of each size are extended.
    """
    best = State((), (start,))
    states, seen, evaluations = [best], {frozenset()}, 1
    while True:
        pairs = list(_extensions(states, touched, seen))
        if not pairs:
            return BeamResult(best, evaluations, "no candidates")
        within = pairs[: budget - evaluations]
        if not within:
            return BeamResult(best, evaluations, "budget")
        scores = score([(state.chosen, number) for state, number in within])
        evaluations += len(within)
        found = [
            State((*state.chosen, number), (*state.scores, value))
            for (state, number), value in zip(within, scores, strict=True)
        ]
        found.sort(key=lambda state: -state.score)  # the sort is stable for equal ones
        better = found[0].score > best.score
        best = found[0] if better else best
        if len(within) < len(pairs):
            return BeamResult(best, evaluations, "budget")
        if not better:
            return BeamResult(best, evaluations, "no improvement")
        states = found[:beam]


def _extensions(states, touched, seen):
    """Yields sets with one more candidate that were not scored in another order."""
    for state in states:
        taken = set().union(*(touched[number] for number in state.chosen))
        for number, own in enumerate(touched):
            new = frozenset((*state.chosen, number))
            if taken.isdisjoint(own) and new not in seen:
                seen.add(new)
                yield state, number
