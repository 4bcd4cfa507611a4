"""Gradient flow on the exact risks of linear transformer blocks (Theorem 6.3).

Zhang, Wu and Bartlett (2024): the flow of GD-beta with its limit, invariants and rates,
that of LSA and LTB, gradient descent in steps and on samples beside it; and the flow of
linear attention of Zhang, Frei and Bartlett (2024). Integrated by diffrax, which comes
with ``icltheory[solvers]`` and is imported when a flow is.
"""

from icltheory.regression.flow.descent import gradient_descent, sampled_sgd
from icltheory.regression.flow.ode import gradient_flow
from icltheory.regression.flow.theorem_6_3 import FlowBounds, limit, rates
from icltheory.regression.flow.trajectory import Trajectory
from icltheory.regression.flow.zfb import ZFBTrajectory, zfb_flow
from icltheory.regression.flow.zfb_start import ZFBWeights, zfb_start

__all__ = [
    "FlowBounds",
    "Trajectory",
    "ZFBTrajectory",
    "ZFBWeights",
    "gradient_descent",
    "gradient_flow",
    "limit",
    "rates",
    "sampled_sgd",
    "zfb_flow",
    "zfb_start",
]
