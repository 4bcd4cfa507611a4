"""Requirements of the theorems say what there is and what is asked."""

import jax
import jax.numpy as jnp
import numpy as np

from icltheory import chain_of_thought as cot


def test_a_requirement_compares():
    enough = cot.Requirement(jnp.asarray(3.0), jnp.asarray(3.0))
    assert bool(enough.holds)
    assert not bool(cot.Requirement(jnp.asarray(2.9), jnp.asarray(3.0)).holds)


def test_predicates_are_vmapped_over_tasks_and_lengths():

    steps = np.stack([cot.slide_transitions(), cot.faithful_transitions(0.8)])
    found = jax.vmap(lambda s, l: cot.theorem6_conditions(s, l, 1.0))(
        steps, jnp.array([100.0, 100.0])
    )
    assert found.fails.tolist() == [True, False]
    assert found.holds.tolist() == [False, True]
    five = jax.vmap(lambda s: cot.theorem5_conditions(s, 50, 1.0))(steps)
    assert five.holds.tolist() == [False, True]
