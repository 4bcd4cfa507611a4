"""What a calculator does with its arguments, and what a record is."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory._checks import checked, count, finite, nonnegative, scalar, within
from icltheory._core import Record, calculator, where_valid
from icltheory._typing import Array

COUNTED = {"traces": 0}


class Weights(Record):
    """Non-negative weights and a name."""

    W: Array
    name: str = eqx.field(static=True, default="W")

    def __post_init__(self):
        self.W = checked("W", self.W, nonnegative)


class Pair(Record):
    """Numbers without a check."""

    x: Any


def _no_longer(name, value, given):
    return within(0, len(given["W"]))(name, value)


@calculator(
    static=("power", "form"),
    integers=("length",),
    W=nonnegative,
    scale=scalar & nonnegative,
    length=_no_longer,
)
def total(W, power=1, *, scale=1.0, form="sum", length=0, weights=None, key=None):
    """The sum of powers of non-negative numbers."""
    COUNTED["traces"] += 1
    own = W if weights is None else weights.W * W
    return scale * jnp.sum(own**power) + length // 2


@calculator(W=nonnegative)
def outer(W):
    """A calculator that calls another, directly and in a batch."""
    return total(W) + jnp.sum(jax.vmap(total)(W))


def test_it_is_compiled_once_for_each_shape_and_constant():
    W = jnp.ones((2, 3))
    total(W)
    before = COUNTED["traces"]
    assert float(total(W + 1)) == 12
    assert float(total(W, scale=2.5)) == 15
    assert float(total(W, scale=3.5)) == 21
    assert COUNTED["traces"] == before + 1  # a number given by name is an argument
    total(W, 2)
    total(jnp.ones(5))
    assert COUNTED["traces"] == before + 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"W": -np.ones(2)}, "W: expected a value >= 0, got -1.0"),
        ({"W": np.ones(2) * 1j}, "W: expected real numbers, got complex"),
        ({"W": [1.0, 1j]}, "W: expected real numbers, got complex"),
        ({"W": "ones"}, "W: expected numbers, got 'ones'"),
        ({"W": [[1, 2], [3]]}, "W: expected numbers in rows of one length, got [[1, "),
        ({"W": np.array(["a"])}, "W: expected numbers, got an array of <U1, shape (1,"),
        ({"W": np.ones(2, np.longdouble)}, "W: expected numbers of at most 64 bits"),
        ({"W": np.ma.masked_array([1.0])}, "W: expected an array without a mask"),
        ({"W": np.ones(2, "m8[s]")}, "W: expected numbers, got an array of timedelta"),
        ({"W": np.ones(2, [("a", "f4")])}, "W: expected numbers, got an array of [("),
        ({"W": 10**400}, "W: expected a number, got an integer of 1329 bits"),
        ({"scale": np.ones(2)}, "scale: expected shape (), got (2,)"),
        ({"scale": np.nan}, "scale: expected finite entries, got nan"),
        ({"scale": None}, "scale: expected numbers, got None"),
        ({"power": jnp.ones(2)}, "power: expected a constant, got an array of float64"),
        ({"key": 0}, "key: expected one key from jax.random.key, got 0"),
        ({"length": 3}, "length: expected 0 <= length <= 2, got 3"),
        ({"weights": object()}, "weights: expected numbers, got <object object"),
        (
            {"weights": Weights(np.ones(7))},
            "total with W (2,), scale = 1.0, weights = ",
        ),
    ],
)
def test_an_error_names_the_argument_in_one_line(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}[^\n]*$"):
        total(**({"W": np.ones(2), "scale": 1.0} | given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "total: missing a required argument: 'W'"),
        ({"W": 1.0, "bogus": 1}, "total: got an unexpected keyword argument 'bogus'"),
    ],
)
def test_a_call_that_does_not_fit_the_signature_names_the_function(given, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        total(**given)


def test_lists_integers_booleans_and_other_byte_orders_are_numbers():
    one_and_two = np.array([1, 2])
    kinds = [1, 2], (1.0, 2.0), one_and_two, one_and_two.astype(">f4"), jnp.arange(1, 3)
    for W in kinds:
        assert float(total(W)) == 3
        assert total(W).dtype in (np.float64, np.float32)
    assert float(total(np.array([True, True]))) == 2
    assert float(total([1.0, 2.0], length=2)) == 4  # an integer, not a float


def test_a_traced_wrong_value_makes_the_whole_result_nan():
    run = jax.jit(lambda W, scale: total(W, scale=scale))
    assert float(run(jnp.ones(2), 2.0)) == 4
    for W, scale in ((-jnp.ones(2), 2.0), (jnp.ones(2), -2.0)):
        assert np.isnan(run(W, scale))
        assert np.all(np.isnan(jax.grad(run)(W, scale)))
    batch = jax.vmap(total)(jnp.array([[1.0, 2.0], [1.0, -2.0]]))
    np.testing.assert_array_equal(batch, [3, np.nan])
    floats, whole, word = where_valid((jnp.ones(2), 3, "a"), jnp.array(False))
    assert np.isnan(floats).all()
    assert (whole, word) == (3, "a")
    with pytest.raises(ValueError, match="scale: expected a value >= 0, got"):
        jax.jit(lambda W: total(W, scale=-2.0))(jnp.ones(2))


def test_calculators_within_calculators():
    assert float(outer(jnp.ones((2, 2)))) == 8
    with pytest.raises(ValueError, match=r"W: expected a value >= 0, got -1.0"):
        outer(-jnp.ones((2, 2)))
    assert np.isnan(jax.jit(outer)(-jnp.ones((2, 2))))


def test_a_call_with_a_function_is_not_compiled():
    @calculator(static=("function",), W=finite)
    def apply(function, W):
        return function(W)

    assert float(apply(lambda W: float(np.sum(W)), np.ones(3))) == 3


def test_it_runs_where_its_caller_forbids_promotion_or_looks_for_leaks():
    with jax.numpy_dtype_promotion("strict"), jax.checking_leaks():
        assert total(np.ones(2, np.float32), length=1) == 2


def test_counts():
    check = count(1)
    for right in (1, 2.0, np.int64(3)):
        assert check("N", right) is True
    for wrong in (0, 2.5, np.nan):
        with pytest.raises(ValueError, match="N: expected a whole number >= 1, got"):
            check("N", wrong)


def test_records_are_frozen_trees_that_show_themselves_in_a_line_and_compare():
    one, other = Weights(np.arange(3.0)), Weights(np.arange(12.0), "V")
    assert repr(one) == "Weights(W=[0., 1., 2.], name='W')"
    assert repr(other) == "Weights(W=float64[12], name='V')"
    assert one == Weights(np.arange(3.0))
    assert one != other
    assert one != 3
    assert Pair(np.array([np.nan, 1])) == Pair(jnp.array([np.nan, 1]))
    with pytest.raises(AttributeError):
        one.W = 1
    assert one.to_dict()["W"].tolist() == [0, 1, 2]
    assert jax.tree.map(lambda W: 2 * W, one).W.tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="W: expected a value >= 0, got -1.0"):
        Weights(-np.ones(2))
    traced = jax.jit(lambda W: total(jnp.ones(2), weights=Weights(W)))
    assert np.isnan(traced(jnp.array([1.0, -1.0])))
