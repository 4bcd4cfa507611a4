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
    return y[0]


def measure(predictor, special="relevant", prompts=40, examples=5):
    found = errors_by_position(
        predictor, TASK, examples, key=KEY, num_prompts=prompts, special=special
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
        place = jnp.argmin(jnp.abs(X - x_query[None]).sum(axis=1))
        rest = jnp.delete(X, place, axis=0, assume_unique_indices=True)
        jax.debug.callback(lambda *a: seen.append(a), x_query, place, rest)
        return y[place]

    errors = measure(predictor)
    jax.effects_barrier()
    np.testing.assert_array_equal(errors, 0)
    by_query = {}
    for x, place, rest in seen:
        by_query.setdefault(np.asarray(x).tobytes(), []).append((int(place), rest))
    assert len(by_query) == 40
    for own in by_query.values():
        assert sorted(place for place, _ in own) == [0, 1, 2, 3, 4]
        for _, rest in own:
            np.testing.assert_array_equal(rest, own[0][1])


def test_the_wrong_example_is_of_another_task():
    def fits(X, y, x_query):
        """The answer of the last three examples, which fix a task of dimension 3."""
        return jnp.sum(jnp.linalg.solve(X[-3:], y[-3:]) * x_query)

    errors = measure(fits, "wrong")
    assert errors[:, :2].max() < 1e-6  # the wrong one is not among the last three
    assert np.median(errors[:, 2:], axis=0).min() > 1e-2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"special": "odd"}, "special: expected one of"),
        ({"prompts": 0}, "num_prompts: expected"),
        ({"examples": 0}, "num_examples: expected"),
        ({"predictor": lambda X, y, x: y}, "what the predictor returns: expected"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        measure(**{"predictor": first, **change})
