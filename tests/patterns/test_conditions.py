import pytest

from icltheory.patterns import (
    Condition,
    Conditions,
    circulant_tasks,
    in_domain_conditions,
    out_of_domain_conditions,
    pruning_conditions,
)

GOOD = dict(
    relevant_fraction=0.8,
    num_examples=20,
    test_fraction=0.6,
    test_examples=20,
    batch_size=128,
    num_steps=320,
    accuracy=0.1,
)
EIGHTEEN = circulant_tasks(6, [1, 2, 3])


def one(tasks=EIGHTEEN, **changes):
    return in_domain_conditions(tasks, 6, **(GOOD | changes))


def two(S=1.2, num=3, training=None, **changes):
    settings = dict(test_fraction=0.6, test_examples=20) | changes
    return out_of_domain_conditions(training or one(), 6, num, S, **settings)


def test_theorem_1_holds_at_the_settings_of_the_package():
    assert one().holds
    assert [c.name for c in one().each] == [
        "cover",
        "tasks",
        "training length",
        "test length",
        "batch",
        "steps",
    ]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cover", {"tasks": EIGHTEEN[:-1]}),
        ("tasks", {"tasks": circulant_tasks(6, [1, 2])}),
        ("training length", {"num_examples": 1}),
        ("training length", {"length_constant": 17.0}),
        ("test length", {"test_examples": 1}),
        ("test length", {"test_length_constant": 13.0}),
        ("batch", {"accuracy": 0.08}),
        ("batch", {"batch_size": 5, "accuracy": 1.0}),
        ("batch", {"batch_constant": 2.0}),
        ("steps", {"num_steps": 100}),
        ("steps", {"num_steps": 1200}),
        ("steps", {"steps_constants": (300.0, 1000.0)}),
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
        ("coefficient sum", {"least_sum": 1.3}),
        ("constant order", {"S": 2.1, "num": 1}),
        ("feasible", {"S": 1.3, "num": 4}),
        ("test length", {"test_examples": 1}),
    ],
)
def test_each_condition_of_theorem_2_fails_alone(name, changes):
    assert two().holds
    assert two(**changes).failing == (name,)


def test_theorem_2_takes_over_theorem_1():
    found = two(training=one(num_steps=1, test_examples=1))
    assert found.failing == ("steps",)  # the test length is that of the shifted prompts


def test_theorem_3_compares_with_both_bounds():
    assert pruning_conditions(0.2, 0.4, 0.4, 25, 0.0).holds
    assert pruning_conditions(0.21, 0.4, 0.4, 25, 0.0).failing == ("small neurons",)
    assert pruning_conditions(0.21, 0.4, 0.4, 25, 0.02).holds
    assert pruning_conditions(0.5, 0.4, 0.4, 25, 0.05, small_constant=2.0).holds
    assert pruning_conditions(0.0, 0.39, 0.4, 25, 0.0).failing == ("large neurons",)
    assert pruning_conditions(0.0, 0.2, 0.4, 25, 0.0, large_constant=0.5).holds


def test_what_is_printed():
    lines = str(two(S=1.3, num=4)).splitlines()
    assert "feasible: M1' S_1^2 <= M1 (6.76 against 6): fails" in lines
    assert str(Condition("a", "b >= c", 2, 1, True)) == "a: b >= c (2 against 1): holds"
    assert Conditions(()).holds


def test_bad_input():
    with pytest.raises(
        ValueError, match="accuracy: expected a finite value > 0, got 0"
    ):
        one(accuracy=0.0)
    with pytest.raises(ValueError, match="tasks: expected two different patterns"):
        one(tasks=[(0, 0)])
    with pytest.raises(ValueError, match="num_irrelevant: expected a positive integer"):
        pruning_conditions(0.0, 0.0, 0.1, 0, 0.1)
