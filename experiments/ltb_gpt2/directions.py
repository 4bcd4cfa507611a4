"""Finds directions of the residual stream that encode a scalar, by least squares."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Eigenvalues of a covariance below this share of the largest one are rounding errors.
# The states are float32, and at the embedding they span only d dimensions.
_RANK_TOLERANCE = 1e-9


class Direction(NamedTuple):
    """A direction of the residual stream: how it is read and written.

    Attributes:
        mean: Mean state; the removal leaves it where it is.
        read: Reads the coordinate off a centred state.
        write: The vector that the coordinate multiplies.
    """

    mean: Float[np.ndarray, " width"]
    read: Float[np.ndarray, " width"]
    write: Float[np.ndarray, " width"]

    def part(self, states: Float[np.ndarray, "B width"]) -> np.ndarray:
        """Component of the states along the direction, (B, width)."""
        return np.outer((states - self.mean) @ self.read, self.write)


def carrying(
    states: Float[np.ndarray, "B width"], scalar: Float[np.ndarray, " B"]
) -> tuple[Direction, float]:
    r"""Returns the direction that encodes a scalar, and its explained variance.

    .. math:: h \mapsto h - a \, \frac{a^\top \Sigma^+ (h - \mu)}{a^\top \Sigma^+ a},
        \qquad a = \operatorname{Cov}(h, s), \quad \Sigma = \operatorname{Cov}(h)

    :math:`\Sigma^+ a` is the least-squares predictor of the scalar. After the removal
    the state and the scalar are uncorrelated, so that no linear function of the state
    predicts it, and no other removal of this property changes the state less, measured
    in the norm of :math:`\Sigma^+`.

    Args:
        states: States h of many prompts.
        scalar: Their scalars s.

    Returns:
        The direction and R^2 of the least-squares predictor on these states.

    References:
        Belrose et al., "LEACE: perfect linear concept erasure in closed form" (2023),
        for one scalar. Verified by ``tests/experiments/test_ltb_gpt2_removal.py``.
    """
    states, scalar = (np.asarray(x, np.float64) for x in (states, scalar))
    mean = states.mean(axis=0)
    centred, s = states - mean, scalar - scalar.mean()
    a = centred.T @ s / len(s)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(s))
    kept = values > _RANK_TOLERANCE * values.max()
    vectors = vectors[:, kept]
    read = vectors @ ((vectors.T @ a) / values[kept])
    explained = float(read @ a)
    return Direction(mean, read / explained, a), explained / float(s @ s / len(s))


def random_direction(
    rng: np.random.Generator, states: Float[np.ndarray, "B width"]
) -> Direction:
    """Returns the orthogonal projection along a uniformly random unit vector."""
    g = rng.standard_normal(states.shape[1])
    g /= np.linalg.norm(g)
    return Direction(np.asarray(states, np.float64).mean(axis=0), g, g)
