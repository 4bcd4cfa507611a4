"""Paired differences, their intervals and tests."""

import dataclasses

import numpy as np
import scipy.special


@dataclasses.dataclass(frozen=True)
class Paired:
    """Mean of paired differences with what Student's t says of it.

    Attributes:
        mean: Mean difference; below 0 the pruned model is better.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p_better: One-sided p-value of "not better"; 1 where nothing changed.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_better: np.ndarray


def paired(difference: np.ndarray, level: float) -> Paired:
    r"""Student's t on differences, prompts along axis -1.

    .. math:: t = \bar d / \mathrm{se}(\bar d), \qquad p = P(T_{n-1} \le t)
    """
    difference = np.asarray(difference, np.float64)
    n = difference.shape[-1]
    mean = difference.mean(axis=-1)
    error = difference.std(axis=-1, ddof=1) / np.sqrt(n)
    half = scipy.special.stdtrit(n - 1, (1 + level) / 2) * error
    t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    p = np.where(error > 0, scipy.special.stdtr(n - 1, t), 1.0)
    return Paired(mean, mean - half, mean + half, p)
