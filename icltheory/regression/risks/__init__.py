"""Risks of in-context predictors: exact, exact given the inputs, and by simulation.

The risk of a predictor is E (prediction - label of the query)^2. It counts the noise of
the query label unless ``query_noise=False``. Exact risks take a ``LinearPopulation``
for its population (H, beta*, Psi, sigma^2).

Risks of several gradient steps do not count that noise: ``gradient_steps_optimum``,
``gradient_steps_limit`` and ``depth_floor``, which are also divided by d, and
``sampled_gradient_steps``, which is not. For isotropic populations the risk of the
others is d times the first three plus sigma^2.
"""

from icltheory.regression.risks.closed_form import (
    averaging_risk,
    least_squares_risk,
    zero_risk,
)
from icltheory.regression.risks.depth import (
    DepthFloor,
    GradientStepsOptimum,
    depth_floor,
    gradient_steps_limit,
    gradient_steps_optimum,
)
from icltheory.regression.risks.linear_attention import (
    LinearAttentionOptimum,
    linear_attention_optimum,
    linear_attention_risk,
    optimal_step_size,
)
from icltheory.regression.risks.monte_carlo import monte_carlo_risk, squared_errors
from icltheory.regression.risks.posterior import (
    bayes_risk,
    bayes_risk_given,
    bayes_risk_given_prefixes,
    ridge_risk,
    ridge_risk_given,
)
from icltheory.regression.risks.sampled_depth import (
    SampledGradientSteps,
    sampled_gradient_steps,
)

__all__ = [
    "DepthFloor",
    "GradientStepsOptimum",
    "LinearAttentionOptimum",
    "SampledGradientSteps",
    "averaging_risk",
    "bayes_risk",
    "bayes_risk_given",
    "bayes_risk_given_prefixes",
    "depth_floor",
    "gradient_steps_limit",
    "gradient_steps_optimum",
    "least_squares_risk",
    "linear_attention_optimum",
    "linear_attention_risk",
    "monte_carlo_risk",
    "optimal_step_size",
    "ridge_risk",
    "ridge_risk_given",
    "sampled_gradient_steps",
    "squared_errors",
    "zero_risk",
]
