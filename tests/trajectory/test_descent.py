"""The descent on the device against a plain loop, and against optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icltheory.trajectory._descent import PlainRule, check_steps, descend

TARGET = jnp.array([1.0, -2.0, 0.5])


def noisy_slope(params, k):
    noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), k), (3,))
    error = params["w"] - TARGET
    return jnp.sum(error**2), {"w": 2 * error + 0.1 * noise}


def by_hand(steps, size):
    w, path, losses = np.zeros(3), [np.zeros(3)], []
    for k in range(steps):
        loss, grads = noisy_slope({"w": jnp.asarray(w)}, k)
        w = w - size * np.asarray(grads["w"])
        path.append(w)
        losses.append(float(loss))
    return np.array(path), np.array(losses)


@pytest.mark.parametrize("every", [1, 3])
def test_it_is_the_plain_loop(every):
    path, losses = by_hand(6, 0.1)
    start = {"w": jnp.zeros(3)}
    found = descend(noisy_slope, start, PlainRule(0.1), 6, every)
    np.testing.assert_array_equal(found.steps, np.arange(0, 7, every))
    np.testing.assert_allclose(found.params["w"], path[::every], rtol=1e-13)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-13)


@pytest.mark.slow
def test_rules_of_optax_fit():
    rule, start = optax.adam(0.1), {"w": jnp.zeros(3)}
    found = descend(noisy_slope, start, rule, 5, 5)
    state, params = rule.init(start), start
    for k in range(5):
        _, grads = noisy_slope(params, k)
        updates, state = rule.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(found.params["w"][-1], params["w"], rtol=1e-12)


def test_step_counts_are_checked():
    check_steps(6, 3)
    with pytest.raises(ValueError, match="multiple of record_every = 4, got 6"):
        check_steps(6, 4)
    with pytest.raises(ValueError, match="num_steps"):
        check_steps(0, 1)
