"""Predicates of Theorems 5 and 6 over many tasks and lengths at once."""

import jax
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.raising import raises


def test_predicates_are_vmapped_over_tasks_and_lengths():
    steps = np.stack([cot.slide_transitions(), cot.faithful_transitions(0.8)])
    six = jax.jit(jax.vmap(lambda s, l: cot.icl_conditions(cot.ReasoningTask(s), l)))
    found = six(steps, np.array([100.0, 100.0]))
    assert found["condition 1"].holds.tolist() == [False, True]
    assert found["condition 1"].left.tolist() == [0.5, 1.0]
    assert found.holds.tolist() == [False, True]
    five = jax.jit(jax.vmap(lambda s: cot.cot_conditions(cot.ReasoningTask(s), 50)))
    five = five(steps)
    assert five.holds.tolist() == [False, True]


def test_the_test_length_is_that_of_the_form():
    for form, gap in (("published", "tau_o rho_o"), ("slides", "tau_o")):
        task = cot.ReasoningTask(cot.faithful_transitions(0.8))
        found = cot.icl_conditions(task, 100, form=form)
        said = found["test length"].inequality
        assert said == f"l_ts >= C (alpha' {gap})^-2", said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relevant_fraction": 1.4}, "relevant_fraction: expected a value in [0, 1]"),
        ({"relevant_fraction": 0.0}, "relevant_fraction: expected a finite value > 0"),
        ({"loss": -0.25}, "loss: expected a finite value > 0"),
        ({"pattern_counts": np.ones(3)}, "pattern_counts: expected shape (K, M)"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    given = {"num_iterations": 400, "batch_size": 64, "loss": 0.25} | change
    fraction = given.pop("relevant_fraction", 0.4)
    with raises(message):
        tasks = cot.PermutationTasks(cot.Alphabet.standard(20, 3), fraction)
        cot.training_conditions(tasks, 20, **given)


def test_shares_out_of_range_are_refused():
    for share in (3.0, -1.0):
        with raises("relevant_fraction: expected a value in [0, 1]"):
            cot.ReasoningTask(cot.slide_transitions(), share)
