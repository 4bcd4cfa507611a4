"""The in-context loss against loops written from its formula."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.training import in_context_loss

PREDICTED = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)))
TRUE = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6)))


TERMS = {
    "squared": lambda guess, y: (guess - y) ** 2,
    "logistic": lambda guess, y: math.log1p(math.exp(-y * guess)),
    "hinge": lambda guess, y: max(0.0, 1 - float(y * guess)),
}


@pytest.mark.parametrize("loss", TERMS)
def test_it_is_the_mean_of_a_loss_over_active_points(loss):
    labels = TRUE if loss == "squared" else jnp.sign(TRUE)
    for active in (1, 4, 6):
        total = sum(
            TERMS[loss](PREDICTED[b, k], labels[b, k]) for b, k in np.ndindex(4, active)
        )
        got = in_context_loss(PREDICTED, labels, active, loss)
        np.testing.assert_allclose(got, total / (4 * active), rtol=1e-12)


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
