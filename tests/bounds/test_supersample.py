"""How supersample losses are made, for every kind of learner, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, constructions
from icltheory.attention import SoftmaxAttentionStack
from icltheory.bounds._pairs import information_limit, mean_limit
from icltheory.bounds.supersample import _WEIGHTS
from icltheory.models import GPT2, LinearStack
from icltheory.regression import LinearPopulation, NearestNeighbors, Predictor, Steps

TASK = LinearPopulation.isotropic(3, 0.25)
LOSS = bounds.ClippedSquaredError(4.0)
KEY = jax.random.key(0)
N, B = 4, 300  # more than a chunk
ONE_STEP = Steps([0.7])


@functools.cache
def reference():
    """The chunks' points, coins and losses, from the keys, by loops in NumPy."""
    losses, coins = [], []
    for chunk in range(2):
        points, coin = jax.random.split(jax.random.fold_in(KEY, chunk))
        X, y = map(np.asarray, TASK.sample(points, 2 * N - 1, 256).points())
        chosen = np.asarray(jax.random.bernoulli(coin, shape=(256, N))).astype(int)
        for b in range(256):
            rows = [2 * i + chosen[b, i] for i in range(N)]
            w = 0.7 * sum(y[b, j] * X[b, j] for j in rows) / N
            loss = np.minimum((X[b] @ w - y[b]) ** 2, 4) / 4
            losses.append(loss.reshape(N, 2))
            coins.append(chosen[b])
    return np.array(losses)[:B], np.array(coins)[:B]


def test_losses_are_those_of_a_loop():
    losses, chosen = bounds.supersample_losses(ONE_STEP, TASK, N, B, LOSS, key=KEY)
    np.testing.assert_array_equal(chosen, reference()[1])
    np.testing.assert_allclose(losses, reference()[0], atol=1e-12)


def test_attention_that_makes_the_step_has_its_losses():
    stack = constructions.gradient_descent(jnp.array([0.7]), 3)
    losses, _ = bounds.supersample_losses(stack, TASK, N, B, LOSS, key=KEY)
    np.testing.assert_allclose(losses, reference()[0], atol=1e-12)


def test_a_memory_has_no_loss_on_its_own_demonstrations():
    nearest = NearestNeighbors(1)
    losses, chosen = bounds.supersample_losses(nearest, TASK, N, B, LOSS, key=KEY)
    own = np.take_along_axis(np.asarray(losses), np.asarray(chosen)[..., None], 2)
    assert np.max(own) < 1e-12  # a weighted mean of labels with the weights 1 and 0
    bound = bounds.supersample_bounds(losses, chosen, levels=16).weighted
    assert bound.error > 0.3
    assert bound.value >= bound.error


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["interleaved", "matrix"])
def test_gpt2_is_asked_all_queries_after_one_reading(layout):
    model = GPT2(3, 2 * N + 2, 8, 2, 2, token_layout=layout, param_dtype=jnp.float64)
    X, y = jnp.ones((1, N, 3)), jnp.ones((1, N))
    params = model.init(jax.random.key(1), X, y)["params"]

    def alone(X, y, x_query):
        return model.apply({"params": params}, X, y, x_query, method="predict")

    sizes = TASK, N, 20, LOSS
    fast, _ = bounds.supersample_losses((model, params), *sizes, key=KEY)
    slow, _ = bounds.supersample_losses(alone, *sizes, key=KEY)
    np.testing.assert_allclose(fast, slow, atol=1e-6)
    assert np.std(fast) > 0.1


@pytest.mark.slow
def test_other_models_and_stacks_are_learners():
    model = LinearStack(3, num_layers=1, residual=True, param_dtype=jnp.float64)
    stack = constructions.gradient_descent(jnp.array([0.7]), 3)
    params = {name: getattr(stack, name) for name in ("W_V", "W_K", "W_Q")}
    losses, _ = bounds.supersample_losses((model, params), TASK, N, B, LOSS, key=KEY)
    np.testing.assert_allclose(losses, reference()[0], atol=1e-12)
    softmax = SoftmaxAttentionStack(stack.W_V, stack.W_K, stack.W_Q, 1.0)
    losses, _ = bounds.supersample_losses(softmax, TASK, N, 20, LOSS, key=KEY)
    assert np.all(np.isfinite(losses))


def test_a_sampler_and_labels_of_signs():
    def sampler(key, num_points, batch_size):
        X = jax.random.normal(key, (batch_size, num_points, 2))
        return X, jnp.sign(X[..., 0])

    def first(X, y, x_query):
        return x_query[0]

    losses, chosen = bounds.supersample_losses(
        first, sampler, N, B, bounds.sign_error, key=KEY
    )
    assert np.all(losses == 0)
    assert set(np.unique(chosen)) == {0, 1}
    bound = bounds.supersample_bounds(losses, chosen).difference
    assert bound.error == bound.value == 0
    assert 0 < bound.upper < 1


def test_losses_of_few_values_are_used_as_they_are():
    losses = np.random.default_rng(0).choice([0.0, 0.3, 0.6, 1.0], (500, 2, 2))
    coins = np.zeros((500, 2))
    bound = bounds.supersample_bounds(losses, coins).difference
    assert abs(bound.error - np.mean(losses[..., 1] - losses[..., 0])) < 1e-12
    # 0.6 - 0.3 and 0.3 - 0 are one value of the difference.
    signs = np.rint(10 * (losses[:, 0, 1] - losses[:, 0, 0])).astype(int)
    p = {x: np.mean(signs == x) for x in set(signs.tolist())}
    found = sum(q * np.log(2 * q / (q + p.get(-x, 0))) for x, q in p.items())
    assert abs(bound.information[0] - found) < 1e-12
    spread = np.mean(losses[..., 1] - losses[..., 0], axis=1).std(ddof=1)
    assert bound.standard_error == pytest.approx(spread / 500**0.5, rel=1e-12)


@pytest.mark.parametrize("form", ["difference", "variance", "optimal", "weighted"])
def test_bounds_in_float32(form):
    losses = np.random.default_rng(0).random((400, 3, 2))
    coins = np.zeros((400, 3))
    wide = getattr(bounds.supersample_bounds(losses, coins, levels=16), form)
    with jax.enable_x64(False):
        low = bounds.supersample_bounds(losses.astype(np.float32), coins, levels=16)
    short = getattr(low, form)
    assert short.value.dtype == jnp.float32
    assert abs(short.value / wide.value - 1) < 1e-4
    assert abs(short.upper / wide.upper - 1) < 1e-4


def test_a_mean_that_rounding_moves_out_of_its_range_has_the_limit_of_its_end():
    found = mean_limit(jnp.array([-1e-9, 1 + 1e-9]), 10, jnp.asarray(3.0))
    # the divergence of 0 from m is -log(1 - m)
    np.testing.assert_allclose(found, [-np.expm1(-0.3), 1], rtol=1e-12)


def test_no_coin_has_more_information_than_log_2():
    assert information_limit(jnp.log(2.0), 10, jnp.asarray(3.0)) == np.log(2)


@pytest.mark.usefixtures("as_for_a_user")
def test_what_is_refused():
    losses, coins = np.zeros((3, 2, 2)), np.zeros((3, 2))
    many = np.linspace(0, 1, 60).reshape(15, 2, 2)
    bound = bounds.supersample_bounds
    for call, message in (
        (lambda: bound(losses + 2, coins), "losses: expected a value in"),
        (lambda: bound(losses, coins + 2), "chosen: expected 0 or 1"),
        (lambda: bound(losses, coins[:2]), "chosen: expected shape"),
        (lambda: bound(losses, coins, levels=1), "levels: expected at least 2"),
        (lambda: bound(losses, coins, confidence=1.0), "confidence: expected"),
        (lambda: bound(losses[:0], coins[:0]), "losses: expected at least one"),
        (lambda: bound(many, np.zeros((15, 2))), "losses: expected at most 32"),
        (lambda: sampled(predictor=3), "predictor: expected a function"),
        (lambda: sampled(predictor=Short()), "^num_examples: expected at most 1, got"),
        (lambda: sampled(predictor=(3, 4)), "predictor: expected a function"),
        (lambda: sampled(task=3), "task: expected a task"),
        (lambda: sampled(loss=lambda p, y: p - 9.0), "loss: expected a value in"),
        (lambda: sampled(loss=3), "loss: expected a function"),
        (lambda: bounds.ClippedSquaredError(0.0), "limit: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_limits_split_their_level_evenly_among_what_they_estimate():
    rng = np.random.default_rng(0)
    losses, coins = rng.choice([0.0, 0.4, 1.0], (200, 2, 2)), np.zeros((200, 2))
    first, difference = losses[..., 0], losses[..., 1] - losses[..., 0]
    every = bounds.supersample_bounds(losses, coins, confidence=0.9)
    forms = ("difference", "variance", "optimal", "weighted", "binary_kl")
    found = {form: getattr(every, form) for form in forms}
    informations = (
        information_limit(one.information.mean(), 200, jnp.log(parts / 0.1))
        for one, parts in zip(found.values(), (1, 2, 2, 2, 2), strict=True)
    )
    root, variance, optimal, weighted, binary = informations

    def mean(values, parts):
        return mean_limit(jnp.asarray(values.mean()), 200, jnp.log(parts / 0.1))

    def log_cosh(t):
        return np.log(np.cosh(t))

    def error(training):
        return 2 * (mean_limit(training, 1, binary) - training)

    tilts = np.geomspace(0.01, 100, 64)
    tilted = log_cosh(tilts[:, None] * difference.ravel()[None]).mean(axis=1)
    tilted = jnp.asarray(tilted / log_cosh(tilts))
    limits = mean_limit(tilted, 200, jnp.log(2 * 64 / 0.1))
    c, factor = _WEIGHTS
    high, low = mean(first, 4), 1 - mean(1 - first, 4)
    middle, h = (high + low) / 2, 1e-6
    slope = abs(error(middle + h) - error(middle - h)) / (2 * h)
    expected = (
        (2 * root) ** 0.5,
        (2 * variance * mean(difference**2, 2)) ** 0.5,
        np.min((optimal + log_cosh(tilts) * limits) / tilts),
        np.min(factor * mean(first, 2) + weighted / c),
        error(middle) + slope * (high - low) / 2,
    )
    for (form, one), upper in zip(found.items(), expected, strict=True):
        assert 0 < one.upper < 1, form
        assert abs(one.upper / upper - 1) < 1e-6, form


def test_classes_of_narrow_integers_do_not_overflow():
    rng = np.random.default_rng(0)
    labels, coins = rng.integers(0, 12, (200, 1, 2)), rng.integers(0, 2, (200, 1))
    wide = bounds.prediction_bound(labels, labels, coins, 12).value
    narrow = labels.astype(np.int8)
    assert bounds.prediction_bound(narrow, narrow, coins, 12).value == wide


class Short(Predictor):
    """A predictor that refuses prompts of more than one example."""

    def answer(self, X, y, x_query):
        raise ValueError(f"num_examples: expected at most 1, got {len(y)}")


def sampled(predictor=ONE_STEP, task=TASK, loss=LOSS):
    return bounds.supersample_losses(predictor, task, N, 5, loss, key=KEY)
