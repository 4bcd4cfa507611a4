"""Families of transition matrices: their tau and rho, and what cannot be."""

import numpy as np
import pytest

from icltheory import chain_of_thought as cot


@pytest.mark.parametrize(
    ("M", "K", "tau", "rho"),
    [(10, 3, 0.29, 0.5), (4, 1, 0.4, 0.4), (2, 2, 0.49, 4 / 7), (3, 1, 0.5, 0.2)],
)
def test_contested_steps_have_their_tau_and_rho(M, K, tau, rho):
    steps = cot.contested_transitions(M, K, tau, rho)
    np.testing.assert_allclose(np.sum(steps, axis=-1), 1, rtol=1e-14)
    task, start = cot.ReasoningTask(steps), np.arange(M)
    np.testing.assert_allclose(task.path_probabilities(), tau, rtol=1e-12)
    assert float(task.rho) == pytest.approx(rho, rel=1e-12)
    ends = (start + K * (K + 1) // 2) % M
    np.testing.assert_array_equal(task.stepwise_paths[:, -1], ends)


def test_infeasible_rows_are_refused_with_their_inequality():
    with pytest.raises(ValueError, match=r"p1 \+ p2 <= 1 .* got 0.737 \+ 0.368"):
        cot.contested_transitions(10, 3, 0.4, 0.5)
    with pytest.raises(ValueError, match=r"p1 \+ \(M - 1\) p2 >= 1, .* 0.500 \+ 3 \*"):
        cot.contested_transitions(4, 1, 0.5, 0.9)
    with pytest.raises(ValueError, match="got 1, 0.5 and 0.5"):
        cot.contested_transitions(1, 1, 0.5, 0.5)
    with pytest.raises(
        ValueError, match=r"probability: expected a value in \(0.5, 1\], got"
    ):
        cot.faithful_transitions(0.5)
