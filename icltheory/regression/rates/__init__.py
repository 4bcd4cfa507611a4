"""Rates of in-context linear regression, with constants where they are proved.

Trained linear attention: the limit and the constants of its gradient flow (Zhang, Frei
and Bartlett, 2024). The rate of the best GD-beta (Zhang, Wu and Bartlett, 2024) and the
effective dimension. The Bayes rate is in ``icltheory.regression.bayes``.
"""

from icltheory.regression.rates.dimension import (
    TwoSidedRate,
    effective_dimension,
    optimal_risk_rate,
)
from icltheory.regression.rates.trained_attention import (
    Convergence,
    FlowLimit,
    convergence_constants,
    trained_attention_limit,
)

__all__ = [
    "Convergence",
    "FlowLimit",
    "TwoSidedRate",
    "convergence_constants",
    "effective_dimension",
    "optimal_risk_rate",
    "trained_attention_limit",
]
