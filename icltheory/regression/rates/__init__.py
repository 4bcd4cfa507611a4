"""Rates of in-context linear regression, with constants where they are proved.

One gradient step from zero, learnt from prompts: its optimum, its risk at other prompt
lengths and the number of tasks it needs (Wu et al., 2024). Trained linear attention:
the limit and the constants of its gradient flow, its risk at other lengths (Zhang, Frei
and Bartlett, 2024). The optimum of one preconditioned layer (Ahn et al., 2023). The
rate of the best GD-beta (Zhang, Wu and Bartlett, 2024) and the effective dimension.
The Bayes rate is in ``icltheory.regression.bayes``.
"""

from icltheory.regression.rates.one_step import (
    LengthTransfer,
    OneStepOptimum,
    TaskComplexity,
    halving_steps,
    length_transfer,
    one_step_excess,
    one_step_optimum,
    task_complexity_bound,
)
from icltheory.regression.rates.preconditioned import (
    PreconditionedOptimum,
    preconditioned_optimum,
    preconditioned_prediction,
)
from icltheory.regression.rates.trained_attention import (
    linear_moment_cov,
    random_covariance_optimum,
    risk_at_length,
    risk_at_length_bound,
)

__all__ = [
    "LengthTransfer",
    "OneStepOptimum",
    "PreconditionedOptimum",
    "TaskComplexity",
    "halving_steps",
    "length_transfer",
    "linear_moment_cov",
    "one_step_excess",
    "one_step_optimum",
    "preconditioned_optimum",
    "preconditioned_prediction",
    "random_covariance_optimum",
    "risk_at_length",
    "risk_at_length_bound",
    "task_complexity_bound",
]
