import functools

import jax
import numpy as np
import pytest

from icltheory.patterns import prune_neurons
from tests.raising import raises

RNG = np.random.default_rng(0)
PARAMS = {"W_O": RNG.normal(size=(10, 4)), "a": RNG.normal(size=10)}


def prune(params, fraction, order="magnitude", key=None):
    return prune_neurons(params, fraction, order=order, key=key)


def rows_left(W):
    return np.flatnonzero(np.any(np.asarray(W) != 0, axis=1))


@pytest.mark.parametrize("order", ["magnitude", "reverse", "random"])
@pytest.mark.parametrize("fraction", [0, 0.14, 0.5, 1.0])
def test_the_right_number_of_the_right_rows(order, fraction):
    key = jax.random.key(4) if order == "random" else None
    new = prune(PARAMS, fraction, order, key)
    norms = [sum(v**2 for v in row) for row in PARAMS["W_O"]]
    left = rows_left(new["W_O"])
    assert len(left) == 10 - round(10 * fraction)
    if order != "random":
        goes = np.argsort(norms if order == "magnitude" else np.negative(norms))
        assert sorted(goes[round(10 * fraction) :]) == left.tolist()
    np.testing.assert_array_equal(np.asarray(new["W_O"])[left], PARAMS["W_O"][left])
    np.testing.assert_array_equal(new["a"], PARAMS["a"])


def test_random_rows_are_uniform_and_follow_the_key():
    keys = jax.random.split(jax.random.key(0), 2000)
    one = functools.partial(prune_neurons, PARAMS, 0.3, order="random")
    many = jax.jit(jax.vmap(lambda k: one(key=k)["W_O"]))(keys)
    gone = (np.asarray(many) == 0).all(-1).mean(0)
    assert np.abs(gone - 0.3).max() < 4.5 * (0.21 / 2000) ** 0.5
    again = prune(PARAMS, 0.3, "random", keys[7])["W_O"]
    np.testing.assert_array_equal(again, np.asarray(many)[7])


def test_each_layer_of_a_stack_loses_its_own():
    W = RNG.normal(size=(3, 10, 4))
    new = np.asarray(prune({"W_O": W}, 0.4)["W_O"])
    for layer in range(3):
        alone = prune({"W_O": W[layer]}, 0.4)["W_O"]
        np.testing.assert_array_equal(new[layer], alone)
    lost = prune({"W_O": W}, 0.4, "random", jax.random.key(0))["W_O"]
    lost = np.asarray(lost)
    assert [len(rows_left(W)) for W in lost] == [6, 6, 6]
    assert len({tuple(rows_left(W)) for W in lost}) > 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1.2,), "fraction: expected 0 <= fraction <= 1, got 1.2"),
        (
            (0.1, "x"),
            "order: expected one of 'magnitude', 'reverse', 'random', got 'x'",
        ),
        ((0.1, "random"), "key: expected a key with order 'random', got None"),
        ((0.1, "reverse", 0), "key: expected None with order 'reverse', got a key"),
    ],
)
def test_bad_input(given, message):
    key = jax.random.key(0) if len(given) == 3 else None
    with raises(message):
        prune(PARAMS, *given[:2], key=key)
