"""Bayes-optimal in-context learning (Lemma 6.1): the estimator, its risk, its bounds.

All risks count the noise of the query label, sigma^2.
"""

from icltheory.regression.bayes.average import average_risk
from icltheory.regression.bayes.bounds import Sandwich, risk_rate, sandwich
from icltheory.regression.bayes.estimator import posterior_mean
from icltheory.regression.bayes.likely import LikelyRate, likely_rate
from icltheory.regression.risks.posterior import bayes_risk_given as risk_given

__all__ = [
    "LikelyRate",
    "Sandwich",
    "average_risk",
    "likely_rate",
    "posterior_mean",
    "risk_given",
    "risk_rate",
    "sandwich",
]
