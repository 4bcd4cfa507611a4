import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import LinearPopulation, PrefixPrompt, Prompt


def draw(noise_var, key):
    task = LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), noise_var)
    return _draw(task, key)


@jax.jit
def _draw(task, key):
    return task.sample(key, 5, 4)


def test_points_join_the_query_as_the_last_point(key):
    prompt = draw(0.5, key)
    X, y = map(np.asarray, prompt.points())
    assert X.shape == (4, 6, 3)
    assert y.shape == (4, 6)
    np.testing.assert_array_equal(X[:, :5], prompt.X)
    np.testing.assert_array_equal(X[:, 5], prompt.x_query)
    np.testing.assert_array_equal(y[:, :5], prompt.y)
    np.testing.assert_array_equal(y[:, 5], prompt.y_query)
    assert (prompt.num_examples, prompt.dim) == (5, 3)


@pytest.mark.slow
def test_tokens_hold_the_labels_of_the_examples_and_none_of_the_query(key):
    prompt = draw(0.5, key)
    H, h_query = map(np.asarray, prompt.tokens())
    np.testing.assert_array_equal(H[..., :3], prompt.X)
    np.testing.assert_array_equal(H[..., 3], prompt.y)
    np.testing.assert_array_equal(h_query, np.pad(prompt.x_query, ((0, 0), (0, 1))))
    one = jax.tree.map(lambda leaf: leaf[1], prompt)
    np.testing.assert_array_equal(one.tokens()[0], H[1])


def test_the_standard_prefix_prompt_asks_the_next_example(key):
    prompt = draw(0.0, key)
    prefixes = prompt.prefixes()
    X, y = prompt.points()
    assert isinstance(prefixes, PrefixPrompt)
    assert prefixes.X_query is prefixes.X
    np.testing.assert_array_equal(prefixes.X, X)
    np.testing.assert_array_equal(prefixes.y_query, y)
    assert (prefixes.num_points, prefixes.dim) == (6, 3)


def test_a_prompt_without_examples_has_one_point(key):
    task = LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.0)
    X, y = jax.eval_shape(lambda k: task.sample(k, 0, 2).points(), key)
    assert X.shape == (2, 1, 3)
    assert y.shape == (2, 1)


def test_prompts_are_pytrees_that_map_and_vmap(key):
    prompt = draw(0.0, key)
    halved = jax.tree.map(lambda a: jnp.asarray(np.asarray(a) / 2), prompt)
    assert isinstance(halved, Prompt)
    one = jax.jit(jax.vmap(lambda p: p.points()[0]))(prompt)
    np.testing.assert_array_equal(one, prompt.points()[0])
    assert len(jax.tree.leaves(prompt)) == 5
    single = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[0]), prompt)
    assert single.points()[0].shape == (6, 3)
    np.testing.assert_array_equal(single.prefixes().y, jnp.asarray(single.points()[1]))
