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

from icltheory import bounds, layered, linalg, noise, pruning, statistics, training
from icltheory.attention import LinearAttentionStack
from icltheory.bounds import isotropic_term, planned_bound, required_samples
from icltheory.chain_of_thought import path_probabilities, slide_transitions
from icltheory.induction import copying_ratio
from icltheory.layered import LayeredStack
from icltheory.linalg import low_rank_approximation, marchenko_pastur_density, svd
from icltheory.regression import ltb, predictors, risks
from icltheory.regression.tasks import LinearRegression, SparseLinearRegression
from icltheory.statistics import Estimate

pytestmark = pytest.mark.usefixtures("as_for_a_user")
KEY = jax.random.key(0)
TASK = LinearRegression.isotropic(3)
X, Y, QUERY = np.eye(3)[:2], np.ones(2), np.ones(3)
ridge = functools.partial(predictors.ridge, y=Y, x_query=QUERY, penalty=1.0)
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


def risk(predictor=predictors.zero_prefixes, source=TASK, **counts):
    return risks.monte_carlo_risk(predictor, source, KEY, 4, **counts)


def error_of(run):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        run()
    return str(caught.value)


def test_tuples_and_lists_of_arrays_are_arrays():
    expected = ridge(X)
    for given in (tuple(map(tuple, X)), list(X), [jnp.array(row) for row in X]):
        assert ridge(given) == expected
    rows = ((1.0, 0.0), (0.0, 1.0))
    assert LinearRegression(rows, (0.0, 0.0), rows, 0.1).dim == 2
    assert Estimate.of(((1.0, 2.0), (3.0, 4.0))).mean.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (None, "None"),
        ({"a": 1}, "{'a': 1}"),
        ([[1.0, None, 0.0]], "[[1.0, None, 0.0]]"),
        (np.zeros((2, 3), [("a", float)]), "an array of [('a', '<f8')], shape (2, 3)"),
        (jax.random.split(KEY, (2, 3)), "an array of key<fry>, shape (2, 3)"),
    ],
)
def test_what_holds_no_numbers_is_shown(value, got):
    assert error_of(lambda: ridge(value)) == f"X: expected numbers, got {got}"


def test_ragged_rows_are_named():
    message = "X: expected numbers in rows of one length, got [[1.0, 2.0], [1.0]]"
    assert error_of(lambda: ridge([[1.0, 2.0], [1.0]])) == message


def test_none_stands_for_a_key_or_a_number_only_where_it_may_be_left_out():
    message = "key: expected one key from jax.random.key, got None"
    assert error_of(lambda: ltb.optimal_lsa(TASK, 3, None)) == message
    message = "penalty: expected numbers, got None"
    assert error_of(lambda: ridge(X, penalty=None)) == message


@pytest.mark.parametrize("wide", [True, False])
def test_counts_beyond_the_integers_of_jax_are_floats(wide):
    with jax.enable_x64(wide):
        for count in (2**70, np.int64(2**40)):
            found = float(bounds.xu_raginsky(1.0, count, 1.0))
            assert found == pytest.approx((2 / float(count)) ** 0.5, rel=1e-6)
        found = noise.without_replacement_factor(2**70, 2)
        assert float(found) == pytest.approx(0.5, rel=1e-6)
        matrix = np.array([[2**40]])
        assert predictors.ridge(matrix, [1.0], [1.0], 0.0) == 2.0**-40


def test_shapes_that_do_not_broadcast_are_named():
    assert error_of(lambda: planned_bound([40, 50, 60], [5, 6], [5], 1.0)) == (
        "num_samples, shots, support_dims: expected shapes that broadcast, "
        "got (3,), (2,), (1,)"
    )
    assert error_of(lambda: isotropic_term([1.0, 2], [1.0, 2, 3], 0.0, 3)) == (
        "squared_distance, trace: expected shapes that broadcast, got (2,), (3,)"
    )


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: low_rank_approximation(np.eye(3), 1.5),
            "rank: expected a whole number >= 0, got 1.5",
        ),
        (
            lambda: svd(np.eye(3)).truncate(1.5),
            "rank: expected a whole number >= 0, got 1.5",
        ),
        (
            lambda: pruning.frobenius_split(np.eye(3), 1.5),
            "rank: expected a whole number >= 0, got 1.5",
        ),
        (
            lambda: marchenko_pastur_density([1.0], (3.5, 3)),
            "shape: expected two positive integers, got (3.5, 3)",
        ),
        (lambda: pruning.rank_for_rate(3, 0.5), "shape: expected (m, n), got 3"),
        (
            lambda: pruning.kept_parameters((3, 3), 1.5),
            "rank: expected an integer >= 0, got 1.5",
        ),
        (
            lambda: pruning.prune_module(MODEL, STACK, 0.0, "W_V", 0.5),
            "layer: expected an integer >= 0, got 0.0",
        ),
        (
            lambda: required_samples(0.1, 0.5, [], 1.0),
            "support_dims: expected at least one layer, got none",
        ),
        (
            lambda: statistics.exact_mcnemar(2**70, 0),
            f"gained, lost: expected a sum of at most {2**53}, got {2**70}",
        ),
        (
            lambda: Estimate.of([1.0, 2.0], axis=5),
            "axis: expected -1 <= axis < 1, got 5",
        ),
    ],
)
def test_counts_that_are_none_are_named(run, message):
    assert error_of(run) == message


def test_entries_of_integers_are_whole_and_within_what_they_point_into():
    steps, attention = slide_transitions(), np.tril(np.ones((3, 3))) / 3
    paths = functools.partial(path_probabilities, steps)
    ratio = functools.partial(copying_ratio, attention, np.eye(2))
    for wrong in (5, -1):
        message = f"paths: expected 0 <= paths <= 1, got {wrong}"
        assert error_of(lambda wrong=wrong: paths([[0, wrong, 0]])) == message
        message = f"tokens: expected 0 <= tokens <= 1, got {wrong}"
        assert error_of(lambda wrong=wrong: ratio([0, wrong, 0])) == message
        assert np.isnan(jax.jit(paths)(jnp.array([[0, wrong, 0]])))
        assert np.isnan(jax.jit(ratio)(jnp.array([0, wrong, 0])))
    with pytest.raises(ValueError, match=r"^copying_ratio with .*integer"):
        ratio(np.array([0.0, 1.0, 0.0]))


@pytest.mark.parametrize(
    "run",
    [
        lambda W: svd(W).s,
        lambda W: low_rank_approximation(W, 1),
        lambda W: predictors.ols(W, jnp.ones(4), jnp.ones(4)),
        jax.grad(lambda W: predictors.ols(W, jnp.ones(4), jnp.ones(4))),
        lambda W: risks.bayes_risk_given(LinearRegression.isotropic(4), W),
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
        return bounds.generalization_bound(stack, H, 3, 1.0).value

    message = "W_V: expected finite entries, got "
    assert error_of(lambda: bound(stack)).startswith(message)
    assert error_of(lambda: noise.support_dims(stack)) == message + "inf"
    assert np.isnan(jax.jit(bound)(stack))


def test_a_sampler_returns_prompts_with_a_query_per_prefix():
    def prompts(key, num_points, batch_size, extra=0):
        return TASK.sample(key, num_points - 1 + extra, batch_size)

    def whole(*args):
        return prompts(*args).prefixes()

    assert risk(source=whole, num_examples=5).mean.shape == (6,)
    for source, message in (
        (prompts, "PrefixPrompt, got Prompt: call its prefixes()"),
        (lambda *args: None, "PrefixPrompt, got NoneType"),
        (
            lambda *args: prompts(*args, extra=1).prefixes(),
            "y of the sampler's prompts: expected shape (4, 6), got (4, 7)",
        ),
    ):
        got = error_of(functools.partial(risk, source=source, num_examples=5))
        assert message in got
        assert "\n" not in got


@pytest.mark.parametrize(
    ("predictions", "got"),
    [
        (lambda y: y[:, 0], "(4,)"),
        (lambda y: y[0], "(7,)"),
        (lambda y: y[:, :1], "(4, 1)"),
        (lambda y: 0.0, "()"),
        (lambda y: None, "()"),
    ],
)
def test_predictions_that_would_broadcast_are_refused(predictions, got):
    run = functools.partial(risk, lambda X, y, X_query: predictions(y))
    message = "predictions of predictor_prefixes: expected shape (4, 7), got "
    assert error_of(run) == message + got


def test_complex_predictions_and_statistics_are_refused():
    wrong = np.array([1.0, 2j, 3.0])
    runs = {
        "predictions of predictor_prefixes": lambda: risk(lambda X, y, q: y * 1j),
        "values": lambda: Estimate.of(wrong),
        "p": lambda: statistics.adjust_holm(wrong),
        "errors": lambda: statistics.curve_interval(wrong[:, None], KEY),
    }
    for name, run in runs.items():
        assert error_of(run) == f"{name}: expected real numbers, got complex"
    for run in (
        lambda: Estimate.of(jnp.asarray(wrong)),
        lambda: statistics.bootstrap_interval(wrong),
        lambda: statistics.crossed_estimate(wrong[None]),
    ):
        assert error_of(run) == "values: expected real numbers, got complex"
    assert error_of(lambda: Estimate.of(["a"])) == (
        "values: expected numbers, got ['a']"
    )


def test_whole_errors_have_the_interval_of_floats():
    errors = np.arange(10).reshape(5, 2)
    found = statistics.curve_interval(errors, KEY)
    expected = statistics.curve_interval(errors * 1.0, KEY)
    np.testing.assert_array_equal(found.low, expected.low)
    assert found.low[0] > 0


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
        lambda model: pruning.prune_module(model, STACK, 0, "W_V", 0.5),
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


def test_params_that_are_not_those_of_the_model_are_named():
    assert error_of(lambda: pruning.module_spectra(MODEL, 3 * (WEIGHTS,))) == (
        "path: expected the path of a leaf of params, a tuple, got ('W_V', 0)"
    )


def test_condition_numbers_and_norms_keep_their_scale():
    for size in (1e-300, 1.0, 1e300):
        assert float(linalg.condition_number(size * np.diag([1.0, 2.0]))) == 2
        assert float(linalg.stable_rank(size * np.eye(3))) == pytest.approx(3)


def test_negative_zero_is_zero():
    assert ridge(X, penalty=-0.0) == ridge(X, penalty=0.0)
    task = LinearRegression(np.eye(2), np.zeros(2), np.eye(2), -0.0)
    assert float(ltb.minimal_risk(task, 3)) == pytest.approx(1)
