"""Trained linear attention (Zhang, Frei and Bartlett, JMLR 2024).

Prompts of N examples, x ~ N(0, Lambda), w ~ N(0, I), no noise, no mask; the loss is
half the squared error. ``G = (1 + 1/N) Lambda + (tr(Lambda) / N) I`` throughout.
"""

from icltheory.regression.rates.zfb.convergence import (
    Convergence,
    convergence_constants,
)
from icltheory.regression.rates.zfb.risk import (
    linear_moment_cov,
    risk_at_length,
    risk_at_length_bound,
)
from icltheory.regression.rates.zfb.trained import (
    FlowLimit,
    limit,
    random_covariance_optimum,
)

__all__ = [
    "Convergence",
    "FlowLimit",
    "convergence_constants",
    "limit",
    "linear_moment_cov",
    "random_covariance_optimum",
    "risk_at_length",
    "risk_at_length_bound",
]
