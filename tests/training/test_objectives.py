"""The in-context loss against loops written from its formula."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.training import in_context_loss

PREDICTED = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)))
TRUE = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6)))


@pytest.mark.parametrize("active", [1, 4, 6])
def test_squared_loss_over_active_points(active):
    total = 0.0
    for b in range(4):
        for k in range(active):
            total += (PREDICTED[b, k] - TRUE[b, k]) ** 2
    got = jax.jit(in_context_loss)(PREDICTED, TRUE, active)
    np.testing.assert_allclose(got, total / (4 * active), rtol=1e-12)


def test_logistic_loss_of_signs():
    signs = jnp.sign(TRUE)
    total = sum(
        math.log1p(math.exp(-signs[b, k] * PREDICTED[b, k]))
        for b in range(4)
        for k in range(6)
    )
    got = in_context_loss(PREDICTED, signs, 6, "logistic")
    np.testing.assert_allclose(got, total / 24, rtol=1e-12)


def test_hinge_loss_of_signs():
    signs = jnp.sign(TRUE)
    total = sum(
        max(0.0, 1 - float(signs[b, k] * PREDICTED[b, k]))
        for b in range(4)
        for k in range(6)
    )
    got = in_context_loss(PREDICTED, signs, 6, "hinge")
    np.testing.assert_allclose(got, total / 24, rtol=1e-12)


@pytest.mark.slow
def test_inactive_points_have_no_gradient():
    grad = jax.grad(in_context_loss)(PREDICTED, TRUE, 2)
    assert np.all(grad[:, 2:] == 0)
    assert np.all(grad[:, :2] != 0)


def test_unknown_losses_and_no_points_are_refused():
    with pytest.raises(ValueError, match="loss: expected one of"):
        in_context_loss(PREDICTED, TRUE, 2, "counts")
    with pytest.raises(
        ValueError, match="active_points: expected 1 <= active_points <= "
    ):
        in_context_loss(PREDICTED, TRUE, 0)
