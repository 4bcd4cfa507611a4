"""Implicit gradient descent of in-context learning: Lemma 1 and Theorem 1.

Linear attention moves the query by a matrix that the demonstrations alone determine.
``G`` is what the model adds, unsigned; the papers' 1/N is the argument ``scale``.

Stability: stable.
"""

from icltheory.trajectory.descent import (
    implicit_gd,
    implicit_gd_blocks,
    implicit_gd_norms,
)
from icltheory.trajectory.records import (
    BlockTrajectory,
    Trajectory,
    TrajectoryFactors,
    TrajectoryNorms,
)
from icltheory.trajectory.update import implicit_update, implicit_update_mlp

__all__ = [
    "BlockTrajectory",
    "Trajectory",
    "TrajectoryFactors",
    "TrajectoryNorms",
    "implicit_gd",
    "implicit_gd_blocks",
    "implicit_gd_norms",
    "implicit_update",
    "implicit_update_mlp",
]
