"""Pattern transformers as learners: tokens as the task makes them, and 0-1 losses."""

import jax
import numpy as np
import pytest

from icltheory import bounds, patterns
from icltheory.layered import forward
from icltheory.regression import squared_errors

MODEL = patterns.PatternTransformer(8)


@pytest.fixture(scope="module")
def task():
    return patterns.PatternTask(4, 4, 2.0)


def test_tokens_and_points_are_those_of_the_task(task):
    params = MODEL.init(task, key=jax.random.key(0))
    prompt = task.sample(jax.random.key(1), 6, 3)
    learner = patterns.PatternLearner(MODEL, params, task.label_embedding)
    for one in (learner, learner.predict):
        found = jax.vmap(one)(prompt.X, prompt.y, prompt.x_query)
        np.testing.assert_allclose(found, forward(MODEL, params, prompt), atol=1e-12)

    def points(key, num_points, num_prompts):
        prompt = task.sample(key, num_points, num_prompts)
        return prompt.X, prompt.y

    losses, chosen = bounds.supersample_losses(
        learner, points, 3, 40, bounds.sign_error, key=jax.random.key(2)
    )
    assert losses.shape == (40, 3, 2)
    assert set(np.unique(losses)) <= {0, 1}
    assert chosen.shape == (40, 3)


def test_errors_are_those_of_the_scores(key, task):
    params = MODEL.init(task, key=jax.random.key(0), neuron_scale=2.0)
    learner = patterns.PatternLearner(MODEL, params, task.label_embedding)
    found = patterns.error(learner, task, 6, key=key, num_prompts=50)
    seen = patterns.scores(MODEL, params, task.sample(key, 6, 50))
    np.testing.assert_allclose(found.hinge.mean, seen.hinge, rtol=1e-12)
    np.testing.assert_allclose(found.zero_one.mean, seen.error, rtol=1e-12)
    losses = np.maximum(1 - np.asarray(seen.margins), 0)
    np.testing.assert_allclose(
        found.hinge.standard_error, losses.std(ddof=1) / 50**0.5, rtol=1e-12
    )


def test_any_function_is_a_learner_and_regression_takes_the_task(key, task):
    def constant(X, y, x_query):
        return 1.0

    found = patterns.error(constant, task, 0, key=key, num_prompts=400)
    assert found.hinge.mean == pytest.approx(2 * found.zero_one.mean)
    squares = squared_errors(constant, task, 0, key=key, num_prompts=400)
    assert np.mean(squares) == pytest.approx(4 * float(found.zero_one.mean))
