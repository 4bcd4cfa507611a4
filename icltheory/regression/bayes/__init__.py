"""Bayes-optimal in-context learning (Lemma 6.1): the estimator and its risk.

All risks count the noise of the query label, sigma^2.
"""

from icltheory.regression.bayes.average import average_risk
from icltheory.regression.bayes.estimator import posterior_mean
from icltheory.regression.risks.posterior import bayes_risk_given as risk_given

__all__ = [
    "average_risk",
    "posterior_mean",
    "risk_given",
]
