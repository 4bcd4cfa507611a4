"""Predicates of Theorems 5 and 6 over many tasks and lengths at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.chain_of_thought.measures import relative_gaps
from tests.raising import raises


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relevant_fraction": 1.4}, "relevant_fraction: expected a value in [0, 1]"),
        ({"relevant_fraction": 0.0}, "relevant_fraction: expected a finite value > 0"),
        ({"error": -0.25}, "error: expected a finite value > 0"),
        ({"pattern_counts": np.ones(3)}, "pattern_counts: expected shape (K, M)"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    counts = {"num_examples": 20, "num_iterations": 400, "batch_size": 64}
    given = {"num_states": 20, "num_steps": 3, "relevant_fraction": 0.4, "error": 0.25}
    with raises(message):
        cot.training_conditions(**{**counts, **given, **change})


def test_shares_out_of_range_are_refused():
    for conditions, share in ((cot.cot_conditions, 3.0), (cot.icl_conditions, -1.0)):
        with raises("relevant_fraction: expected a value in [0, 1]"):
            conditions(cot.slide_transitions(), 41, share)


def test_gaps_of_rows_of_one_and_of_two_entries():
    np.testing.assert_array_equal(relative_gaps(jnp.full((2, 3, 1), 0.5)), 1)
    np.testing.assert_allclose(relative_gaps(jnp.array([[[0.2, 0.8]]])), [[0.75]])
