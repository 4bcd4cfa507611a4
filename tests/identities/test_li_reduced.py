"""Reduced dynamics of Li et al.'s model: gradients, prediction of training, scaling."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.patterns import (
    PatternTask,
    PatternTransformer,
    loss_gradients,
    pattern_logits,
    reduced_training,
    scores,
    train,
)
from icltheory.patterns import reduced as module
from tests import optimised
from tests.patterns.compiled import pattern_task, sample

pytestmark = pytest.mark.statement("Li ICL: Theorem 1, T")

MODEL = PatternTransformer(64)
KEY = jax.random.key(0)


FEW = PatternTransformer(16)


def start_of(task, seed=1, model=FEW):
    return jax.jit(model.init)(task, key=jax.random.key(seed))


# --- expectations


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_probabilities_are_those_of_all_sequences_of_contexts(alpha):
    kinds = module._kinds(3)
    found = np.asarray(module._probabilities(kinds, jnp.asarray(alpha)))
    odds = {"same": alpha / 2, "opposite": alpha / 2}
    odds |= {"up": (1 - alpha) / 2, "down": (1 - alpha) / 2}
    expected = dict.fromkeys(zip(*(x.tolist() for x in kinds), strict=True), 0.0)
    for words in itertools.product(odds, repeat=3):
        same, opposite, up, down = (words.count(word) for word in odds)
        expected[same, opposite, up + down, up - down] += math.prod(
            odds[word] for word in words
        )
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12)


@pytest.mark.parametrize("number", [3, 4])
def test_attended_features_spread_as_those_of_all_sequences_of_contexts(number):
    """By loops over prompts of length 3."""
    beta, kappa, logit = 2.0, 0.9, 0.7
    fixed = module._Fixed(None, None, beta, kappa, None)
    kinds = module._kinds(3)
    found = np.asarray(module._attention(number, kinds, fixed, jnp.asarray(logit))[2])
    squares = {}
    # Pattern 0 is the query's, and 1 the other one of its pair.
    for patterns in itertools.product(range(number), repeat=3):
        weights = np.exp(logit * (np.array(patterns) == 0))
        weights = weights / weights.sum()
        at = np.bincount(patterns, weights, minlength=number)
        noise = kappa**2 / 3 * np.sum(weights**2)  # of a uniform number up to kappa
        kind = patterns.count(0), patterns.count(1)
        squares.setdefault(kind, []).append(np.sum((at - 1 / number) ** 2) + noise)
    pairs = zip(kinds.same, kinds.opposite, strict=True)
    expected = [beta * np.sqrt(np.mean(squares[pair])) for pair in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_start_is_that_of_the_weights():
    task = pattern_task(3, 2, 2.0)
    W_V = np.random.default_rng(0).normal(size=(task.width, task.width))
    params = start_of(task, model=PatternTransformer(4)) | {"W_V": W_V}
    state, fixed = module._start(params, task)
    mean = np.asarray(task.relevant).sum(axis=0)[:, None]
    basis = np.linalg.qr(np.concatenate([mean, np.eye(task.dim)], axis=1))[0]
    rest = np.asarray(params["W_O"]) @ W_V[:, : task.dim] @ basis[:, 1:]
    expected = np.sqrt(np.mean(rest**2, axis=1))
    np.testing.assert_allclose(fixed.deviation, expected, rtol=1e-12)
    np.testing.assert_allclose(state.attention, 0.2, rtol=1e-12)
    expected = W_V[:, : task.dim] @ mean[:, 0] / np.linalg.norm(mean)
    np.testing.assert_allclose(state.feature_value, expected, rtol=1e-12)


def aligned(task, model):
    """Weights in the middle of training, neurons in the plane of mean and label."""
    mean = np.asarray(task.relevant).sum(0)
    e_f = np.concatenate([mean / np.linalg.norm(mean), np.zeros(task.label_dim)])
    e_q = np.concatenate([np.zeros(task.dim), np.asarray(task.label_embedding)])
    rng, m = np.random.default_rng(0), model.num_neurons
    a = np.where(np.arange(m) < m // 2, 1.0, -1.0) / m
    label = np.sign(a) * rng.uniform(0.5, 1, m)
    W_O = np.outer(rng.uniform(-0.2, 0.6, m), e_f) + np.outer(label, e_q)
    W_V = 0.2 * np.eye(task.width)
    W_V += 0.9 * np.outer(e_q, e_q) + 0.3 * np.outer(e_f, e_f)
    W_Q = np.diag((np.arange(task.width) < task.dim) * 0.5)
    params = {"W_Q": W_Q, "W_K": W_Q, "W_V": W_V, "W_O": W_O, "a": a}
    return {name: jnp.asarray(W) for name, W in params.items()}, e_f, e_q


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_gradients_are_those_of_the_population(alpha, measured):
    """Aligned neurons and no irrelevant patterns: nothing is approximated."""
    made = {"noise": 0.0, "relevant_fraction": alpha}
    task, model = pattern_task(4, 3, 2.0, **made), PatternTransformer(8)
    params, e_f, e_q = aligned(task, model)
    state, fixed = module._start(params, task)
    np.testing.assert_allclose(fixed.deviation, 0, atol=1e-12)
    kinds = module._kinds(6)
    weights = module._probabilities(kinds, jnp.asarray(alpha))
    recorded, found = module._slope(4, kinds, weights, fixed, state)
    differences = jnp.asarray(task.relevant[1:] - task.relevant[:1])

    def sampled(key):
        prompt = task.sample(key, 6, 4096)
        slope = loss_gradients(params, prompt)
        # An eigenvalue of W_Q on differences of patterns moves as its mean there does.
        moved = differences @ slope["W_Q"][: task.dim, : task.dim].T
        eigen = jnp.sum(moved * differences, axis=1) / jnp.sum(differences**2, axis=1)
        seen = scores(model, params, prompt)
        return {
            "attention": jnp.mean(eigen),
            "neurons": slope["W_O"],
            "feature_value": slope["W_V"] @ e_f,
            "label_value": slope["W_V"] @ e_q,
            "mass": seen.masses.mean(),
            "loss": seen.hinge,
        }

    draws = optimised.jit(lambda keys: jax.lax.map(sampled, keys))(
        jax.random.split(KEY, 100)
    )
    expected = found._asdict() | {"mass": recorded[1], "loss": recorded[2]}
    for name, values in draws.items():
        values = np.asarray(values)
        error = values.std(0, ddof=1) / math.sqrt(len(values))
        z = (values.mean(0) - np.asarray(expected[name])) / np.maximum(error, 1e-12)
        measured(f"largest z of {name}", np.abs(z).max())
        assert np.abs(z).max() < 5, name
    logits = np.asarray(pattern_logits(params, task))
    np.testing.assert_allclose(recorded[0], logits[0, 0] - logits[0, 1])


# --- training


@functools.partial(optimised.jit, static_argnums=3)
def both(seed, beta, alpha, steps):
    """Losses, attention along training by batches of 512, and the prediction."""
    keys = jax.random.split(jax.random.key(seed), 3)
    made = {"relevant_fraction": alpha, "dtype": jnp.float32}
    task = PatternTask(6, 24, beta, key=keys[0], **made)
    start = MODEL.init(task, key=keys[1])
    setting = {"step_size": 4 - beta}
    options = {"key": keys[2], "batch_size": 512, "record_every": 20}
    path = train(MODEL, task, start, steps, **setting, **options)

    def mass(params):
        prompt = task.sample(keys[0], 20, 4096)
        return scores(MODEL, params, prompt).masses.mean()

    masses = jax.lax.map(mass, path.params)
    return (
        path.losses,
        masses,
        reduced_training(task=task, params=start, num_steps=steps, **setting),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "beta", "alpha", "steps"),
    [(0, 2.0, 1.0, 240), (0, 2.0, 0.4, 360), (1, 3.0, 0.6, 240)],
)
def test_attention_loss_and_stopping_time_are_predicted(
    seed, beta, alpha, steps, measured
):
    losses, masses, reduced = both(seed, beta, alpha, steps)
    losses = np.convolve(losses, np.ones(5) / 5, "same")
    found, expected = np.argmax(losses < 0.1), int(np.argmax(reduced.losses < 0.1))
    measured("predicted steps over steps", expected / found)
    assert abs(expected / found - 1) < 0.04
    # Before and after the jump, whose time differs by a few steps.
    calm = np.abs(np.arange(0, steps, 20) - found) > 60
    gap = np.abs(np.asarray(masses)[:-1] - np.asarray(reduced.masses)[::20])
    assert gap[calm].max() < 0.05
    assert abs(np.asarray(masses)[-1] - float(reduced.masses[-1])) < 0.01


def reduced_losses(task, start, steps, **options):
    """Losses of the reduced dynamics at step size 2."""

    @optimised.jit
    def losses(start):
        return reduced_training(start, task, steps, step_size=2.0, **options).losses

    return np.asarray(losses(start))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_random_weights_of_the_neurons_shorten_training(seed, measured):
    """Without their components across label and mean pattern it takes longer."""
    keys = jax.random.split(jax.random.key(seed), 2)
    task = pattern_task(6, 24, 2.0, dtype=np.float32, key=keys[0])
    start = jax.jit(MODEL.init)(task, key=keys[1])
    mean = np.asarray(task.relevant).sum(0)
    plane = np.zeros((2, task.width), np.float32)
    plane[0, : task.dim] = mean / np.linalg.norm(mean)
    plane[1, task.dim :] = task.label_embedding
    in_plane = start | {"W_O": start["W_O"] @ plane.T @ plane}
    whole, fewer = (
        int(np.argmax(reduced_losses(task, p, 300) < 0.1)) for p in (start, in_plane)
    )
    measured("steps in the plane over all steps", fewer / whole)
    assert 1.05 < fewer / whole < 1.3


@pytest.mark.slow
def test_the_number_of_steps_is_no_power_of_alpha(measured):
    """T = A / alpha + B; the slope in logarithms goes from above -.8 to -1."""
    task = pattern_task(6, 24, 2.0, dtype=np.float32)
    start = start_of(task)
    alphas = np.array([1.0, 0.5, 0.25, 0.125])
    times = []
    for alpha in alphas:
        asked = task.with_(relevant_fraction=alpha)
        path = reduced_training(start, asked, int(100 + 150 / alpha), step_size=2.0)
        # When one context of the query's pattern has the attention of all 20 others.
        times.append(int(np.argmax(np.asarray(path.logits) > math.log(20))))
    times = np.array(times)
    slopes = np.diff(np.log(times)) / np.diff(np.log(alphas))
    measured("first slope", slopes[0])
    measured("last slope", slopes[-1])
    assert np.all(np.diff(slopes) < 0)
    assert slopes[0] > -0.8
    assert abs(slopes[-1] + 1) < 0.1
    A, B = np.polyfit(1 / alphas, times, 1)
    measured("largest error of A / alpha + B", (times / (A / alphas + B) - 1).max())
    assert np.abs(times / (A / alphas + B) - 1).max() < 0.06
    np.testing.assert_allclose(times[-1] * alphas[-1], A, rtol=0.1)


@pytest.mark.slow
def test_many_substeps_are_gradient_flow():
    task = pattern_task(6, 24, 2.0, dtype=np.float32)
    start = start_of(task)
    ends = [
        np.argmax(reduced_losses(task, start, 250, substeps=n) < 0.1) for n in (1, 2, 4)
    ]
    # The error of Euler's method is proportional to the step.
    assert abs(ends[1] - ends[2]) <= abs(ends[0] - ends[1]) <= 3


# --- what it refuses


def test_long_prompts_and_another_start_of_attention_are_refused():
    task, model = pattern_task(3, 2, 2.0), PatternTransformer(4)
    start = start_of(task, model=model)
    with pytest.raises(ValueError, match="num_examples: expected at most 64, got 65"):
        reduced_training(start, task, 3, step_size=1.0, num_examples=65)
    for name in ("W_Q", "W_K"):
        turned = start | {name: start[name].at[0, 1].set(0.1)}
        with pytest.raises(
            ValueError, match="params: expected W_Q = W_K as a multiple"
        ):
            reduced_training(turned, task, 3, step_size=1.0)


def test_two_patterns_have_no_others():
    task, model = pattern_task(2, 2, 2.0), PatternTransformer(4)
    options = {"step_size": 1.0, "num_examples": 4}
    path = reduced_training(start_of(task, model=model), task, 2, **options)
    assert sample(task, KEY, 4, 2).P.shape == (2, 4, 8)
    assert np.all(np.isfinite(path.losses))
