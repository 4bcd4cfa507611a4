"""What every calculator does with its arguments: reading, compiling, NaN and errors."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from icltheory._calculators import calculator
from icltheory._noted import check_at_least, check_covariance, check_nonnegative
from icltheory._pytree import pytree
from icltheory._typing import PRNGKey
from icltheory.pruning import clip

COUNTED = {"calls": 0, "late": 0}


@pytree
class Weights:
    """Non-negative weights."""

    W: Float[ArrayLike, "..."]

    def __post_init__(self):
        check_nonnegative("W", self.W)


@calculator
def total(
    W: Float[ArrayLike, "..."],
    power: int = 1,
    *,
    scale: Real[ArrayLike, ""] = 1.0,
    weights: Weights | None = None,
    form: str = "sum",
    key: PRNGKey | None = None,
) -> Float[ArrayLike, ""]:
    """The sum of powers of non-negative numbers."""
    COUNTED["calls"] += 1
    check_nonnegative("W", W)
    check_nonnegative("scale", scale)
    own = jnp.asarray(W) if weights is None else jnp.asarray(weights.W) * W
    return scale * jnp.sum(own**power)


@calculator
def late(W: Float[ArrayLike, "..."], least: Real[ArrayLike, ""] = 0.0):
    """Counts the traces that come as far as what follows the checks."""
    check_at_least("W", W, least)
    check_covariance("W", W, 2)
    COUNTED["late"] += 1
    return jnp.sum(jnp.asarray(W))


@calculator
def outer(W: Float[ArrayLike, "..."]) -> Float[ArrayLike, "..."]:
    """A calculator that calls another, directly and in a batch."""
    return total(W) + jnp.sum(jax.vmap(total)(W))


def test_it_is_traced_once_for_each_shape_and_constant():
    W = jnp.ones((2, 3))
    total(W)
    before = COUNTED["calls"]
    assert float(total(W + 1)) == 12
    assert float(total(W, scale=2.5)) == 15
    assert float(total(W, scale=3.5)) == 21
    assert COUNTED["calls"] == before + 1  # numbers are arguments of the program
    total(W, 2)
    total(W, scale=0.0)  # zero is a constant, as a function may decide by it
    total(jnp.ones(5))
    assert COUNTED["calls"] == before + 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"W": -np.ones(2)}, "W: expected a value >= 0, got -1.0"),
        ({"W": np.ones(2) * 1j}, "W: expected real numbers, got complex"),
        ({"W": [1.0, 1j]}, "W: expected real numbers, got complex"),
        ({"W": "ones"}, "W: expected numbers, got 'ones'"),
        (
            {"W": np.array(["a"])},
            "W: expected numbers, got an array of <U1, shape (1,)",
        ),
        (
            {"W": np.ones(2, np.longdouble)},
            "W: expected numbers of at most 64 bits, got an array of "
            f"{np.dtype(np.longdouble)}, shape (2,)",
        ),
        (
            {"W": np.ma.masked_array(np.ones(2))},
            "W: expected an array without a mask, got a mask",
        ),
        (
            {"W": np.ones(2, "m8[s]")},
            "W: expected numbers, got an array of timedelta64[s], shape (2,)",
        ),
        (
            {"W": np.ones(2, [("a", "f4")])},
            "W: expected numbers, got an array of [('a', '<f4')], shape (2,)",
        ),
        ({"scale": np.ones(2)}, "scale: expected shape (), got (2,)"),
        ({"scale": "0.5"}, "scale: expected numbers, got '0.5'"),
        ({"scale": np.nan}, "scale: expected finite entries, got NaN or infinity"),
        ({"power": 2.5}, "power: expected an integer, got 2.5"),
        ({"power": True}, "power: expected an integer, got True"),
        ({"key": 0}, "key: expected one key from jax.random.key, got 0"),
        (
            {"key": jax.random.PRNGKey(0)},
            "key: expected one key from jax.random.key, got an array of uint32, "
            "shape (2,)",
        ),
        ({"weights": (1.0,)}, "weights: expected Weights or None, got (1.0,)"),
        ({"form": 3}, "form: expected str, got 3"),
    ],
)
def test_an_error_names_the_argument_in_one_line(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        total(**({"W": np.ones(2)} | given))


def test_it_runs_where_its_caller_forbids_promotion_or_looks_for_leaks():
    @calculator
    def first(W: Float[ArrayLike, "..."]) -> Float[ArrayLike, ""]:
        return jnp.sum(jnp.asarray(W) * (jnp.arange(2) < 1))

    with jax.numpy_dtype_promotion("strict"), jax.checking_leaks():
        assert first(np.ones(2)) == 1


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2"])
def test_arrays_of_another_byte_order_are_read(kind):
    W = np.arange(6.0).astype(kind)
    assert float(total(W)) == float(total(W, weights=Weights(np.ones(6, kind)))) == 15
    assert np.allclose(clip(np.ones((2, 2), kind), rate=0.5), 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "total: missing a required argument: 'W'"),
        (
            {"W": np.ones(2), "bogus": 1},
            "total: got an unexpected keyword argument 'bogus'",
        ),
    ],
)
def test_a_call_that_does_not_fit_the_signature_names_the_function(given, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        total(**given)


def test_lists_integers_and_booleans_are_numbers():
    for W in ([1, 2], [[1.0], [2.0]], np.array([1, 2]), (np.array([True, True]) * 1.5)):
        assert float(total(W)) == 3


def test_a_traced_value_out_of_range_gives_nan():
    run = jax.jit(lambda W, scale: total(W, scale=scale))
    assert float(run(jnp.ones(2), 2.0)) == 4
    for W, scale in ((-jnp.ones(2), 2.0), (jnp.ones(2), -2.0)):
        assert np.isnan(run(W, scale))
        assert np.all(np.isnan(jax.grad(run)(W, scale)))
    batch = jax.vmap(total)(jnp.array([[1.0, 2.0], [1.0, -2.0]]))
    np.testing.assert_array_equal(batch, [3, np.nan])


def test_known_values_are_refused_before_the_program_is_traced_to_its_end():
    for wrong, message in (
        (-np.eye(2), "W: expected a value >= 0.0, got -1.0"),
        (np.full((2, 2), np.nan), "W: expected a value >= 0.0, got nan"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "W: expected a symmetric matrix"),
        (1.0 - np.eye(2), "W: expected a positive semi-definite matrix"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}[^\n]*$"):
            late(wrong)
    assert COUNTED["late"] == 0
    assert float(late(np.eye(2))) == 2
    before = COUNTED["late"]
    assert float(late(3 * np.eye(2))) == 6  # the program knows no value
    assert COUNTED["late"] == before
    with pytest.raises(ValueError, match="W: expected a value >= 0.0, got -1.0"):
        late(-np.eye(2))
    with pytest.raises(ValueError, match="W: expected a value >= 2.0, got 1.0"):
        late(np.eye(2), least=2.0)


def test_a_constant_out_of_range_is_an_error_also_while_tracing():
    with pytest.raises(ValueError, match="scale: expected a value >= 0, got"):
        jax.jit(lambda W: total(W, scale=-2.0))(jnp.ones(2))


def test_calculators_within_calculators_raise_and_poison():
    assert float(outer(jnp.ones((2, 2)))) == 8
    with pytest.raises(ValueError, match="W: expected a value >= 0, got -1.0"):
        outer(-jnp.ones((2, 2)))
    assert np.isnan(jax.jit(outer)(-jnp.ones((2, 2))))


def test_a_traced_record_out_of_range_is_nan():
    @jax.jit
    def run(W):
        return total(jnp.ones(2), weights=Weights(W))

    assert float(run(jnp.ones(2))) == 2
    assert np.isnan(run(-jnp.ones(2)))


def test_functions_among_the_arguments_are_not_compiled():
    @calculator
    def apply(function, W: Float[ArrayLike, "..."]):
        check_nonnegative("W", W)
        return function(W)

    assert float(apply(lambda W: float(np.sum(W)), np.ones(3))) == 3
