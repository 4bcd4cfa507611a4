"""LSA and LTB: what they predict, with and without the mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import regression as reg
from tests import oracles
from tests.oracles_ltb import random_population, random_prompts

pytestmark = pytest.mark.statement("Zhang: Section 3")


def random_weights(rng, d, rows):
    """Matrices with so many rows."""
    return [rng.normal(size=(k, d + 1)) for k in rows]


@pytest.mark.slow
def test_predictions_of_batches_are_those_of_the_token_model(measured):
    rng = np.random.default_rng(37)
    weights = random_weights(rng, 3, (2, 2, 4, 4, 5, 5))
    X, y, x = (rng.normal(size=(6, *rest)) for rest in ((7, 3), (7,), (3,)))
    models = reg.LTB(*weights), reg.LSA(*weights[:4])
    for mask, found in _predictions(models, X, y, x).items():
        for model, values in zip(models, found, strict=True):
            used = [np.asarray(W) for W in jax.tree.leaves(model)]
            expected = oracles.block_predictions(used, X, y, x, mask)
            error = np.abs(np.array(values) - expected) / (1 + np.abs(expected).max())
            measured(f"relative error, mask {mask}", error.max())
            assert np.all(error < 1e-14)


@jax.jit
def _predictions(models, X, y, x):
    """By the matrices and by the effective parameters, from prompts and from tokens."""
    found: dict = {"demos": [], "none": []}
    for model in models:
        both = model, model.effective()
        for mask in found:
            answers = [on_tokens(m, X, y, x, mask) for m in both]
            if mask == "demos":
                answers += [jax.vmap(m.predict)(X, y, x) for m in both]
            found[mask].append(answers)
    return found


def on_tokens(model, X, y, x, mask="demos"):
    """Answers to prompts of one length, written as token matrices."""

    def one(X, y, x):
        E = jnp.vstack([jnp.column_stack([X, y]), jnp.append(x, 0)])
        return model.predict_tokens(E, mask)

    return jax.vmap(one)(X, y, x)


@jax.jit
def masked_and_not(weights, X, y, x):
    block = reg.LTB(*weights)
    parts = block.effective()
    added = (x @ parts.p) * jnp.sum((x @ parts.U) * x, axis=-1) / X.shape[-2]
    return on_tokens(block, X, y, x), on_tokens(block, X, y, x, "none"), added


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([(1, 2), (3, 8), (4, 1)]))
def test_dropping_the_mask_adds_what_the_query_attends_of_itself(seed, size, measured):
    d, M = size
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, d, (d + 1, d + 1, d, d, 4, 4))
    prompts = random_prompts(rng, random_population(rng, d), M, 30)
    masked, unmasked, added = map(np.asarray, masked_and_not(weights, *prompts))
    exact = oracles.block_predictions(weights, *prompts, "none")
    scale = 1 + np.abs(exact)
    measured("relative error", np.max(np.abs(unmasked - masked - added) / scale))
    assert np.all(np.abs(unmasked - masked - added) < 1e-12 * scale)
    assert np.all(np.abs(unmasked - exact) < 1e-12 * scale)


def test_the_mask_matters_for_gd_beta_unless_it_starts_from_zero(measured):
    rng = np.random.default_rng(38)
    X, y, x = rng.normal(size=(4, 2)), rng.normal(size=4), rng.normal(size=2)
    for beta in (np.zeros(2), np.ones(2)):
        model = reg.GDBeta(beta, rng.normal(size=(2, 2)))
        E, parts = np.vstack([np.column_stack([X, y]), [*x, 0]]), model.effective()
        change = float(parts.predict_tokens(E, "none") - parts.predict_tokens(E))
        expected = -(beta @ x) * (x @ np.asarray(model.Gamma).T @ x) / 4
        measured("error of the change", change - expected, below=1e-14)
        assert (change == 0) == (not beta.any())


def test_the_weight_of_a_prompt_is_the_sum_of_its_five_parts(measured):
    rng = np.random.default_rng(39)
    c, p, u = rng.normal(size=(3, 3))
    v, U = rng.normal(), rng.normal(size=(3, 3))
    X, y = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6))
    weight = np.asarray(jax.vmap(reg.EffectiveParameters(c, p, v, U, u).weights)(X, y))
    for k in range(2):
        S, moment = X[k].T @ X[k] / 6, X[k].T @ y[k] / 6
        expected = (
            c
            + U.T @ S @ p
            + (p @ moment) * u
            + v * U.T @ moment
            + v * (y[k] @ y[k]) / 6 * u
        )
        measured("error", np.abs(weight[k] - expected).max())
        np.testing.assert_allclose(weight[k], expected, rtol=1e-13)
