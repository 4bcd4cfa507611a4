"""Trained linear attention (Zhang, Frei and Bartlett, JMLR 2024).

Prompts of N examples, x ~ N(0, Lambda), w ~ N(0, I), no noise, no mask; the loss is
half the squared error. ``G = (1 + 1/N) Lambda + (tr(Lambda) / N) I`` throughout.
"""

from icltheory.regression.rates.trained_attention.flow_limit import (
    random_covariance_optimum,
)
from icltheory.regression.rates.trained_attention.risk import (
    linear_moment_cov,
    risk_at_length,
    risk_at_length_bound,
)

__all__ = [
    "linear_moment_cov",
    "random_covariance_optimum",
    "risk_at_length",
    "risk_at_length_bound",
]
