"""Many prompts a few at a time: the same numbers, one program, bounded memory."""

import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.batching import (
    batched,
    batches_of,
    in_batches,
    in_turns,
    print_progress,
    reported,
)
from icltheory.bounds import (
    anisotropic_bound,
    held_out_bound,
    isotropic_bound,
    noisy_steps,
)
from icltheory.trajectory import implicit_gd_norms


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8])
def test_it_is_a_vmap_of_any_size(size):
    x, y = jnp.arange(2.0 * size).reshape(size, 2), jnp.arange(1.0 * size)

    def function(pair, shared):
        return {"sum": pair[0].sum() * shared, "square": pair[1] ** 2}

    got = batched(function, 4, in_axes=(0, None))((x, y), 3.0)
    assert got["sum"].tolist() == (3 * x.sum(axis=1)).tolist()
    assert got["square"].tolist() == (y**2).tolist()


def test_it_compiles_once_and_not_again():
    traced = []

    def function(x):
        traced.append(x.shape)
        return x**2

    squares = batched(function, 3)
    for size in (10, 7):
        x = jnp.arange(float(size))
        assert squares(x).tolist() == (x**2).tolist()
    assert traced == [()]


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
    cubes = batched(lambda x: x**3, 2)
    slopes = jax.jit(jax.grad(lambda x: cubes(x).sum()))(x)
    np.testing.assert_allclose(slopes, 3 * x**2)


def test_parts_for_sums_cover_everything_once():
    x = jnp.arange(7.0)
    assert [len(part) for (part,) in batches_of(3, x)] == [3, 3, 1]
    assert sum(float(part.sum()) for (part,) in batches_of(3, x)) == 21
    assert [len(part) for (part, _) in batches_of(None, x, None)] == [7]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="batch_size: expected a positive"):
        batched(jnp.sin, 0)
    with pytest.raises(ValueError, match=r"^in_axes: expected one of 0, None, got 1"):
        batched(jnp.sum, 2, in_axes=(0, 1))  # slices would be rows, not columns
    with pytest.raises(ValueError, match="expected one leading axis, got sizes"):
        in_batches(jnp.add, 2, jnp.ones(2), jnp.ones(3))
    with pytest.raises(ValueError, match="expected one leading axis"):
        batched(jnp.sin, 2)(jnp.ones(()))


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


def test_progress_counts_from_none_to_all():
    calls = []
    doubled = batched(lambda x: 2 * x, 2, progress=lambda *call: calls.append(call))
    np.testing.assert_array_equal(doubled(jnp.arange(5.0)), 2 * np.arange(5))
    parts = ["", "batch from 0", "batch from 2", "batch from 4"]
    assert calls == [(done, 3, part) for done, part in enumerate(parts)]
    calls.clear()
    doubled(jnp.arange(2.0))
    assert calls == [(0, 1, ""), (1, 1, "batch from 0")]


def test_nothing_to_do_is_not_reported_and_an_error_ends_the_computation():
    calls, ran = [], []
    assert list(reported([], lambda *call: calls.append(call))) == []
    assert not calls

    def stop(done, total, part):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran.extend(reported("abcd", stop))
    assert ran == ["a", "b"]


def test_printed_progress_tells_part_and_time_left_and_begins_each_stage_anew():
    times, out = iter([0.0, 0.0, 4.0, 4.5, 8.0, 100.0, 103.0]), io.StringIO()
    show = print_progress(out, every=1, clock=lambda: next(times))
    for done, total in ((0, 4000), (1000, 4000), (1100, 4000), (4000, 4000)):
        show(done, total, "validation, rates 0, 0.9")
    show(0, 3, "")
    show(1, 3, "test, rate 0")
    assert out.getvalue().splitlines() == [
        "validation, rates 0, 0.9: 1,000 of 4,000, 12 s left",
        "validation, rates 0, 0.9: 4,000 of 4,000, 8 s",
        "test, rate 0: 1 of 3, 6 s left",
    ]
