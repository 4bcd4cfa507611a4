"""Errors by the place of one special example, against predictors that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import LinearPopulation
from icltheory.regression.position import errors_by_position

TASK = LinearPopulation.isotropic(3)
KEY = jax.random.key(0)


def first(X, y, x_query):
    return y[:, 0]


def measure(predictor, special="relevant", prompts=40, examples=5):
    found = errors_by_position(
        predictor, TASK, KEY, prompts, num_examples=examples, special=special
    )
    return np.asarray(found)


def test_who_copies_the_first_label_is_right_only_if_it_is_the_answer():
    errors = measure(first)
    assert errors.shape == (40, 5)
    np.testing.assert_array_equal(errors[:, 0], 0)
    # At all other places the first label is the same strange one.
    assert (errors[:, 1:] == errors[:, 1:2]).all()
    assert errors[:, 1].mean() > 0.5


def test_the_relevant_example_is_the_query_and_the_others_keep_their_order():
    seen = []

    def predictor(X, y, x_query):
        place = jnp.argmin(jnp.abs(X - x_query[:, None]).sum(axis=2), axis=1)
        rest = [jnp.delete(X[0], place[0], axis=0, assume_unique_indices=True)]
        jax.debug.callback(lambda *a: seen.append(a), place, y, *rest, ordered=True)
        return jnp.take_along_axis(y, place[:, None], axis=1)[:, 0]

    errors = measure(predictor)
    jax.effects_barrier()
    np.testing.assert_array_equal(errors, 0)
    assert [int(place[0]) for place, *_ in seen] == [0, 1, 2, 3, 4]
    assert all((place == place[0]).all() for place, *_ in seen)
    for _, _, rest in seen:
        np.testing.assert_array_equal(rest, seen[0][2])


def test_the_wrong_example_is_of_another_task():
    def fits(X, y, x_query):
        """The answer of the last three examples, which fix a task of dimension 3."""
        w = jnp.linalg.solve(X[:, -3:], y[:, -3:, None])[..., 0]
        return jnp.sum(w * x_query, axis=1)

    errors = measure(fits, "wrong")
    assert errors[:, :2].max() < 1e-6  # the wrong one is not among the last three
    assert np.median(errors[:, 2:], axis=0).min() > 1e-2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"special": "odd"}, "special: expected one of"),
        ({"prompts": 0}, "num_prompts: expected"),
        ({"examples": 0}, "num_examples: expected"),
        ({"predictor": lambda X, y, x: y}, "predictions of predictor: expected"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        measure(**{"predictor": first, **change})
