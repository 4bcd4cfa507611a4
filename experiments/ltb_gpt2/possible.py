"""Finds settings in which the published errors are possible, by the Bayes risk.

The text at hand does not tell d, M and the noise of Table 1. No predictor is below the
average Bayes risk, so that an error of 0.003 bounds the noise for each d and M.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import root_scalar

from experiments.ltb_gpt2.config import PAPER_TABLE
from icltheory.statistics import Estimate

# Dimensions and numbers of examples used in related papers and here.
SETTINGS = ((2, 5), (5, 20), (5, 40), (20, 20), (20, 40), (20, 100))
LOWEST = min(PAPER_TABLE.values())
_DRAWS = 4096


class NoiseLimit(NamedTuple):
    """The largest noise variance at which an error is possible.

    Attributes:
        noise_var: The variance; 0 where the error is impossible with any noise.
        standard_error: Its standard error over the inputs.
    """

    noise_var: float
    standard_error: float


def noise_limit(dim: int, num_examples: int) -> NoiseLimit:
    r"""Largest :math:`\sigma^2` whose average Bayes risk is at most ``LOWEST``.

    .. math:: R(\sigma^2) = \sigma^2 + E \sum_i \frac{\sigma^2}{s_i + \sigma^2}

    with the eigenvalues s of X'X, for inputs and tasks of covariance I; it grows with
    the noise. The noise of the query counts, as in the published errors.

    Args:
        dim: Dimension d.
        num_examples: Examples M.

    Returns:
        The variance with its standard error.
    """
    values = _eigenvalues(dim, num_examples)

    def risks(noise_var: float) -> np.ndarray:
        return noise_var + np.sum(noise_var / (values + noise_var), axis=1)

    if num_examples < dim:
        # In d - M directions w is not observed, so the risk is at least d - M.
        return NoiseLimit(0.0, 0.0)
    root = root_scalar(
        lambda v: risks(v).mean() - LOWEST, bracket=(0.0, LOWEST), xtol=1e-12
    )
    found = float(root.root)
    slope = (risks(1.01 * found).mean() - risks(0.99 * found).mean()) / (0.02 * found)
    spread = Estimate.of(risks(found)).standard_error
    return NoiseLimit(found, float(spread / slope))


def _eigenvalues(dim: int, num_examples: int) -> np.ndarray:
    shape = (_DRAWS, num_examples, dim)
    X = np.asarray(jax.random.normal(jax.random.key(0), shape), np.float64)
    return np.clip(np.linalg.eigvalsh(np.swapaxes(X, 1, 2) @ X), 0, None)
