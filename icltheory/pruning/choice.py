"""The two choices of Algorithm 1, the layer and the rate, and how a choice flatters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import (
    as_decimals,
    as_numbers,
    check_booleans,
    check_choice,
    check_nonnegative_int,
    check_positive_int,
    check_sequence,
    check_shape,
)
from icltheory.pruning.rates import Rank, as_strengths

_AGGREGATES = {
    "max": np.max,
    "mean": np.mean,
    "geometric_mean": lambda row: np.exp(np.mean(np.log(row))),
    "min": np.min,
}


class LayerChoice(NamedTuple):
    """The k layers with the largest scores, largest first, and the deepest of them.

    ``scores`` are the aggregated scores of all layers.

    Source: Yao et al. (2024), Algorithm 1.
    """

    layers: tuple[int, ...]
    deepest: int
    scores: np.ndarray


def choose_layers(
    scores: Sequence[Sequence[float]] | Any, k: int, *, aggregate: str
) -> LayerChoice:
    r"""Algorithm 1's choice of layer: the deepest of the k highest scores.

    .. math:: c_l = \operatorname{agg}_{m} c_{l, m} , \qquad
        l^* = \max \{\, l : c_l \text{ is among the } k \text{ largest} \,\}

    The paper names neither k nor how the condition numbers of the three or four
    matrices of a module become one, and the answer depends on both: they are required.
    Equal scores are ordered by depth, the deeper first. With k = 1 the depth plays no
    part; with k equal to the number of layers the scores play none.

    Args:
        scores: Score of each matrix, such as its condition number, in a row for each
            layer; rows may differ in length.
        aggregate: ``"max"``, ``"mean"``, ``"geometric_mean"`` or ``"min"``.

    Example:
        >>> choose_layers([[9.0, 1.0], [5.0, 5.0], [4.0, 4.0]], 2, aggregate="max")[:2]
        ((0, 1), 1)
        >>> choose_layers([[9.0, 1.0], [5.0, 5.0], [4.0, 4.0]], 2, aggregate="min")[:2]
        ((1, 2), 2)

    Source: Yao et al. (2024), section 3.4 and Algorithm 1.
    """
    check_choice("aggregate", aggregate, tuple(_AGGREGATES))
    check_sequence("scores", scores)
    rows = [np.atleast_1d(as_numbers("scores", row)) for row in scores]
    for row in rows:
        if row.ndim != 1 or not row.size or np.isnan(row).any():
            raise ValueError(
                f"scores: expected rows of numbers, none empty or NaN, got {row}"
            )
        if aggregate == "geometric_mean" and row.min() < 0:
            raise ValueError(f"scores: expected values >= 0, got {row.min()}")
        if aggregate == "geometric_mean" and row.min() == 0 and row.max() == np.inf:
            raise ValueError(
                "scores: expected no 0 together with an infinity in a geometric mean, "
                f"got {row}"
            )
    check_positive_int("k", k)
    if k > len(rows):
        raise ValueError(f"k: expected at most {len(rows)} layers, got {k}")
    with np.errstate(divide="ignore"):
        total = np.array([_AGGREGATES[aggregate](row) for row in rows])
    order = sorted(range(len(rows)), key=lambda l: (total[l], l), reverse=True)
    return LayerChoice(tuple(order[:k]), max(order[:k]), total)


class RateChoice(NamedTuple):
    """A rate or a rank, its score and its place among the candidates.

    They are 0, the initial score and ``None`` when nothing improved.

    Source: Yao et al. (2024), Algorithm 1.
    """

    rate: Any
    score: float
    index: int | None


def choose_rate(
    scores: Sequence[float] | Any,
    rates: Sequence[float] | Any,
    unpruned_score: float | Any,
    *,
    maximize: bool = True,
    initial: str = "unpruned",
) -> RateChoice:
    r"""Algorithm 1's choice of clipping rate, with corrected initialisation.

    .. math:: \xi^* = \arg\max_\xi s(\xi) \text{ if } \max_\xi s(\xi) > s_0 ,
        \text{ otherwise } 0 , \qquad s_0 = s(\text{unpruned}) .

    A tie goes to the smaller rate, then to the larger rank, and NaN never wins. As
    printed the algorithm starts from :math:`s_0 = 0`: it then prunes although the
    unpruned model is better, whenever 0 is not among the candidates, and never prunes
    where scores are negative, such as a log-likelihood. ``initial="zero"`` reproduces
    that and is not to be used.

    The winner of several candidates looks better than it is: judge it on other data.

    Args:
        scores: Score of each candidate.
        rates: The candidates :math:`\xi`, in [0, 1), among which may be a
            :class:`Rank`.
        maximize: Whether a large score is good; for errors say ``False``.

    Example:
        >>> choose_rate([0.6, 0.7, 0.7], [0.1, 0.9, 0.5], 0.65)
        RateChoice(rate=0.5, score=0.7, index=2)
        >>> choose_rate([0.6, 0.7], [0.1, 0.5], 0.65, maximize=False).rate
        0.1

    Source: Yao et al. (2024), Algorithm 1.
    """
    check_choice("initial", initial, ("unpruned", "zero"))
    values, candidates = as_decimals("scores", scores), as_strengths(rates)
    if values.shape != (len(candidates),):
        raise ValueError(
            f"scores: expected one for each of the rates, shape "
            f"({len(candidates)},), got {values.shape}"
        )
    start = 0.0
    if initial == "unpruned":
        known = as_decimals("unpruned_score", unpruned_score)
        check_shape("unpruned_score", known, ())
        start = float(known)
    if np.isnan(start):
        raise ValueError("unpruned_score: expected a number, got nan")
    sign = 1.0 if maximize else -1.0
    best = RateChoice(0.0, start, None)
    for index in weakest_first(candidates):
        if sign * values[index] > sign * best.score:
            best = RateChoice(candidates[index], float(values[index]), index)
    return best


def weakest_first(strengths: Sequence[Any]) -> list[int]:
    """Order of strengths: rates from the smallest on, then ranks from the largest."""

    def key(index):
        one = strengths[index]
        return (1, -one.value) if isinstance(one, Rank) else (0, one)

    return sorted(range(len(strengths)), key=key)


class Selection(NamedTuple):
    """Result of :func:`corrected_selection`.

    Args:
        rate: The rate or rank chosen on all examples; 0 when nothing improved.
        score: Its accuracy on them, which flatters it.
        corrected: Mean accuracy of a rate chosen on one half, on the other half.
        optimism: Mean of what the choosing half says of it, less ``corrected``.
        unpruned: Accuracy of the unpruned model.
        frequencies: Share of the halves that chose each rate; the rest chose none.
    """

    rate: Any
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

    over S = ``splits`` random divisions of the examples into halves :math:`A_s, B_s`
    (of an odd number, B has one more). A choice on half of the examples is a little
    worse than the one on all, so the corrected score errs low where the score of the
    search errs high. The divisions overlap: their spread is no standard error.

    ``correct`` says whether each rate is right on each example, one row a rate, and
    ``unpruned`` the same of the unpruned model.

    Example:
        >>> import numpy as np
        >>> right = np.random.default_rng(0).random((9, 200)) < 0.5
        >>> found = corrected_selection(right[1:], np.arange(8) / 8, right[0])
        >>> found.score > found.corrected
        True

    Source: Varma and Simon (2006); Yao et al. (2024), Algorithm 1.
    """
    table = check_booleans("correct", correct, 2)
    base = check_booleans("unpruned", unpruned)
    check_shape("unpruned", base, table.shape[1:])
    check_positive_int("splits", splits)
    check_nonnegative_int("seed", seed)
    if base.size < 2:
        raise ValueError(f"correct: expected at least two examples, got {base.size}")

    def chosen(on):
        means = table[:, on].mean(axis=1)
        return choose_rate(means, rates, base[on].mean())

    rng = np.random.default_rng(seed)
    seen, judged, picks = [], [], []
    for _ in range(splits):
        halves = np.split(rng.permutation(base.size), [base.size // 2])
        for on, off in (halves, halves[::-1]):
            choice = chosen(on)
            row = base if choice.index is None else table[choice.index]
            seen.append(choice.score)
            judged.append(row[off].mean())
            picks.append(choice.index)
    whole = chosen(slice(None))
    return Selection(
        rate=whole.rate,
        score=whole.score,
        corrected=float(np.mean(judged)),
        optimism=float(np.mean(seen) - np.mean(judged)),
        unpruned=float(base.mean()),
        frequencies=tuple(picks.count(i) / len(picks) for i in range(len(table))),
    )
