"""Searches over rates that evaluate fewer examples than the full grid.

Both take a function that evaluates some arms on some examples and return who won
and what it cost. An arm is a rate, or anything else of which each example says right or
wrong; arms are numbered so that a tie goes to the smaller number, so list rates in
ascending order, the unpruned model first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from icltheory._checks import check_nonnegative_int, check_open_unit, check_positive_int
from icltheory._named_errors import named_errors
from icltheory._public import shown

__all__ = ["RaceResult", "full_grid", "race"]

# Fractions of the wealth that are bet; the evidence is the mean over them.
_SHARES = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])


class RaceResult(NamedTuple):
    """Winner and cost of a search over arms.

    Args:
        winner: Number of the best arm.
        evaluations: How many (arm, example) pairs were evaluated.
        full_evaluations: How many the full grid takes.
        eliminated_at: For each arm, after how many examples it was dropped; ``None``
            if it never was.
        num_correct: Right answers of each arm on the examples it saw.
        num_seen: How many examples each arm saw.

    References:
        Verified by ``tests/bridge/test_racing.py``.
    """

    winner: int
    evaluations: int
    full_evaluations: int
    eliminated_at: tuple[int | None, ...]
    num_correct: tuple[int, ...]
    num_seen: tuple[int, ...]

    @property
    def saved(self) -> float:
        """Share of the full grid's evaluations that were saved."""
        return 1 - self.evaluations / self.full_evaluations


Evaluate = Callable[[tuple[int, ...], np.ndarray], Any]


@named_errors
def full_grid(
    evaluate_batch: Evaluate,
    num_arms: int,
    num_examples: int,
    *,
    batch: int = 32,
    seed: int = 0,
) -> RaceResult:
    r"""Evaluates every arm on every example.

    .. math:: w = \min \arg\max_a \sum_i x_{a, i}

    Args:
        evaluate_batch: See :func:`race`.
        num_arms: Number of arms K.
        num_examples: Number of examples n.
        batch: How many examples are evaluated at once.
        seed: Fixes the order of the examples, which changes nothing here.

    Returns:
        The winner; a tie goes to the smaller number.

    Raises:
        ValueError: If a count is not positive, or the answers have another shape.

    Example:
        >>> right = np.array([[0, 1, 1], [0, 1, 0], [1, 1, 0]], bool)
        >>> full_grid(lambda arms, i: right[np.ix_(arms, i)], 3, 3).winner
        0

    References:
        Yao et al. (2024), Algorithm 1. Verified by ``tests/bridge/test_racing.py``.
    """
    field = _Field(evaluate_batch, num_arms, num_examples, seed)
    while field.seen < num_examples:
        field.advance(batch)
    return field.result()


@named_errors
def race(
    evaluate_batch: Evaluate,
    num_arms: int,
    num_examples: int,
    *,
    delta: float | int = 0.05,
    batch: int = 32,
    seed: int = 0,
) -> RaceResult:
    r"""Finds the full grid's winner and stops evaluating arms that cannot win.

    The examples come in a uniformly random order. For arms a and b let
    :math:`x_i \in \{-1, 0, 1\}` be b's success less a's on the i-th, :math:`d_i` their
    sum so far, and R the number of examples not yet seen. If a is the winner, the
    differences of the unseen examples sum to at most :math:`-d`, so their mean is at
    most :math:`\mu`, and a bet on b is unfavourable at every step:

    .. math::
        E_{a, b} = \frac{1}{|\Lambda|} \sum_{\lambda \in \Lambda} \prod_i
        \Big( 1 + \lambda\, \frac{x_i - \mu_i}{1 + \mu_i} \Big) , \qquad
        \mu_i = \frac{-[b < a] - d_{i - 1}}{R_{i - 1}} .

    :math:`E_{a, b}` is then a non-negative supermartingale that starts at 1, exactly
    and for every n; :math:`[b < a]` is 1 if b wins ties. Arm a is dropped when

    .. math:: \frac{1}{K - 1} \sum_{b \ne a} E_{a, b} \ge \frac{1}{\delta}

    after any batch, where :math:`E_{a, b}` stands still once b is dropped. By Ville's
    inequality the full grid's winner is ever dropped, and another arm returned, with
    probability at most :math:`\delta` over the order, for any arms whatever. What is
    left when the examples are used up is decided by the full counts. An arm that cannot
    win whatever the rest brings (:math:`\mu < -1`) is dropped for certain.

    The saving depends on how many examples tell two arms apart. It is large where
    pruning ruins the model at some rates, and small where, as in most published curves,
    the arms differ by a few of some hundred examples: no test can tell early what the
    whole set hardly tells. Arms that never differ cannot be told apart at all, and are
    all carried to the end.

    Args:
        evaluate_batch: Called with the numbers of the arms still in the race, in
            ascending order, and an array of example numbers; returns booleans (arms,
            examples), true where right. An answer may not depend on what else is asked.
        num_arms: Number of arms K.
        num_examples: Number of examples n.
        delta: Bound on the probability of dropping the winner.
        batch: How many examples are evaluated at once, the last time maybe fewer.
        seed: Fixes the order of the examples.

    Returns:
        The winner, and the cost.

    Raises:
        ValueError: If a count is not positive, delta is not between 0 and 1, or the
            answers have another shape.

    Example:
        >>> right = np.random.default_rng(0).random((3, 400)) < [[0.9], [0.4], [0.5]]
        >>> found = race(lambda arms, i: right[np.ix_(arms, i)], 3, 400)
        >>> found.winner, found.eliminated_at, round(found.saved, 2)
        (0, (None, 32, 32), 0.92)

    References:
        Waudby-Smith and Ramdas (2024) for betting without replacement; Maron and Moore
        (1994) for races; Yao et al. (2024), open question iii.
        Verified by ``tests/bridge/test_racing.py``.
    """
    check_open_unit("delta", delta)
    field = _Field(evaluate_batch, num_arms, num_examples, seed)
    log_wealth = np.zeros((num_arms, num_arms, len(_SHARES)))
    sums = np.zeros((num_arms, num_arms), int)
    ties = np.tril(np.ones((num_arms, num_arms), int), -1)
    bar = np.log(max(num_arms - 1, 1) / delta)
    while field.seen < num_examples and len(field.alive) > 1:
        left, arms = num_examples - field.seen, tuple(field.alive)
        right = field.advance(batch).astype(int)
        pairs = np.ix_(arms, arms)
        gains = right[None, :, :] - right[:, None, :]
        log_wealth[pairs] += bet(gains, -ties[pairs] - sums[pairs], left)
        sums[pairs] += gains.sum(axis=-1)
        evidence = logsumexp(log_wealth, axis=-1) - np.log(len(_SHARES))
        np.fill_diagonal(evidence, -np.inf)
        against = logsumexp(evidence, axis=1)
        if field.seen < num_examples:
            field.drop([a for a in arms if against[a] >= bar and a != field.leader()])
    return field.result()


def bet(gains: np.ndarray, most: np.ndarray, left: int) -> np.ndarray:
    r"""Log growth factors of wealth, for every fraction that is bet.

    Args:
        gains: Differences x in the order seen, (..., batch).
        most: Largest sum of all unseen differences under the hypothesis, (...).
        left: How many differences are unseen before the first of these.
    """
    before = np.cumsum(gains, axis=-1) - gains
    mean = (most[..., None] - before) / (left - np.arange(gains.shape[-1]))
    # At a mean of -1 only -1 can follow; above it, the worst case is to lose the bet.
    worst = np.where(mean == -1, 0.0, -1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(gains == -1, worst, (gains - mean) / (1 + mean))
        factors = np.log1p(_SHARES * gain[..., None])
    impossible = (mean < -1) | ((mean == -1) & (gains > -1))
    return np.where(impossible[..., None], np.inf, factors).sum(axis=-2)


class _Field:
    """The remaining arms of a race with their results so far."""

    def __init__(self, evaluate_batch, num_arms, num_examples, seed):
        check_positive_int("num_arms", num_arms)
        check_positive_int("num_examples", num_examples)
        check_nonnegative_int("seed", seed)
        self.evaluate_batch = evaluate_batch
        self.order = np.random.default_rng(seed).permutation(num_examples)
        self.alive = list(range(num_arms))
        self.seen = 0
        self.correct = np.zeros(num_arms, int)
        self.eliminated_at: list[int | None] = [None] * num_arms

    def advance(self, batch: int) -> np.ndarray:
        """Evaluates the remaining arms on the next examples."""
        check_positive_int("batch", batch)
        examples = self.order[self.seen : self.seen + batch]
        right = np.asarray(self.evaluate_batch(tuple(self.alive), examples))
        expected = (len(self.alive), len(examples))
        if right.shape != expected or right.dtype != bool:
            raise ValueError(
                f"evaluate_batch: expected booleans of shape {expected}, "
                f"got {right.dtype} of shape {right.shape}"
            )
        self.correct[self.alive] += right.sum(axis=1)
        self.seen += len(examples)
        return right

    def rank(self, arm: int) -> tuple[int, int]:
        """Sort key for arms that saw the same examples, the best first."""
        return -int(self.correct[arm]), arm

    def leader(self) -> int:
        """Returns the best remaining arm."""
        return min(self.alive, key=self.rank)

    def drop(self, arms: list[int]) -> None:
        """Removes arms from the race."""
        for arm in arms:
            self.eliminated_at[arm] = self.seen
            self.alive.remove(arm)

    def result(self) -> RaceResult:
        num_seen = [self.seen if at is None else at for at in self.eliminated_at]
        return RaceResult(
            winner=self.leader(),
            evaluations=sum(num_seen),
            full_evaluations=len(num_seen) * len(self.order),
            eliminated_at=tuple(self.eliminated_at),
            num_correct=tuple(self.correct.tolist()),
            num_seen=tuple(num_seen),
        )


__dir__ = shown(__name__)
