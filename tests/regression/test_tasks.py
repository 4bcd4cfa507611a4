"""Sources of prompts, pools of them, and the prompts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import (
    DecisionTree,
    Functions,
    LinearClassification,
    LinearPopulation,
    PrefixPrompt,
    Prompt,
    PromptPool,
    ReluNetwork,
    SparseLinearRegression,
    TaskPool,
)
from tests.raising import raises
from tests.regression import oracles


def some_prompts(noise_var, key):
    task = LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), noise_var)
    return _some_prompts(task, key)


@jax.jit
def _some_prompts(task, key):
    return task.sample(key, 5, 4)


def test_points_join_the_query_as_the_last_point(key):
    prompt = some_prompts(0.5, key)
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
    prompt = some_prompts(0.5, key)
    H, h_query = map(np.asarray, prompt.tokens())
    np.testing.assert_array_equal(H[..., :3], prompt.X)
    np.testing.assert_array_equal(H[..., 3], prompt.y)
    np.testing.assert_array_equal(h_query, np.pad(prompt.x_query, ((0, 0), (0, 1))))
    one = jax.tree.map(lambda leaf: leaf[1], prompt)
    np.testing.assert_array_equal(one.tokens()[0], H[1])


def test_the_standard_prefix_prompt_asks_the_next_example(key):
    prompt = some_prompts(0.0, key)
    prefixes = prompt.prefixes()
    X, y = prompt.points()
    assert isinstance(prefixes, PrefixPrompt)
    assert prefixes.X_query is prefixes.X
    np.testing.assert_array_equal(prefixes.X, X)
    np.testing.assert_array_equal(prefixes.y_query, y)
    assert (prefixes.num_points, prefixes.dim) == (6, 3)
    assert prefixes.after(5) == prompt
    np.testing.assert_array_equal(prefixes.after(2).x_query, X[:, 2])


def test_prompts_are_pytrees_that_map_and_vmap(key):
    prompt = some_prompts(0.0, key)
    halved = jax.tree.map(lambda a: jnp.asarray(np.asarray(a) / 2), prompt)
    assert isinstance(halved, Prompt)
    one = jax.jit(jax.vmap(lambda p: p.points()[0]))(prompt)
    np.testing.assert_array_equal(one, prompt.points()[0])
    assert len(jax.tree.leaves(prompt)) == 5
    single = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[0]), prompt)
    assert single.points()[0].shape == (6, 3)
    np.testing.assert_array_equal(single.prefixes().y, jnp.asarray(single.points()[1]))


SMALL = (5, 4)  # few shapes: each is compiled once for the whole module
LARGE = (49, 400)


def full_task(noise_var=0.5):
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    return LinearPopulation(A @ A.T, np.array([1.0, -2.0, 0.5]), B @ B.T, noise_var)


FAMILIES = {
    "isotropic": lambda: LinearPopulation.isotropic(3, 0.5),
    "full": full_task,
    "sparse": lambda: SparseLinearRegression(3, sparsity=2),
    "sign": lambda: LinearClassification(3),
    "relu": lambda: ReluNetwork(3, hidden=6),
    "tree": lambda: DecisionTree(3, depth=3),
    "task pool": lambda: TaskPool(full_task(), 7, jax.random.key(5)),
    "prompt pool": lambda: PromptPool(full_task(), 9, jax.random.key(6)),
}
QUICK = ("full", "task pool")


@functools.cache
def drawn(make, shape, seed=0):
    """Prompts of a task, by one program; arguments of ``jit`` are its numbers."""
    draw = jax.jit(lambda task, key: task.sample(key, *shape))
    return draw(make(), jax.random.key(seed))


def plain():
    return LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.0)


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in FAMILIES
    ],
)
def test_every_family_keeps_the_contract_of_the_trainer(name, key):
    task = FAMILIES[name]()
    assert isinstance(task.dim, int)
    assert task.dim == 3

    @jax.jit
    def draw(task, keys, active_dims):
        def step(carry, k):
            return carry, carry.sample(k, *SMALL, active_dims=active_dims)

        return jax.lax.scan(step, task, keys)[1]

    keys = jax.random.split(key, 2)
    for active in (2, 3):
        found = draw(task, keys[np.array([0, 1, 0])], active)
        first, other, again = (
            jax.tree.map(lambda a, i=i: jnp.asarray(np.asarray(a)[i]), found)
            for i in range(3)
        )
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(a, b)
        X, y = (np.asarray(a) for a in first.points())
        assert X.shape == (4, 6, 3)
        assert y.shape == (4, 6)
        assert X.dtype == y.dtype == task.dtype == np.float64
        assert np.all(X[..., active:] == 0)
        assert np.all(X[..., :active] != 0)
        assert all(leaf.shape[0] == 4 for leaf in jax.tree.leaves(first.w))
        assert np.any(X[:, :5] != other.X)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_draws_prompts_without_examples(name, key):
    task = FAMILIES[name]()
    prompt = jax.eval_shape(lambda k: task.sample(k, 0, 2), key)
    assert prompt.X.shape == (2, 0, 3)
    assert prompt.x_query.shape == (2, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearPopulation.isotropic(3, 0.5, dtype=jnp.float32),
        lambda: SparseLinearRegression(3, 2, dtype=jnp.float32),
        lambda: LinearClassification(3, jnp.float32),
        lambda: ReluNetwork(3, 6, jnp.float32),
        lambda: DecisionTree(3, 3, jnp.float32),
    ],
)
def test_samples_have_the_dtype_that_was_asked_for(make, key):
    task = make()
    X, y = jax.eval_shape(lambda k: task.sample(k, 2, 2).points(), key)
    assert X.dtype == y.dtype == task.dtype == jnp.float32


@pytest.mark.slow
def test_active_dims_zero_the_inputs_before_the_labels_and_leave_the_weights(key):
    draw = jax.jit(lambda active: plain().sample(key, *SMALL, active_dims=active))
    some, whole, every = (
        jax.tree.map(np.asarray, prompt)
        for prompt in (draw(2), draw(3), drawn(plain, SMALL))
    )
    np.testing.assert_array_equal(whole.X, every.X)
    np.testing.assert_allclose(whole.y, every.y, rtol=1e-14)
    np.testing.assert_array_equal(some.w, every.w)
    np.testing.assert_array_equal(some.X[..., :2], every.X[..., :2])
    expected = np.einsum("bnd,bd->bn", every.X[..., :2], every.w[..., :2])
    np.testing.assert_allclose(some.y, expected, rtol=1e-12)


def test_labels_are_the_inner_product_and_noise_of_the_stated_variance():
    clean = drawn(plain, SMALL)
    np.testing.assert_allclose(
        clean.points()[1],
        np.einsum("bnd,bd->bn", clean.points()[0], clean.w),
        rtol=1e-12,
    )
    prompt = drawn(functools.partial(full_task, 0.7), LARGE)
    X, y = prompt.points()
    noise = np.asarray(y) - np.einsum("bnd,bd->bn", X, prompt.w)
    z = (noise**2 - 0.7).mean() / ((noise**2).std() / np.sqrt(noise.size))
    assert abs(z) < 5
    # the query is as noisy as the examples
    last = noise[:, -1] ** 2
    assert abs((last - 0.7).mean() / (last.std() / np.sqrt(last.size))) < 5


def test_inputs_and_weights_have_the_stated_moments():
    task = full_task()
    prompt = drawn(full_task, LARGE)
    for rows, mean, cov in (
        (np.asarray(prompt.X)[:, 0], np.zeros(3), task.input_cov),
        (np.asarray(prompt.w), task.task_mean, task.task_cov),
    ):
        centred = rows - np.asarray(mean)
        products = centred[:, :, None] * centred[:, None, :]
        se = products.std(0) / np.sqrt(len(rows))
        assert np.all(np.abs(products.mean(0) - cov) <= 5 * se)
        assert np.all(np.abs(centred.mean(0)) <= 5 * rows.std(0) / np.sqrt(len(rows)))


def test_a_singular_covariance_stays_in_its_range():
    task = full_task()
    null = np.linalg.svd(np.asarray(task.task_cov))[0][:, 2]
    w = np.asarray(drawn(full_task, LARGE).w)
    offsets = (w - np.asarray(task.task_mean)) @ null
    np.testing.assert_allclose(offsets, 0, atol=1e-7)  # root of the rounding of eigh

    def frozen():
        return LinearPopulation(np.eye(3), np.ones(3), np.zeros((3, 3)), 0.0)

    np.testing.assert_array_equal(drawn(frozen, SMALL).w, np.ones((4, 3)))


def test_diagonal_covariances_keep_only_their_diagonal_with_the_same_law():
    diagonal = np.diag([4.0, 0.0, 0.25])
    task = LinearPopulation(diagonal, np.zeros(3), np.eye(3), 0.0)
    np.testing.assert_array_equal(task.input_root, [2.0, 0.0, 0.5])
    traced = jax.jit(
        lambda H: LinearPopulation(H, jnp.zeros(3), jnp.eye(3), 0.0).input_root
    )(jnp.asarray(diagonal))
    np.testing.assert_allclose(traced, np.diag([2.0, 0.0, 0.5]), atol=1e-12)
    root = np.asarray(full_task().input_root)
    np.testing.assert_allclose(root @ root, full_task().input_cov, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), active=st.sampled_from([1, 2, 3, 7, None]))
def test_sparse_weights_have_their_support_among_the_active_coordinates(seed, active):
    w = np.asarray(_sparse(jax.random.key(seed), 7 if active is None else active))
    limit = 7 if active is None else active
    assert np.all(np.count_nonzero(w, axis=1) == min(3, limit))
    assert np.all(w[:, limit:] == 0)
    if active is None:
        every = np.asarray(_sparse(jax.random.key(seed), None))
        np.testing.assert_array_equal(w != 0, every != 0)
        # two programs may differ in the last bit
        np.testing.assert_allclose(w, every, rtol=1e-15)


@jax.jit
def _sparse(key, active):
    task = SparseLinearRegression(7, sparsity=3)
    return task.sample_parameters(key, 40, active_dims=active)


def test_sparse_supports_are_uniform(key):
    task = SparseLinearRegression(5, 2)
    w = np.asarray(jax.jit(lambda k: task.sample_parameters(k, 10_000))(key))
    supports, counts = np.unique(w != 0, axis=0, return_counts=True)
    assert len(supports) == 10
    chi2 = ((counts - 1000.0) ** 2 / 1000.0).sum()
    assert chi2 < 40  # 9 degrees of freedom: probability below 1e-5
    values = w[w != 0]
    assert abs((values**2 - 1).mean()) < 5 * np.sqrt(2 / len(values))


@pytest.mark.slow
def test_labels_of_a_relu_network_have_the_scale_of_linear_ones(key):
    task = ReluNetwork(3, hidden=6)
    y = jax.jit(lambda k: task.sample(k, *LARGE).y)(key)
    squares = (np.asarray(y) ** 2).mean(axis=1)
    z = (squares.mean() - 3) / (squares.std() / np.sqrt(len(squares)))
    assert abs(z) < 5


def test_a_relu_network_is_its_sum_over_units():
    rng, task = np.random.default_rng(0), ReluNetwork(3, hidden=6)
    w = {"W1": rng.normal(size=(1, 3, 6)), "W2": rng.normal(size=(1, 6))}
    X = rng.normal(size=(1, 2, 3))
    found = jax.jit(task.evaluate)(jax.tree.map(jnp.asarray, w), jnp.asarray(X))
    expected = [oracles.relu_network(w["W1"][0], w["W2"][0], x) for x in X[0]]
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


@pytest.mark.slow
def test_functions_agree_with_their_definitions(key):
    sign = drawn(lambda: LinearClassification(3), SMALL)
    assert sign.y.dtype == jnp.float64
    np.testing.assert_array_equal(
        sign.y, np.sign(np.einsum("bnd,bd->bn", sign.X, sign.w))
    )
    assert LinearClassification(3).targets == "sign"

    prompt = jax.tree.map(np.asarray, drawn(lambda: DecisionTree(3, depth=3), SMALL))
    X, y = prompt.points()
    for b in range(4):
        tree = prompt.w["coordinates"][b], prompt.w["values"][b]
        for x, label in zip(np.asarray(X[b]), np.asarray(y[b]), strict=True):
            assert label == oracles.decision_tree(*tree, x)


def test_trees_use_every_coordinate_and_leaf(key):
    prompt = jax.jit(lambda k: DecisionTree(3, depth=2).sample(k, *LARGE))(key)
    assert np.all(np.unique(prompt.w["coordinates"]) == [0, 1, 2])
    assert prompt.w["coordinates"].shape == (400, 3)
    assert max(len(np.unique(row)) for row in np.asarray(prompt.y)) == 4


def test_impossible_tasks_say_what_was_expected(key):
    eye, zero = np.eye(2), np.zeros(2)
    negative, crooked = np.diag([1.0, -0.1]), np.array([[1.0, 1.0], [0.0, 1.0]])
    for parts, message in (
        ((eye, zero, eye, -0.1), "noise_var: expected a value >= 0, got -0.1"),
        ((eye, zero, eye, np.nan), "noise_var: expected finite entries, got nan"),
        ((negative,), "input_cov: expected a positive semi-definite matrix, got"),
        ((eye, zero, negative), "task_cov: expected a positive semi-definite matrix"),
        ((eye, zero, crooked), "task_cov: expected a symmetric matrix, got"),
        ((eye, zero, np.eye(3)), "task_cov: expected shape (2, 2), got (3, 3)"),
        ((eye, zero + np.inf), "task_mean: expected finite entries, got inf"),
        ((eye, np.zeros(3)), "task_mean: expected shape (2,), got (3,)"),
    ):
        with raises(message):
            LinearPopulation(*parts)
    with raises("dim: expected a positive integer, got 0"):
        LinearPopulation.isotropic(0)
    with raises("sparsity: expected at most dim = 2, got 3"):
        SparseLinearRegression(2)
    with raises("depth: expected a positive integer, got 0"):
        DecisionTree(2, depth=0)
    with raises("hidden: expected a positive integer, got 0"):
        ReluNetwork(2, hidden=0)
    with raises("dim: expected a positive integer, got 0"):
        LinearClassification(0)
    task = LinearPopulation.isotropic(3)
    with raises("num_examples: expected an integer >= 0, got -1"):
        task.sample(key, -1, 2)
    with raises("num_prompts: expected a positive integer, got 0"):
        task.sample(key, 1, 0)


def test_functions_of_ones_own_are_drawn_for_each_prompt():
    def lines(key, X):
        return X @ jax.random.normal(key, X.shape[1:])

    source, key = Functions(3, lines), jax.random.key(0)
    prompt = source.sample(key, 4, 6)
    X, y = prompt.points()
    weights = [np.linalg.lstsq(a[:3], b[:3])[0] for a, b in zip(X, y, strict=True)]
    for a, b, w in zip(X, y, weights, strict=True):
        np.testing.assert_allclose(a @ w, b, rtol=1e-5, atol=1e-5)
    assert len({round(float(w[0]), 5) for w in weights}) == 6
    with raises("draw: expected a function (key, X), got 3"):
        Functions(3, 3)
    with raises("what draw returns: expected shape (6, 5), got (6,)"):
        Functions(3, lambda key, X: 0.0).sample(key, 4, 6)
