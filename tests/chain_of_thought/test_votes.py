"""Where the examples of a prompt start."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.chain_of_thought import ReasoningTask, votes


@pytest.mark.parametrize("states", [1, 2, 3])
def test_an_example_starts_at_one_of_the_states(states):
    fraction = 1.0 if states == 1 else 0.3
    task = ReasoningTask(np.stack([np.eye(states)] * 2), fraction)
    found = votes._start_shares(task)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(jnp.diagonal(found), fraction, rtol=1e-12)
