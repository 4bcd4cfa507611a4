"""Singular values by way of QR, for shapes that a GPU would take one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.noise._routes import singular_values


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 40, 21), (2, 16, 36), (40, 41), (5, 6)])
def test_they_are_those_of_the_svd_with_its_derivative(shape):
    rng = np.random.default_rng(0)
    rows, change = rng.standard_normal((2, *shape))
    rows -= rows.mean(axis=-2, keepdims=True)  # a triangle of it is singular
    got, moved = jax.jvp(singular_values, (jnp.asarray(rows),), (jnp.asarray(change),))
    np.testing.assert_allclose(got, np.linalg.svd(rows)[1], rtol=0, atol=1e-12)
    step = 1e-6
    ends = [np.linalg.svd(rows + sign * step * change)[1] for sign in (1, -1)]
    kept = np.asarray(got) > 1e-6  # a vanishing value has no derivative
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(np.asarray(moved)[kept], slope[kept], atol=1e-7)
