"""Borderline inputs of a user: sequences, huge counts, infinities, samplers, models.

Each is the right value, NaN as documented, or an error of one line that names the
argument.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, layered, noise, pruning, training
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredStack
from icltheory.linalg import low_rank_approximation, svd
from icltheory.regression import (
    LinearPopulation,
    SparseLinearRegression,
    predictors,
    squared_errors,
)

pytestmark = pytest.mark.usefixtures("as_for_a_user")
KEY = jax.random.key(0)
TASK, FOUR = (LinearPopulation.isotropic(d) for d in (3, 4))
X, Y, QUERY = np.eye(3)[:2], np.ones(2), np.ones(3)
WEIGHTS = jnp.stack([jnp.diag(jnp.array([2.0, 1.0]))])
STACK = LinearAttentionStack(WEIGHTS, WEIGHTS, WEIGHTS)
MODEL = LayeredStack.of(STACK)
# LAPACK's decomposition of this matrix, given as it is, does not end.
ENDLESS = np.random.default_rng(0).normal(size=(4, 4))
ENDLESS[0, 0] = np.inf


@dataclasses.dataclass(frozen=True)
class Doubled:
    """A layered model whose layer names its matrices twice."""

    num_layers: int = 1

    def __getattr__(self, name):
        return getattr(MODEL, name)

    def matrices(self, layer):
        """The matrices of the layer, each of them twice."""
        return 2 * MODEL.matrices(layer)


def ridge(X, penalty=1.0):
    return predictors.Ridge(penalty).predict(X, Y, QUERY)


def errors(source):
    rule = predictors.NearestNeighbors()
    return squared_errors(rule, source, 5, key=KEY, num_prompts=4, prefixes=True)


def error_of(run):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        run()
    return str(caught.value)


@pytest.mark.parametrize(
    "run",
    [
        lambda W: svd(W).s,
        lambda W: low_rank_approximation(W, 1),
        lambda W: predictors.LeastSquares().predict(W, jnp.ones(4), jnp.ones(4)),
        jax.grad(
            lambda W: predictors.LeastSquares().predict(W, jnp.ones(4), jnp.ones(4))
        ),
        lambda W: predictors.Bayes(FOUR).risk_given(FOUR, W),
        lambda W: pruning.frobenius_split(W, 1).kept,
        jax.grad(lambda W: pruning.frobenius_split(W, 1).kept),
    ],
)
def test_decompositions_of_infinite_matrices_end(run):
    assert np.all(np.isnan(jax.jit(run)(jnp.asarray(ENDLESS))))


@pytest.mark.slow
def test_bounds_of_infinite_weights_end():
    stack = LinearAttentionStack(*3 * [ENDLESS[None]])
    H = jax.random.normal(KEY, (2, 12, 4))

    def bound(stack):
        steps = bounds.noisy_steps(stack, H, 3)
        return bounds.isotropic_bound(steps, 1.0).value

    message = "W_V: expected finite entries, got "
    assert error_of(lambda: bound(stack)).startswith(message)
    assert error_of(lambda: noise.support_dims(stack)) == message + "inf"
    assert np.isnan(jax.jit(bound)(stack))


def test_a_sampler_returns_prompts_with_a_query_per_prefix():
    def prompts(key, num_points, batch_size, extra=0):
        return TASK.sample(key, num_points - 1 + extra, batch_size)

    def whole(*args):
        return prompts(*args).prefixes()

    assert errors(whole).shape == (4, 6)
    for source, message in (
        (prompts, "PrefixPrompt, got Prompt: call its prefixes()"),
        (lambda *args: None, "PrefixPrompt, got NoneType"),
        (
            lambda *args: prompts(*args, extra=1).prefixes(),
            "y of the sampler's prompts: expected shape (4, 6), got (4, 7)",
        ),
    ):
        got = error_of(functools.partial(errors, source))
        assert message in got
        assert "\n" not in got


@pytest.mark.parametrize(
    "task",
    [TASK, pytest.param(SparseLinearRegression(3, 2), marks=pytest.mark.slow)],
)
def test_traced_active_dims_out_of_range_make_the_inputs_nan(task):
    draw = jax.jit(lambda k: task.sample(KEY, 4, 2, active_dims=k))
    for wrong in (-1, 0, 4, 2.5):
        prompt = draw(wrong)
        assert np.all(np.isnan(prompt.X))
        assert np.all(np.isnan(prompt.y))
    np.testing.assert_array_equal(draw(2).X, task.sample(KEY, 4, 2, active_dims=2).X)


def test_traced_active_points_and_ranks_out_of_range_give_nan():
    loss = jax.jit(training.in_context_loss)
    y = jnp.arange(6.0).reshape(2, 3)
    for wrong in (-1, 0, 9):
        assert np.isnan(loss(y, 0 * y, wrong))
    assert loss(y, 0 * y, 2) == training.in_context_loss(y, 0 * y, 2)
    cut = jax.jit(lambda rank: svd(np.eye(2)).truncate(rank))
    assert np.all(np.isnan(cut(9)))
    np.testing.assert_allclose(cut(2), np.eye(2), atol=1e-12)


@pytest.mark.parametrize(
    "run",
    [
        lambda model: pruning.module_spectra(model, STACK),
        lambda model: pruning.prune_model(model, STACK, "0:W_V:0.5"),
        lambda model: layered.check_model(model, STACK, (jnp.ones((3, 2)), QUERY)),
    ],
)
def test_a_model_of_ones_own_is_told_what_it_lacks(run):
    assert re.fullmatch(
        "model: expected a layered model, got int without block, embed, .*",
        error_of(lambda: run(3)),
    )
    assert error_of(lambda: run(Doubled())).startswith(
        "model: expected distinct names of matrices, got ['W_V', "
    )


def test_negative_zero_is_zero():
    assert ridge(X, penalty=-0.0) == ridge(X, penalty=0.0)
    task = LinearPopulation(np.eye(2), np.zeros(2), np.eye(2), -0.0)
    assert float(reg.optimum(reg.LTB, task, 3).risk) == pytest.approx(1)
