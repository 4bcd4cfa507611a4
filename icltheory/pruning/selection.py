"""Score of a searched rate on examples that the search did not use."""

from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import (
    check_booleans,
    check_nonnegative_int,
    check_positive_int,
    check_shape,
)
from icltheory.pruning.choice import choose_rate

__all__ = ["Selection", "corrected_selection"]


class Selection(NamedTuple):
    """Result of :func:`corrected_selection`.

    Args:
        rate: The rate chosen on all examples; 0 when nothing improved.
        score: Its accuracy on them, which flatters it.
        corrected: Mean accuracy of a rate chosen on one half, on the other half.
        optimism: Mean of what the choosing half says of it, less ``corrected``.
        unpruned: Accuracy of the unpruned model.
        frequencies: How often the halves chose each rate; what is missing to 1 chose
            none.
    """

    rate: float
    score: float
    corrected: float
    optimism: float
    unpruned: float
    frequencies: tuple[float, ...]


def corrected_selection(
    correct: Any, rates: Any, unpruned: Any, *, splits: int = 100, seed: int = 0
) -> Selection:
    r"""Searches over rates, and scores the choice on other examples.

    .. math:: \frac{1}{2S} \sum_{s=1}^{S} \big[
        a_{B_s}(\xi^*(A_s)) + a_{A_s}(\xi^*(B_s)) \big] , \qquad
        \xi^*(A) = \mathtt{choose\_rate} \text{ on the examples } A

    over S random divisions of the examples into halves :math:`A_s, B_s` (of an odd
    number, B has one more). A choice on half of the examples is a little worse than the
    one on all, so the corrected score errs low where the score of the search errs high.
    The divisions overlap: their spread is no standard error.

    Args:
        correct: Whether each rate is right on each example, one row a rate.
        rates: The rates, in [0, 1).
        unpruned: The same for the unpruned model.
        splits: How many divisions.
        seed: Fixes them.

    Returns:
        The choice on all examples, its score, and the corrected score.

    Example:
        >>> import numpy as np
        >>> right = np.random.default_rng(0).random((9, 200)) < 0.5
        >>> found = corrected_selection(right[1:], np.arange(8) / 8, right[0])
        >>> found.score > found.corrected
        True

    Source: Varma and Simon (2006); Yao et al. (2024), Algorithm 1.
    """
    table, base = (
        check_booleans("correct", correct, 2),
        check_booleans("unpruned", unpruned),
    )
    check_shape("unpruned", base, table.shape[1:])
    check_positive_int("splits", splits)
    check_nonnegative_int("seed", seed)
    if base.size < 2:
        raise ValueError(f"correct: expected at least two examples, got {base.size}")
    rng = np.random.default_rng(seed)
    seen, judged, picks = [], [], []
    for _ in range(splits):
        order = rng.permutation(base.size)
        halves = np.split(order, [base.size // 2])
        for chosen_on, judged_on in (halves, halves[::-1]):
            choice = _choose(table[:, chosen_on], rates, base[chosen_on])
            row = base if choice.index is None else table[choice.index]
            seen.append(choice.score)
            judged.append(row[judged_on].mean())
            picks.append(choice.index)
    whole = _choose(table, rates, base)
    return Selection(
        rate=whole.rate,
        score=whole.score,
        corrected=float(np.mean(judged)),
        optimism=float(np.mean(seen) - np.mean(judged)),
        unpruned=float(base.mean()),
        frequencies=tuple(picks.count(i) / len(picks) for i in range(len(table))),
    )


def _choose(table: np.ndarray, rates: Any, base: np.ndarray):
    return choose_rate(table.mean(axis=1), rates, base.mean())
