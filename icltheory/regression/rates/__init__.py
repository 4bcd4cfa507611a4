"""Rates of in-context linear regression, with their constants where they are proved.

``effective_dimension`` and the rate of the best GD-beta (Zhang, Wu and Bartlett);
``wu`` one step of gradient descent from zero, other prompt lengths and the number of
tasks; ``zfb`` trained linear attention; ``ahn`` the optimum in their convention.
The Bayes rate is in ``icltheory.regression.bayes``.
"""

from icltheory.regression.rates import ahn, wu, zfb
from icltheory.regression.rates.dimension import (
    TwoSidedRate,
    effective_dimension,
    optimal_risk_rate,
)

__all__ = [
    "TwoSidedRate",
    "ahn",
    "effective_dimension",
    "optimal_risk_rate",
    "wu",
    "zfb",
]
