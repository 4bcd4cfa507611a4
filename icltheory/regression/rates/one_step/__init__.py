"""One gradient step from zero, learned from prompts (Wu et al., ICLR 2024).

The paper's prior is w ~ N(0, psi^2 I); its psi^2 H is H^{1/2} Psi H^{1/2} here.
"""

from icltheory.regression.rates.one_step.optimum import (
    OneStepOptimum,
    one_step_excess,
    one_step_optimum,
)
from icltheory.regression.rates.one_step.tasks import (
    TaskComplexity,
    halving_steps,
    task_complexity_bound,
)
from icltheory.regression.rates.one_step.transfer import LengthTransfer, length_transfer

__all__ = [
    "LengthTransfer",
    "OneStepOptimum",
    "TaskComplexity",
    "halving_steps",
    "length_transfer",
    "one_step_excess",
    "one_step_optimum",
    "task_complexity_bound",
]
