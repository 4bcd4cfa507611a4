"""Many prompts a few at a time: the same numbers, one program, bounded memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.batching import in_batches, in_turns, reported
from icltheory.bounds import (
    anisotropic_bound,
    held_out_bound,
    isotropic_bound,
    noisy_steps,
)
from icltheory.trajectory import implicit_gd_norms


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8])
def test_parts_are_a_map_of_any_size_by_one_program(size):
    traced = []

    @jax.jit
    def program(x, y):
        traced.append(x.shape)
        return {"sum": x.sum(axis=1), "square": y**2}

    x, y = np.arange(2.0 * size).reshape(size, 2), np.arange(1.0 * size)
    got = in_batches(program, 4, x, y)
    np.testing.assert_array_equal(got["sum"], x.sum(axis=1))
    np.testing.assert_array_equal(got["square"], y**2)
    assert traced == [(min(size, 4), 2)]


@pytest.mark.parametrize("at_once", [1, 2, 5, 9])
def test_turns_are_a_map_and_one_at_a_time_is_no_batch(at_once):
    x = jnp.arange(20.0).reshape(5, 2, 2)

    def function(entry):
        return {"square": entry["x"] @ entry["x"]}

    def program(x):
        return in_turns(function, {"x": x}, at_once)

    np.testing.assert_allclose(jax.jit(program)(x)["square"], x @ x)
    product = {1: "f64[2,2]", 2: "f64[2,2,2]", 5: "f64[5,2,2]", 9: "f64[5,2,2]"}
    assert f"{product[at_once]} = dot_general" in str(jax.make_jaxpr(program)(x))


def test_it_can_be_differentiated_and_jitted():
    x = jnp.arange(5.0)
    slopes = jax.jit(jax.grad(lambda x: in_batches(lambda x: x**3, 2, x).sum()))(x)
    np.testing.assert_allclose(slopes, 3 * x**2)


def test_arguments_of_other_sizes_are_refused():
    for args in ((jnp.ones(2), jnp.ones(3)), (jnp.ones(()),)):
        with pytest.raises(ValueError, match="expected one leading axis"):
            in_batches(jnp.add, 2, *args)


def stack_and_prompts(prompts, N=8, n=2, layers=1):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(3, layers, n, n)) + np.eye(n)
    return LinearAttentionStack(*weights), rng.normal(size=(prompts, N, n)) / 4


@pytest.mark.slow
def test_the_memory_is_that_of_one_batch():
    stack, H = stack_and_prompts(1, N=32, n=16, layers=4)

    def temporary(size):
        prompts = jax.ShapeDtypeStruct((size, *H.shape[1:]), H.dtype)
        norms = jax.vmap(lambda H: implicit_gd_norms(stack, H, method="factors"))
        return jax.jit(norms).lower(prompts).compile().memory_analysis()

    all_at_once, one_batch = temporary(64), temporary(8)
    if all_at_once is None:
        pytest.skip("the backend does not say what it needs")
    assert all_at_once.temp_size_in_bytes > 6 * one_batch.temp_size_in_bytes


@pytest.mark.parametrize(
    "bound",
    [
        isotropic_bound,
        *(
            pytest.param(form, marks=pytest.mark.slow)
            for form in (
                functools.partial(anisotropic_bound, center="mean"),
                functools.partial(
                    anisotropic_bound,
                    prior=lambda layer, W: 2 * jnp.eye(4) + jnp.sum(W**2),
                ),
                functools.partial(held_out_bound, held_out=6),
            )
        ),
    ],
    ids=["isotropic", "anisotropic", "function", "held_out"],
)
def test_theorem_2_does_not_depend_on_the_batch(bound):
    stack, H = stack_and_prompts(5)
    choice = {"scale": 1 / 8, "key": jax.random.key(2)}
    whole, parts = (
        jax.jit(
            lambda H, more=more: bound(noisy_steps(stack, H, 4, **choice, **more), 1.0)
        )(H)
        for more in ({}, {"batch_size": 2})
    )
    assert np.isfinite(float(whole.value))
    for a, b in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_parts_are_reported_and_an_error_ends_the_computation():
    calls, ran = [], []
    assert list(reported([], lambda *call: calls.append(call))) == []
    assert not calls
    assert list(reported("ab", lambda *call: calls.append(call))) == ["a", "b"]
    assert calls == [(0, 2, ""), (1, 2, "a"), (2, 2, "b")]

    def stop(done, total, part):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran.extend(reported("abcd", stop))
    assert ran == ["a", "b"]
