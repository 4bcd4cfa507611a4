"""Pattern transformers as learners: tokens as the task makes them, and 0-1 losses."""

import jax
import numpy as np

from icltheory import bounds
from icltheory.layered import forward
from icltheory.patterns import (
    PatternLearner,
    PatternSampler,
    PatternTask,
    PatternTransformer,
)

TASK, MODEL = PatternTask(4, 4, 2.0), PatternTransformer(8)


def test_tokens_and_points_are_those_of_the_task():
    params = MODEL.init(jax.random.key(0), TASK)
    prompt = TASK.sample(jax.random.key(1), 3, 6, 0.8)
    learner = PatternLearner(MODEL, params, TASK.label_embedding)
    found = jax.vmap(learner)(prompt.X, prompt.y, prompt.x_query)
    np.testing.assert_allclose(found, forward(MODEL, params, prompt), atol=1e-12)
    X, y = PatternSampler(TASK, 0.8)(jax.random.key(1), 6, 3)
    np.testing.assert_array_equal(X, prompt.X)
    np.testing.assert_array_equal(y, prompt.y)
    losses, chosen = bounds.supersample_losses(
        jax.random.key(2), learner, PatternSampler(TASK), 3, 40, bounds.sign_error
    )
    assert losses.shape == (40, 3, 2)
    assert set(np.unique(losses)) <= {0, 1}
    assert chosen.shape == (40, 3)
