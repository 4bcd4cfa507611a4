"""Predicates of Theorems 5 and 6 over many tasks and lengths at once."""

import jax
import numpy as np

from icltheory import chain_of_thought as cot


def test_predicates_are_vmapped_over_tasks_and_lengths():
    steps = np.stack([cot.slide_transitions(), cot.faithful_transitions(0.8)])
    six = jax.jit(jax.vmap(lambda s, l: cot.icl_conditions(s, l, 1.0)))
    found = six(steps, np.array([100.0, 100.0]))
    assert found["condition 1"].holds.tolist() == [False, True]
    assert found["condition 1"].left.tolist() == [0.5, 1.0]
    assert found.holds.tolist() == [False, True]
    five = jax.jit(jax.vmap(lambda s: cot.cot_conditions(s, 50, 1.0)))(steps)
    assert five.holds.tolist() == [False, True]


def test_the_test_length_is_that_of_the_form():
    for form, gap in (("published", "tau_o rho_o"), ("slides", "tau_o")):
        found = cot.icl_conditions(cot.faithful_transitions(0.8), 100, 1.0, form=form)
        said = found["test length"].inequality
        assert said == f"l_ts >= C (alpha' {gap})^-2", said
