"""Gradient flow on the exact risks of linear transformer blocks (Theorem 6.3).

Zhang, Wu and Bartlett (2024): the flow of GD-beta with its limit, invariants and rates,
that of LSA and LTB, gradient descent in steps and on samples beside it; and the flow of
linear attention of Zhang, Frei and Bartlett (2024). Integrated by diffrax.
"""

from icltheory.regression.flow.attention import AttentionTrajectory, attention_flow
from icltheory.regression.flow.descent import gradient_descent, sampled_sgd
from icltheory.regression.flow.gd_beta import FlowBounds, gd_beta_limit, gd_beta_rates
from icltheory.regression.flow.ode import gradient_flow
from icltheory.regression.flow.starts import AttentionWeights, attention_start
from icltheory.regression.flow.trajectory import FlowTrajectory

__all__ = [
    "FlowBounds",
    "FlowTrajectory",
    "AttentionTrajectory",
    "AttentionWeights",
    "gradient_descent",
    "gradient_flow",
    "gd_beta_limit",
    "gd_beta_rates",
    "sampled_sgd",
    "attention_flow",
    "attention_start",
]
