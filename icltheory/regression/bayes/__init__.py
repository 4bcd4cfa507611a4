"""Bayes-optimal in-context learning (Lemma 6.1): the estimator, its risk, its bounds.

All risks count the noise of the query label, sigma^2.
"""

from icltheory.regression.bayes.bounds import Sandwich, risk_rate, sandwich
from icltheory.regression.bayes.likely import LikelyRate, likely_rate

__all__ = [
    "LikelyRate",
    "Sandwich",
    "likely_rate",
    "risk_rate",
    "sandwich",
]
