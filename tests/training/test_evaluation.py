"""Evaluation: one pass for all prefixes equals one question at a time."""

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.models import GPT2
from icltheory.regression.prompts import PrefixPrompt
from icltheory.training import prefix_errors

D, P, B = 3, 5, 6
MODEL = GPT2(dim=D, num_positions=2 * P, width=8, num_layers=1, num_heads=2)
X, X_QUERY = jax.random.normal(jax.random.key(0), (2, B, P, D), jnp.float32)
Y, Y_QUERY = jax.random.normal(jax.random.key(1), (2, B, P), jnp.float32)
PARAMS = jax.jit(MODEL.init)(jax.random.key(2), X, Y)["params"]


def test_errors_of_shifted_queries_equal_one_question_at_a_time():
    prompt = PrefixPrompt(X, Y, X_QUERY, Y_QUERY, None)
    got = prefix_errors(MODEL, PARAMS, prompt, batch_size=4)
    for k in range(P):
        predict = jax.jit(
            lambda *a: MODEL.apply({"params": PARAMS}, *a, method="predict")
        )
        alone = predict(X[:, :k], Y[:, :k], X_QUERY[:, k])
        np.testing.assert_allclose(got[:, k], (alone - Y_QUERY[:, k]) ** 2, rtol=1e-4)


def test_standard_prompts_take_the_short_pass():
    short = prefix_errors(MODEL, PARAMS, PrefixPrompt(X, Y, X, Y, None))
    long = prefix_errors(MODEL, PARAMS, PrefixPrompt(X, Y, X + 0, Y, None))
    np.testing.assert_allclose(short, long, rtol=1e-4, atol=1e-6)
