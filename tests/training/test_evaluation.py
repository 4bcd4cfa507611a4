"""Evaluation: one pass for all prefixes equals one question at a time."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.models import GPT2
from icltheory.regression.sources import PrefixPrompt
from icltheory.training import prefix_errors
from tests.weights import drawn

D, P, B = 3, 5, 6
MODEL = GPT2(dim=D, num_positions=2 * P, width=8, num_layers=1, num_heads=2)
_rng = np.random.default_rng(0)
X, X_QUERY = _rng.standard_normal((2, B, P, D)).astype(np.float32)
Y, Y_QUERY = _rng.standard_normal((2, B, P)).astype(np.float32)


@pytest.fixture(scope="module")
def params():
    return drawn(MODEL.init, X, Y)["params"]


def prompt_of(*parts):
    return PrefixPrompt(*map(jnp.asarray, parts), None)


@pytest.mark.slow
def test_errors_of_shifted_queries_equal_one_question_at_a_time(params):
    got = prefix_errors(MODEL, params, prompt_of(X, Y, X_QUERY, Y_QUERY), batch_size=4)
    predict = jax.jit(lambda *a: MODEL.apply({"params": params}, *a, method="predict"))
    for k in (0, 2, P - 1):
        alone = np.asarray(predict(X[:, :k], Y[:, :k], X_QUERY[:, k]))
        np.testing.assert_allclose(got[:, k], (alone - Y_QUERY[:, k]) ** 2, rtol=1e-4)


class Columns(nn.Module):
    """Predicts the last input, or, wrongly, a column of it."""

    column: bool = False

    @nn.compact
    def __call__(self, X, y):
        return X[..., -1:] if self.column else X[..., -1]


def test_models_without_queries_of_their_own_are_called_with_two_arguments():
    x, y = jnp.asarray(X), jnp.asarray(Y)
    standard = PrefixPrompt(x, y, x, y, None)
    errors = prefix_errors(Columns(), {"unused": x}, standard)
    np.testing.assert_allclose(errors, (X[..., -1] - Y) ** 2, rtol=1e-6)
    for count in (1, P, B):  # with P prompts the shapes even broadcast
        some, labels = x[:count], y[:count]
        prompt = PrefixPrompt(some, labels, some, labels, None)
        wanted = f"predictions: expected shape {count, P}, got {count, P, 1}"
        with pytest.raises(ValueError, match=re.escape(wanted)):
            prefix_errors(Columns(column=True), {"unused": x}, prompt)


@pytest.mark.slow
def test_standard_prompts_take_the_short_pass(params):
    x, y = jnp.asarray(X), jnp.asarray(Y)
    short = prefix_errors(MODEL, params, PrefixPrompt(x, y, x, y, None))
    long = prefix_errors(MODEL, params, prompt_of(X, Y, X.copy(), Y))
    np.testing.assert_allclose(short, long, rtol=1e-4, atol=1e-6)
