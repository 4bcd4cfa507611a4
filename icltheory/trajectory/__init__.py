"""Implicit gradient descent of in-context learning: Lemma 1 and Theorem 1.

Linear attention moves the query by a matrix that the demonstrations alone determine.
Dense matrices, thin factors and norms without any n x n matrix are three views of the
same recursion and agree to rounding.

Nothing is normalised or signed on the way: ``G`` is what the model adds, and the
papers' 1/N is the argument ``scale``.

Stability: stable.
"""

from icltheory._public import shown
from icltheory.trajectory.dense import implicit_gd
from icltheory.trajectory.factors import implicit_gd_factors
from icltheory.trajectory.norms import implicit_gd_norms
from icltheory.trajectory.precision import depth_errors
from icltheory.trajectory.records import (
    Trajectory,
    TrajectoryFactors,
    TrajectoryNorms,
)
from icltheory.trajectory.update import implicit_update, implicit_update_mlp

__all__ = [
    "Trajectory",
    "TrajectoryFactors",
    "TrajectoryNorms",
    "depth_errors",
    "implicit_gd",
    "implicit_gd_factors",
    "implicit_gd_norms",
    "implicit_update",
    "implicit_update_mlp",
]

__dir__ = shown(__name__)
