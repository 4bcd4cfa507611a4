import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import (
    DecisionTree,
    LinearClassification,
    LinearPopulation,
    PromptPool,
    SparseLinearRegression,
    TaskPool,
)
from icltheory.regression.shifts import draw_indices
from tests.raising import raises


def draw(pool, key, shape=(5, 4)):
    return jax.tree.map(np.asarray, prompts(pool, key, shape))


@functools.cache
def the_task():
    return LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.25)


@functools.partial(jax.jit, static_argnums=2)
def parameters(task, key, count):
    return task.sample_parameters(key, count)


@functools.partial(jax.jit, static_argnums=2)
def prompts(pool, key, shape):
    return pool.sample(key, *shape)


@pytest.mark.slow
def test_tasks_are_uniform_over_the_pool_with_replacement(key):
    pool = TaskPool(the_task(), 5, jax.random.key(1))
    np.testing.assert_allclose(
        pool.pool, parameters(the_task(), jax.random.key(1), 5), rtol=1e-14
    )
    w = np.asarray(parameters(pool, key, 5000))
    found, counts = np.unique(w, axis=0, return_counts=True)
    np.testing.assert_array_equal(found, np.unique(pool.pool, axis=0))
    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 28  # 4 d.o.f., below 1e-5


def test_a_batch_without_replacement_has_every_task_at_most_once(key):
    pool = TaskPool(the_task(), 6, jax.random.key(1), replace=False)
    for k in jax.random.split(key, 5):
        assert len(np.unique(parameters(pool, k, 4), axis=0)) == 4
    all_of_them = parameters(pool, key, 6)
    np.testing.assert_array_equal(
        np.unique(all_of_them, axis=0), np.unique(pool.pool, axis=0)
    )
    with raises("num_prompts: expected at most the pool's 6 members without"):
        pool.sample(key, 5, 7)


@pytest.mark.slow
def test_large_pools_without_replacement_are_drawn_uniformly(key):
    draw_set = jax.jit(jax.vmap(lambda k: draw_indices(k, 9, 2, replace=False)))
    pairs = np.sort(draw_set(jax.random.split(key, 7200)), axis=1)
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(found) == 36
    assert np.all(found[:, 0] != found[:, 1])
    assert ((counts - 200.0) ** 2 / 200.0).sum() < 80  # 35 d.o.f., below 1e-4


@pytest.mark.slow
def test_a_given_pool_is_used_as_it_is(key):
    weights = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]])
    plain = LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.0)
    pool = TaskPool(plain, pool=weights)
    assert pool.pool_size == 2
    prompt = draw(pool, key)
    np.testing.assert_array_equal(np.unique(prompt.w, axis=0), weights)
    np.testing.assert_allclose(
        prompt.y, np.einsum("bnd,bd->bn", prompt.X, prompt.w), rtol=1e-12
    )
    trees = DecisionTree(3, depth=1)
    tree_pool = {"coordinates": np.array([[0]]), "values": np.array([[-1.0, 1.0]])}
    prompt = draw(TaskPool(trees, pool=tree_pool), key)
    np.testing.assert_array_equal(prompt.y, np.sign(prompt.X[..., 0]))


def test_a_pool_keeps_the_inputs_noise_and_labels_of_its_family(key):
    H = np.diag([4.0, 0.0, 0.0])
    task = LinearPopulation(H, np.zeros(3), np.eye(3), 0.25)
    pool = TaskPool(task, pool=np.ones((1, 3)))
    prompt = draw(pool, key, (99, 50))
    assert np.all(prompt.X[..., 1:] == 0)
    noise = prompt.y - prompt.X[..., 0]
    assert abs((noise**2).mean() - 0.25) < 5 * 0.25 * np.sqrt(2 / noise.size)
    for kind in (TaskPool, PromptPool):
        pool = jax.eval_shape(lambda kind=kind: kind(LinearClassification(3), 3, key))
        assert pool.targets == "sign"
    sparse = jax.jit(lambda: TaskPool(SparseLinearRegression(5, 2), 4, key).pool)()
    assert np.all(np.count_nonzero(sparse, axis=1) == 2)


@pytest.mark.slow
def test_prompt_pools_repeat_the_same_prompts(key):
    pool = PromptPool(the_task(), 4, jax.random.key(1))
    both = jax.jit(jax.vmap(lambda k: pool.sample(k, 5, 4)))
    both = both(jnp.stack([key, jax.random.key(7)]))
    both = jax.tree.map(np.asarray, both)
    first, second = (jax.tree.map(lambda a, i=i: a[i], both) for i in range(2))
    order_1, order_2 = np.argsort(first.y[:, 0]), np.argsort(second.y[:, 0])
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a[order_1], b[order_2])
    assert len(np.unique(first.y[:, 0])) == 4
    one = draw(the_task(), jax.random.fold_in(jax.random.key(1), 2), (5, 1))
    assert np.any(np.all(np.asarray(first.X) == np.asarray(one.X), axis=(1, 2)))
    with raises("num_prompts: expected at most the pool's 4 members without"):
        pool.sample(key, 5, 5)
    many = PromptPool(the_task(), 4, jax.random.key(1), replace=True)
    assert len(np.unique(draw(many, key, (5, 50)).y[:, 0])) == 4


@pytest.mark.slow
def test_a_large_prompt_pool_costs_no_memory(key):
    pool = PromptPool(the_task(), 2**30, jax.random.key(1), replace=True)
    assert len(np.unique(draw(pool, key, (5, 50)).y[:, 0])) == 50


def test_impossible_pools_say_what_was_expected(key):
    for build in (
        lambda: TaskPool(the_task()),
        lambda: TaskPool(the_task(), 3),
        lambda: TaskPool(the_task(), 3, key, pool=np.ones((3, 3))),
    ):
        with raises("pool: expected either pool_size and key, or pool, got"):
            build()
    with raises("pool_size: expected a positive integer, got 0"):
        TaskPool(the_task(), 0, key)
    with raises("pool_size: expected 3 as in pool, got 4"):
        TaskPool(the_task(), 4, pool=np.ones((3, 3)))
    with raises("pool: expected one leading axis, got"):
        TaskPool(the_task(), pool={"a": jnp.ones((2, 2)), "b": jnp.ones((3, 2))})
    with raises("pool_size: expected a positive integer, got 0"):
        PromptPool(the_task(), 0, key)
    with raises("key: expected one key from jax.random.key, got 0"):
        PromptPool(the_task(), 4, 0)
    assert "key=key<fry>[]" in repr(PromptPool(the_task(), 4, key))
