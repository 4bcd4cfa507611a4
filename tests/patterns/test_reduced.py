"""The slopes of the reduced dynamics against the derivative of their loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.patterns import PatternTask, PatternTransformer, reduced


def test_slopes_of_the_neurons_are_derivatives_of_the_loss():
    rng, m = np.random.default_rng(0), 6
    kinds = reduced._Kinds(*map(jnp.asarray, reduced._kinds(4)))
    a = jnp.asarray(np.where(np.arange(m) < m // 2, 1.0, -1.0))
    fixed = reduced._Fixed(a, jnp.asarray(rng.uniform(0.1, 0.3, m)), 2.0, 0.5, 0.6)
    weights = reduced._probabilities(kinds, jnp.asarray(0.6))
    drawn = (rng.normal(size=size) for size in ((m, 5), 5, 5))
    state = reduced._State(jnp.asarray(0.4), *map(jnp.asarray, drawn))

    def seen(state):
        recorded, slopes = reduced._slope(3, kinds, weights, fixed, state)
        return recorded[2], slopes

    expected, found = jax.jit(jax.grad(seen, has_aux=True))(state)
    for got, want in list(zip(found, expected, strict=True))[1:]:
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-14)
    assert abs(found[1]).max() > 0.1


def test_patterns_of_another_norm_are_refused():
    task = PatternTask(4, 5, 1.0, relevant=2.5 * np.eye(4, 9))
    start = PatternTransformer(8).init(task, key=jax.random.key(0))
    with pytest.raises(ValueError, match="task: expected orthogonal relevant pat"):
        reduced.reduced_training(start, task, 2, step_size=1.0)
