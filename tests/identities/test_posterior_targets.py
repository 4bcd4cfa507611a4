"""Training on posterior means: the mean gradient of labels, with less noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.models import GPT2
from icltheory.regression import predictors
from icltheory.regression.tasks import LinearRegression, NoisyLinearRegression
from icltheory.training import bayes_targets, in_context_loss, objectives

PROMPTS = 4096
PRIORS = {
    "Garg": LinearRegression.isotropic(2),
    "noisy": LinearRegression(
        jnp.diag(jnp.array([1.0, 0.3])),
        jnp.array([0.5, -1.0]),
        jnp.array([[1.0, 0.4], [0.4, 0.5]]),
        0.5,
    ),
    "singular": LinearRegression(
        jnp.eye(2), jnp.array([0.0, 2.0]), jnp.diag(jnp.array([1.0, 0.0])), 0.0
    ),
}


@functools.cache
def gradients(name):
    """Gradient of every prompt's loss on labels and on targets, (prompts, params)."""
    task = PRIORS[name]
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
    X, y = task.sample(jax.random.key(0), 4, PROMPTS).points()
    params = model.init(jax.random.key(1), X[:1], y[:1])["params"]

    def gradient(X, y, goal):
        def loss(params):
            answers = model.apply({"params": params}, X[None], y[None])
            return in_context_loss(answers, goal[None], goal.size)

        parts = jax.tree.leaves(jax.grad(loss)(params))
        return jnp.concatenate([part.reshape(-1) for part in parts])

    each = jax.jit(jax.vmap(gradient))
    return np.asarray(each(X, y, y)), np.asarray(each(X, y, bayes_targets(task, X, y)))


@pytest.mark.parametrize("name", PRIORS)
def test_the_mean_gradient_is_that_of_labels(name, measured):
    labels, means = gradients(name)
    difference = labels - means
    error = difference.std(axis=0, ddof=1) / np.sqrt(PROMPTS)
    moves = error > 1e-12
    z = difference.mean(axis=0)[moves] / error[moves]
    measured("largest z", np.abs(z).max())
    # Of a thousand normal scores the largest is near 3.2.
    assert np.abs(z).max() < 5
    assert z.std() < 1.5


@pytest.mark.parametrize("name", PRIORS)
def test_its_noise_is_less(name, measured):
    labels, means = gradients(name)
    ratio = labels.var(axis=0).sum() / means.var(axis=0).sum()
    measured("variance of labels over that of targets", ratio)
    assert ratio > 1.1


@pytest.mark.parametrize("name", PRIORS)
def test_at_the_posterior_mean_only_labels_leave_noise(name):
    task = PRIORS[name]
    X, y = task.sample(jax.random.key(2), 4, 64).points()
    prior = {"task_mean": task.task_mean, "task_cov": task.task_cov}
    answers = predictors.bayes_prefixes(X, y, **prior, noise_var=task.noise_var)
    slope = jax.grad(lambda a, goal: in_context_loss(a, goal, y.shape[1]))
    np.testing.assert_allclose(slope(answers, bayes_targets(task, X, y)), 0, atol=1e-12)
    assert float(jnp.abs(slope(answers, y)).max()) > 1e-3


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(("dtype", "rms"), [("float64", 1e-8), ("float32", 1e-3)])
def test_the_form_of_accelerators_is_that_of_a_cpu(name, dtype, rms, measured):
    task = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), PRIORS[name])
    X, y = task.sample(jax.random.key(4), 6, 2048).points()
    off = np.asarray(objectives._factored(task)(X, y) - bayes_targets(task, X, y))
    measured(f"rms, {dtype}", np.sqrt(np.mean(off**2)))
    assert X.dtype == dtype
    assert np.sqrt(np.mean(off**2)) < rms


def test_targets_are_the_posterior_mean_of_every_prefix_alone():
    task = PRIORS["noisy"]
    X, y = task.sample(jax.random.key(3), 4, 3).points()
    H_inv = np.linalg.inv(np.asarray(task.task_cov))
    expected = np.zeros(y.shape)
    for b, (inputs, labels) in enumerate(
        zip(np.asarray(X), np.asarray(y), strict=True)
    ):
        for k in range(len(labels)):
            seen, answers = inputs[:k], labels[:k]
            precision = seen.T @ seen / 0.5 + H_inv
            shift = seen.T @ answers / 0.5 + H_inv @ np.asarray(task.task_mean)
            expected[b, k] = inputs[k] @ np.linalg.solve(precision, shift)
    np.testing.assert_allclose(bayes_targets(task, X, y), expected, rtol=1e-9)


def test_a_task_without_a_closed_posterior_is_refused():
    task = NoisyLinearRegression(2, 0.5)
    with pytest.raises(TypeError, match="task: expected a LinearRegression"):
        bayes_targets(task, jnp.ones((1, 2, 2)), jnp.ones((1, 2)))
