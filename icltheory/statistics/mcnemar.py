"""McNemar's paired tests of two sets of predictions: exact, and by the score."""

import numpy as np
import scipy.special

from icltheory._checks import check_nonnegative_int

__all__ = ["exact_mcnemar", "score_mcnemar", "smallest_p_value"]

# Largest count that a float represents exactly.
_MOST = 2**53


def exact_mcnemar(
    gained: int | np.integer, lost: int | np.integer, *, mid_p: bool = False
) -> float:
    r"""Exact two-sided p-value of McNemar's test, a sign test on what changed.

    .. math:: p = \min\{1,\; 2 P(X \ge \max(g, l))\}, \qquad
        X \sim \mathrm{Binomial}(g + l, 1/2)

    Only discordant examples, right under one model and wrong under the other, say which
    is better. The mid-p value counts outcomes as extreme as the one seen by half,
    :math:`p - P(X = \max(g, l))`, or :math:`1 - P(X = g) / 2` where g = l. It has more
    power, and is no longer guaranteed to stay below its level.

    A table that gives only the net change :math:`g - l` allows no smaller p-value than
    that of ``exact_mcnemar(g - l, 0)``.

    Args:
        gained: How many examples became right, g.
        lost: How many examples became wrong, l.
        mid_p: Whether to return the mid-p value.

    Returns:
        The p-value; 1 where nothing changed.

    Example:
        >>> exact_mcnemar(5, 0), exact_mcnemar(3, 0), exact_mcnemar(7, 7)
        (0.0625, 0.25, 1.0)
        >>> exact_mcnemar(5, 0, mid_p=True)
        0.03125

    Source: McNemar (1947); Fagerland, Lydersen and Laake (2013) for mid-p.
    """
    check_nonnegative_int("gained", gained)
    check_nonnegative_int("lost", lost)
    gained, lost = int(gained), int(lost)
    more, total = max(gained, lost), gained + lost
    if total > _MOST:
        raise ValueError(
            f"gained, lost: expected a sum of at most {_MOST}, got {total}"
        )
    if total == 0:
        return 1.0
    from scipy.stats import binom  # SciPy is slow to import

    exact = min(1.0, 2.0 * float(binom.sf(more - 1, total, 0.5)))
    if not mid_p:
        return exact
    same = float(binom.pmf(more, total, 0.5))
    return exact - (same / 2 if gained == lost else same)


def score_mcnemar(gained: int | np.integer, lost: int | np.integer) -> float:
    r"""Two-sided p-value of McNemar's score test, consistent with a score interval.

    .. math:: p = 2\, \Phi\Big( - \frac{|g - l|}{\sqrt{g + l}} \Big)

    It is below :math:`\alpha` exactly where the interval of :func:`paired_interval` at
    the level :math:`1 - \alpha` excludes 0. Over all numbers of discordant examples its
    errors of the first kind are near :math:`\alpha`. Given few discordant examples they
    are not: of four that all changed in one direction it says 0.046, and such an
    outcome has the probability 1/8. Where that matters, decide by
    :func:`exact_mcnemar`, which never errs more often than its level.

    Args:
        gained: How many examples became right, g.
        lost: How many examples became wrong, l.

    Returns:
        The p-value; 1 where nothing changed.

    Example:
        >>> p = score_mcnemar(16, 6), exact_mcnemar(16, 6)
        >>> print("score {:.4f}, exact {:.4f}".format(*p))
        score 0.0330, exact 0.0525

    Source: McNemar (1947); Fagerland, Lydersen and Laake (2013).
    """
    check_nonnegative_int("gained", gained)
    check_nonnegative_int("lost", lost)
    gained, lost = int(gained), int(lost)
    if gained + lost == 0:
        return 1.0
    z = abs(gained - lost) / (gained + lost) ** 0.5
    return 2 * float(scipy.special.ndtr(-z))


def smallest_p_value(discordant: int | np.integer, *, mid_p: bool = False) -> float:
    r"""Smallest p-value possible for a number of changed examples.

    .. math:: p_{\min} = \min\{1,\; 2^{1 - (g + l)}\}

    Args:
        discordant: How many examples changed, g + l.
        mid_p: Whether for the mid-p value, :math:`2^{-(g + l)}`.

    Returns:
        The p-value if all of them changed for the better.

    Example:
        >>> smallest_p_value(5), smallest_p_value(6)
        (0.0625, 0.03125)

    Source: McNemar (1947).
    """
    check_nonnegative_int("discordant", discordant)
    return exact_mcnemar(discordant, 0, mid_p=mid_p)
