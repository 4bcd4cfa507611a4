import functools

import numpy as np
import pytest

from icltheory import patterns
from tests.raising import raises

EIGHTEEN = patterns.circulant_tasks(6, [1, 2, 3])


@functools.cache
def task_of(tasks, num=3):
    """Six relevant patterns and 25 irrelevant ones."""
    rows = np.zeros((25, 31))
    given = {"relevant": rows[:6], "irrelevant": rows, "tasks": tasks}
    return patterns.PatternTask(6, 25, 2.0, num_shifted=num, **given)


def setting(**changes):
    return patterns.Setting(**({"num_steps": 320, "test_fraction": 0.6} | changes))


def one(tasks=EIGHTEEN, accuracy=0.1, constants=None, **changes):
    constants = patterns.Constants(**(constants or {}))
    task, sizes = task_of(tuple(tasks)), setting(**changes)
    return patterns.in_domain_conditions(task, sizes, accuracy, constants=constants)


def two(S=1.2, num=3, constants=None, **changes):
    task, sizes = task_of(EIGHTEEN, num), setting(**changes)
    constants = patterns.Constants(**(constants or {}))
    return patterns.out_of_domain_conditions(task, sizes, 0.1, S, constants=constants)


def three(few, many, accuracy, **constants):
    given = task_of(EIGHTEEN), accuracy, few, many, 0.4
    return patterns.pruning_conditions(
        *given, constants=patterns.Constants(**constants)
    )


def test_theorem_1_holds_at_the_settings_of_the_package():
    assert one().holds
    names = ["cover", "tasks", "training length", "test length", "batch", "steps"]
    assert [c.name for c in one().each] == names


@pytest.mark.statement("Li ICL: Theorem 1, B")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cover", {"tasks": EIGHTEEN[:-1]}),
        ("tasks", {"tasks": patterns.circulant_tasks(6, [1, 2])}),
        ("training length", {"num_examples": 1}),
        ("training length", {"constants": {"length": 17.0}}),
        ("test length", {"test_examples": 1}),
        ("test length", {"constants": {"test_length": 13.0}}),
        ("batch", {"accuracy": 0.08}),
        ("batch", {"batch_size": 5, "accuracy": 1.0}),
        ("batch", {"constants": {"batch": 2.0}}),
        ("steps", {"num_steps": 100}),
        ("steps", {"num_steps": 1200}),
        ("steps", {"constants": {"steps": (300.0, 1000.0)}}),
    ],
)
def test_each_condition_of_theorem_1_fails_alone(name, changes):
    found = one(**changes)
    assert found.failing == (name,)
    assert not found.holds
    assert not found[name].holds


def test_the_sides_are_the_numbers():
    found = one()
    sides = {c.name: (float(c.left), float(c.right)) for c in found.each}
    assert sides["cover"] == (1, 1)
    assert sides["tasks"] == (0.6, 5**-0.5)
    assert sides["training length"] == (16.0, 1.0)
    assert sides["batch"] == (128, 0.1**-2)
    assert sides["steps"] == (320 * 0.8 ** (2 / 3), 100.0)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("coefficient sum", {"S": 0.9}),
        ("coefficient sum", {"constants": {"least_sum": 1.3}}),
        ("constant order", {"S": 1.4, "constants": {"largest_sum": 1.3}}),
        ("feasible", {"S": 1.3, "num": 4}),
        ("test length", {"test_examples": 1}),
    ],
)
def test_each_condition_of_theorem_2_fails_alone(name, changes):
    assert two().holds
    assert two(**changes).failing == (name,)


def test_theorem_2_takes_over_theorem_1():
    assert two(num_steps=1, test_examples=1).failing == ("steps", "test length")


def test_theorem_3_compares_with_both_bounds():
    assert three(0.2, 0.4, 0.0).holds
    assert three(0.21, 0.4, 0.0).failing == ("small neurons",)
    assert three(0.21, 0.4, 0.02).holds
    assert three(0.5, 0.4, 0.05, small=2.0).holds
    assert three(0.0, 0.39, 0.0).failing == ("large neurons",)
    assert three(0.0, 0.2, 0.0, large=0.5).holds


def test_what_is_printed():
    lines = str(two(S=1.3, num=4)).splitlines()
    assert "feasible: M1' S_1^2 <= M1 (6.76 against 6): fails" in lines
    assert (
        str(patterns.Condition("a", "b >= c", 2, 1, True))
        == "a: b >= c (2 against 1): holds"
    )
    assert patterns.Conditions(()).holds


def test_bad_input():
    with raises("accuracy: expected a finite value > 0, got 0"):
        one(accuracy=0.0)
