"""Training on posterior means: the mean gradient of labels, with less noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.models import GPT2
from icltheory.regression import Bayes, LinearPopulation, SparseLinearRegression
from icltheory.training import bayes_targets, in_context_loss, objectives
from tests.regression.calls import answers

pytestmark = pytest.mark.statement("Zhang: Lemma 6.1, as targets")

PROMPTS = 4096
PRIORS = {
    "Garg": (np.eye(2), np.zeros(2), np.eye(2), 0.0),
    "noisy": (
        np.diag([1.0, 0.3]),
        np.array([0.5, -1.0]),
        np.array([[1.0, 0.4], [0.4, 0.5]]),
        0.5,
    ),
    "singular": (np.eye(2), np.array([0.0, 2.0]), np.diag([1.0, 0.0]), 0.0),
}


def prior(name, dtype=np.float64):
    return LinearPopulation(*(np.asarray(part, dtype) for part in PRIORS[name]))


@functools.partial(jax.jit, static_argnums=(2, 3))
def points(task, key, num_examples, prompts):
    return task.sample(key, num_examples, prompts).points()


targets = jax.jit(bayes_targets)


@functools.cache
def gradient_of_prompts():
    """Parameters' gradient of the loss of each prompt, of one small model."""
    model = GPT2(
        dim=2,
        num_positions=10,
        width=8,
        num_layers=1,
        num_heads=2,
        init_std=0.3,
        dtype=jnp.float64,
        param_dtype=jnp.float64,
    )
    init = jax.jit(lambda key, X, y: model.init(key, X, y)["params"])
    params = init(jax.random.key(1), np.zeros((1, 5, 2)), np.zeros((1, 5)))

    def gradient(X, y, goal):
        def loss(params):
            answers = model.apply({"params": params}, X[None], y[None])
            return in_context_loss(answers, goal[None], goal.size)

        parts = jax.tree.leaves(jax.grad(loss)(params))
        return jnp.concatenate([part.reshape(-1) for part in parts])

    return jax.jit(jax.vmap(gradient))


@functools.cache
def gradients(name):
    """Gradient of every prompt's loss on labels and on targets, (prompts, params)."""
    task, each = prior(name), gradient_of_prompts()
    X, y = points(task, jax.random.key(0), 4, PROMPTS)
    return np.asarray(each(X, y, y)), np.asarray(each(X, y, targets(task, X, y)))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
def test_the_mean_gradient_is_that_of_labels(name, measured):
    labels, means = gradients(name)
    difference = labels - means
    error = difference.std(axis=0, ddof=1) / np.sqrt(PROMPTS)
    moves = error > 1e-12
    z = difference.mean(axis=0)[moves] / error[moves]
    measured("largest z", z, below=5)
    # Of a thousand normal scores the largest is near 3.2.
    assert z.std() < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
def test_its_noise_is_less(name, measured):
    labels, means = gradients(name)
    ratio = labels.var(axis=0).sum() / means.var(axis=0).sum()
    measured("variance of labels over that of targets", ratio)
    assert ratio > 1.1


@pytest.mark.parametrize("name", PRIORS)
def test_at_the_posterior_mean_only_labels_leave_noise(name):
    task = prior(name)
    X, y = points(task, jax.random.key(0), 4, PROMPTS)
    found = jax.jit(lambda task: answers(Bayes(task), X, y))(task)
    slope = jax.jit(jax.grad(lambda a, goal: PROMPTS * in_context_loss(a, goal, 5)))
    np.testing.assert_allclose(slope(found, targets(task, X, y)), 0, atol=1e-12)
    assert np.abs(slope(found, y)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(("dtype", "rms"), [("float64", 1e-8), ("float32", 1e-3)])
def test_the_form_of_accelerators_is_that_of_a_cpu(name, dtype, rms, measured):
    task = prior(name, dtype)
    X, y = points(task, jax.random.key(4), 6, 2048)
    factored = jax.jit(lambda task: objectives._factored(task)(X, y))(task)
    off = np.asarray(factored) - np.asarray(targets(task, X, y))
    measured(f"rms, {dtype}", np.sqrt(np.mean(off**2)))
    assert X.dtype == dtype
    assert np.sqrt(np.mean(off**2)) < rms


def test_targets_are_the_posterior_mean_of_every_prefix_alone():
    task = prior("noisy")
    X, y = map(np.asarray, points(task, jax.random.key(3), 4, 3))
    H_inv = np.linalg.inv(np.asarray(task.task_cov))
    expected = np.zeros(y.shape)
    for b, (inputs, labels) in enumerate(zip(X, y, strict=True)):
        for k in range(len(labels)):
            seen, answers = inputs[:k], labels[:k]
            precision = seen.T @ seen / 0.5 + H_inv
            shift = seen.T @ answers / 0.5 + H_inv @ np.asarray(task.task_mean)
            expected[b, k] = inputs[k] @ np.linalg.solve(precision, shift)
    np.testing.assert_allclose(targets(task, X, y), expected, rtol=1e-9)


def test_a_task_without_a_closed_posterior_is_refused():
    task = SparseLinearRegression(2, 1)
    with pytest.raises(TypeError, match="task: expected a LinearPopulation"):
        bayes_targets(task, jnp.ones((1, 2, 2)), jnp.ones((1, 2)))
