"""What the argument checks take and refuse, at any size of the numbers."""

import numpy as np
import pytest

from icltheory._checks import covariance


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_covariance_is_judged_by_its_own_size(size):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(64, 3)).astype(np.float32)
    low_rank = factor @ factor.T  # its zero eigenvalues are rounding, of either sign
    assert np.linalg.eigvalsh(low_rank.astype(float)).min() < 0
    covariance("cov", size * low_rank)
    covariance("cov", np.zeros((2, 2)))
    with pytest.raises(ValueError, match="^cov: expected a positive semi-definite"):
        covariance("cov", -size * np.eye(2))
    with pytest.raises(ValueError, match="^cov: expected a symmetric matrix"):
        covariance("cov", size * np.triu(np.ones((2, 2))))
