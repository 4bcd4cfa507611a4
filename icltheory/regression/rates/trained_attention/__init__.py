"""Trained linear attention (Zhang, Frei and Bartlett, JMLR 2024).

Prompts of N examples, x ~ N(0, Lambda), w ~ N(0, I), no noise, no mask; the loss is
half the squared error. ``G = (1 + 1/N) Lambda + (tr(Lambda) / N) I`` throughout.
"""

from icltheory.regression.rates.trained_attention.convergence import (
    Convergence,
    convergence_constants,
)
from icltheory.regression.rates.trained_attention.flow_limit import (
    FlowLimit,
    trained_attention_limit,
)

__all__ = [
    "Convergence",
    "FlowLimit",
    "convergence_constants",
    "trained_attention_limit",
]
