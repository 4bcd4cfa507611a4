"""A search for several interventions that together improve a score."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from icltheory._checks import check_positive_int, check_sequence
from icltheory.layered import LayeredModel
from icltheory.pruning.interventions import Intervention

Composition = tuple[Intervention, ...]


@dataclasses.dataclass(frozen=True)
class Search:
    """The result of :func:`search`.

    Args:
        path: The chosen interventions in the order in which they were added.
        tried: Every composition that was scored, and its score; ``()`` is unpruned.
        stopped: Why it ended: ``"no improvement"``, ``"budget"``, or ``"no
            candidates"`` where all were chosen or overlap with what was.

    Source: Sharma et al. (2023), "LASER", section 5.
    """

    path: Composition
    tried: dict[Composition, float]
    stopped: str

    @property
    def scores(self) -> tuple[float, ...]:
        """Score of the unpruned model, and after each intervention of the path."""
        return tuple(self.tried[self.path[:i]] for i in range(len(self.path) + 1))


def search(
    model: LayeredModel,
    candidates: Sequence[Intervention | str],
    score: Callable[[list[Composition]], Any],
    *,
    budget: int | None = None,
    beam: int = 1,
) -> Search:
    r"""Adds interventions one by one while the best score s becomes strictly larger.

    .. math:: C_0 = \emptyset , \qquad C_{t+1} = \arg\max_{c} s(C_t \cup \{c\})
        \quad \text{while} \quad s(C_{t+1}) > s(C_t)

    over the candidates c that share no matrix with :math:`C_t`. With a beam of B the B
    best compositions of each size are extended. Of equal ones the first is taken, in
    the order of the candidates; NaN never wins. No composition is scored twice.
    Candidates that all prune one module are Algorithm 1's search of a rate.

    Args:
        model: The model, which says which matrices a candidate changes.
        candidates: What may be pruned, as records or text such as ``"26:mlp:0.9"``.
        score: From compositions to a score for each, the larger the better. All of one
            size come in one call, the unpruned model with the first.
        budget: Most compositions that are scored, the unpruned model included; a budget
            that ends within a size leaves out its last ones.
        beam: How many compositions of each size are extended; 1 is greedy.

    Example:
        >>> from icltheory.layered import LayeredStack
        >>> model = LayeredStack(2, (("W_V", "attn"), ("W_K", "attn")))
        >>> gains = {"0:W_V:0.5": 2, "0:W_V:0.9": 1, "1:W_K:0.5": 3}
        >>> def score(sets):
        ...     return [sum(gains[str(one)] for one in each) for each in sets]
        >>> found = search(model, list(gains), score)
        >>> [str(one) for one in found.path], found.scores, len(found.tried)
        (['1:W_K:0.5', '0:W_V:0.5'], (0.0, 3.0, 5.0), 6)

    Source: Sharma et al. (2023), "The truth is in there: improving reasoning in
    language models with layer-selective rank reduction", section 5.
    """
    touched = _candidates(model, candidates)
    check_positive_int("beam", beam)
    if budget is not None:
        check_positive_int("budget", budget)
        if budget < 2:
            raise ValueError(f"budget: expected at least 2 evaluations, got {budget}")
    tried: dict[Composition, float] = {}
    seen: set[frozenset] = {frozenset()}
    best: Composition = ()
    states: list[Composition] = [()]
    while True:
        wider = list(_extensions(states, touched, seen))
        if not wider:
            return Search(best, tried, "no candidates")
        new = wider if tried else [(), *wider]
        within = new if budget is None else new[: budget - len(tried)]
        if within:
            tried |= zip(within, map(float, score(within)), strict=True)
        if math.isnan(tried[()]):
            raise ValueError("score: expected a number of the unpruned model, got nan")
        order = sorted((one for one in within if one), key=lambda c: _key(tried[c]))
        better = bool(order) and tried[order[0]] > tried[best]
        best = order[0] if better else best
        if len(within) < len(new):
            return Search(best, tried, "budget")
        if not better:
            return Search(best, tried, "no improvement")
        states = order[:beam]


def _key(score: float) -> float:
    return math.inf if math.isnan(score) else -score


def _candidates(model, candidates) -> dict[Intervention, set[Any]]:
    """The matrices that each candidate changes."""
    check_sequence("candidates", candidates)
    read = [
        Intervention.parse(one) if isinstance(one, str) else one for one in candidates
    ]
    if not read:
        raise ValueError("candidates: expected at least one, got none")
    names = [str(one) for one in read]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"candidates: expected no duplicates, got {name} twice")
    return {one: _touched(model, one) for one in read}


def _touched(model: LayeredModel, one: Intervention) -> set[Any]:
    specs = one.specs(model)
    if one.layer is None:  # tied matrices can be pruned apart from each other
        return set(one.matrices)
    return {(spec.path, spec.rows) for spec in specs}


def _extensions(states, touched, seen) -> Iterator[Composition]:
    """Compositions with one more candidate, each in the first order it is met in."""
    for state in states:
        taken = set().union(*(touched[one] for one in state))
        for one, own in touched.items():
            new = frozenset((*state, one))
            if taken.isdisjoint(own) and new not in seen:
                seen.add(new)
                yield (*state, one)
