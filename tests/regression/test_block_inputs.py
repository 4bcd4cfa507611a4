"""Bad input of linear transformer blocks and of their theory: refused in one line."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, LinearStep, gaps, transfer
from icltheory.regression.gaps import scalar_gap, small_mean_gap
from icltheory.regression.landscape import (
    curvature,
    excess_profile,
    minimizers,
    optimality_conditions,
    spurious_minimum,
)
from tests.raising import raises_one_line as raises

EYE, ZERO, THREE = np.eye(2), np.zeros(2), np.eye(3)
X, QUERY, TOKENS = np.ones((4, 2)), np.ones(2), np.ones((5, 3))
WIDE = np.ones((2, 3))
NO_TAU = "population: expected tau = tr(H Psi) + noise_var > 0, got 0.0"
NONE = "num_examples: expected a whole number >= 1, got 0"


@functools.cache
def problem(dim=2):
    return LinearPopulation(np.eye(dim), np.zeros(dim), np.eye(dim), 0.25)


@functools.cache
def nothing():
    return LinearPopulation(EYE, ZERO, np.zeros((2, 2)), 0.0)  # tau = 0


@functools.cache
def step():
    return reg.GDBeta(ZERO, EYE)


@functools.cache
def block():
    return jax.jit(lambda model: model.to_ltb())(step())


MODELS = {
    "GDBeta": step,
    "LTB": block,
    "LSA": lambda: reg.LSA(block().W_K, block().W_Q, block().W_P, block().W_V),
    "parts": functools.cache(lambda: jax.jit(reg.GDBeta.effective)(step())),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def test_models_of_wrong_shapes_or_values_are_refused():
    with raises("Gamma: expected shape (2, 2), got (3, 3)"):
        reg.GDBeta(ZERO, THREE)
    with raises("p: expected shape (2,), got (3,)"):
        reg.EffectiveParameters(ZERO, np.zeros(3), 1.0, EYE, ZERO)
    with raises("U: expected shape (2, 2), got (2, 3)"):
        reg.EffectiveParameters(ZERO, ZERO, 1.0, WIDE, ZERO)
    with raises("W_Q: expected shape (rows, d + 1) with the d of W_K, got (2, 4)"):
        reg.LSA(WIDE, np.ones((2, 4)), WIDE, WIDE)
    with raises("W_Q: expected the shape (2, 3) of W_K, got (1, 3)"):
        reg.LSA(WIDE, WIDE[:1], WIDE, WIDE)
    with raises("W_V: expected the shape (2, 3) of W_P, got (1, 3)"):
        reg.LTB(WIDE, WIDE, WIDE, WIDE[:1], WIDE, WIDE)
    with raises("W_2: expected the shape (2, 3) of W_1, got (1, 3)"):
        reg.LTB(*[WIDE] * 5, WIDE[:1])
    with raises("W_K: expected shape (rows, d + 1) with the d of W_K, got (2, 1)"):
        reg.LSA(*[np.ones((2, 1))] * 4)
    with raises("beta: expected finite entries, got nan"):
        reg.GDBeta(np.array([0, np.nan]), EYE)
    with raises("Gamma: expected finite entries, got nan"):
        reg.GDBeta(ZERO, np.nan * EYE)
    with raises("v: expected finite entries, got inf"):
        reg.EffectiveParameters(ZERO, ZERO, np.inf, EYE, ZERO)
    with raises("W_V: expected finite entries, got inf"):
        reg.LTB(WIDE, WIDE, WIDE, np.inf * WIDE, WIDE, WIDE)
    with raises("start: expected finite entries, got nan"):
        reg.LSA.gradient_step(np.array([0, np.nan]), 0.5)
    with raises("key_dim: expected an integer >= 2, got 1"):
        step().to_ltb(key_dim=1)
    with raises("value_dim: expected a positive integer, got 0"):
        step().to_ltb(value_dim=0)
    with raises("hidden_dim: expected a positive integer, got 0"):
        step().to_ltb(hidden_dim=0)


def test_prompts_that_do_not_fit_are_refused(model):
    with raises("y: expected shape (4,), got (3,)"):
        model.predict(X, np.ones(3), QUERY)
    with raises("x_query: expected shape (2,), got (3,)"):
        model.predict(X, X[:, 0], np.ones(3))


@pytest.mark.parametrize("name", ["LTB", "parts"])
def test_token_matrices_and_masks_that_do_not_fit_are_refused(name):
    model = MODELS[name]()
    with raises("E: expected shape (N + 1, 3), got (5, 4)"):
        model.predict_tokens(np.ones((5, 4)))
    with raises("E: expected the query's token at least, got none"):
        model.predict_tokens(TOKENS[:0])
    with raises("mask: expected one of 'demos', 'none', got 'causal'"):
        model.predict_tokens(TOKENS, mask="causal")


def test_without_examples_the_answer_is_that_of_the_start(model):
    # here the start is 0; none of the models divides by the number of examples
    assert float(model.predict(X[:0], X[:0, 0], QUERY)) == 0
    assert float(model.predict_tokens(TOKENS[:1] * [1, 1, 0])) == 0


def test_risks_of_other_dimensions_or_without_examples_are_refused(model):
    with raises("population: expected dimension 2, got 3"):
        reg.risk(model, problem(3), 4)
    with raises("num_examples: expected a whole number >= 0, got -1"):
        reg.risk(model, problem(), -1)


NEEDS_EXAMPLES = {
    "minimizers": minimizers,
    "optimality_conditions": lambda task, M: optimality_conditions(block(), task, M),
    "gap": reg.gap,
    "small_mean_gap": small_mean_gap,
    "spurious_minimum": spurious_minimum,
    "excess_profile": lambda task, M: excess_profile(task, M, np.zeros(3)),
    "best LSA": lambda task, M: reg.optimum(reg.LSA, task, M, key=jax.random.key(0)),
    "rates": gaps.rates,
}


@pytest.mark.parametrize("function", NEEDS_EXAMPLES.values(), ids=NEEDS_EXAMPLES)
def test_no_optimum_without_examples_or_anything_to_learn(function):
    with raises(NONE):
        function(problem(), 0)
    with raises(NO_TAU):
        function(nothing(), 4)


def test_without_examples_the_best_start_is_the_mean():
    population = LinearPopulation(EYE, np.ones(2), EYE, 0.25)
    for family in (reg.GDBeta, reg.LTB):
        best = reg.optimum(family, population, 0)
        assert float(best.risk) == float(reg.risk(best.model, population, 0)) == 2.25
        assert float(reg.excess(best.model, population, 0).total) == 0
    assert float(reg.excess(step(), population, 0).total) == 2
    with raises(NO_TAU):
        reg.optimum(reg.LTB, nothing(), 4)
    with raises(NO_TAU):
        reg.excess(step(), nothing(), 4)


def test_the_landscape_refuses_what_does_not_fit(key):
    with raises("population: expected dimension 2, got 3"):
        reg.excess(block(), problem(3), 4)
    with raises("Gamma: expected shape (2, 2), got (3, 3)"):
        curvature(THREE, problem(), 4)
    with raises(NONE):
        curvature(EYE, problem(), 0)
    with raises("shift: expected shape (2,), got (3,)"):
        minimizers(problem(), 4).member(np.ones(3), EYE)
    with raises("change: expected shape (2, 2), got (3, 3)"):
        minimizers(problem(), 4).member(ZERO, THREE)
    with raises("population: expected dimension 2, got 3"):
        optimality_conditions(block(), problem(3), 4)
    with raises("tolerance: expected a value >= 0, got -1"):
        optimality_conditions(block(), problem(), 4).hold(-1.0)
    with raises("population: expected dimension 1, got 2"):
        scalar_gap(problem(), 4)
    with raises("num_starts: expected a positive integer, got 0"):
        reg.optimum(reg.LSA, problem(), 4, key=key, num_starts=0)


def test_the_number_of_tasks_refuses_other_priors_shapes_and_counts():
    bound, task = transfer.task_complexity_bound, problem(3)
    with raises("num_tasks: expected an integer >= 2, got 1"):
        bound(task, 4, 1, 0.1)
    with raises("initial_step: expected a value >= 0, got -0.1"):
        transfer.halving_steps(8, -0.1)
    with raises("population: expected task_mean = 0, got "):
        bound(task.with_(task_mean=np.ones(3)), 4, 8, 0.1)
    with raises("population: expected task_cov = psi^2 I, got "):
        bound(task.with_(task_cov=np.diag([1.0, 2.0, 1.0])), 4, 8, 0.1)
    with raises("Gamma_0: expected shape (3, 3), got (2, 2)"):
        bound(task, 4, 8, 0.1, EYE)


def test_other_labels_lengths_and_covariances_refuse_what_does_not_fit():
    labels, step = {"weight": np.ones(3), "moment_cov": THREE}, LinearStep(THREE)
    with raises(NONE):
        transfer.risk_for_labels(step, THREE, 0, **labels)
    with raises("input_cov: expected a positive semi-definite matrix"):
        transfer.risk_for_labels(step, -THREE, 4, **labels)
    with raises("input_cov: expected shape (3, 3), got (2, 2)"):
        transfer.risk_for_labels(step, EYE, 4, **labels)
    with raises("weight: expected shape (3,), got (2,)"):
        transfer.risk_for_labels(step, THREE, 4, weight=ZERO, moment_cov=THREE)
    with raises("moment_cov: expected a positive semi-definite matrix"):
        transfer.risk_for_labels(step, THREE, 4, weight=np.ones(3), moment_cov=-THREE)
    with raises("input_cov: expected a positive definite matrix, got 0.0"):
        transfer.risk_at_length_bound(np.diag([1.0, 0.0, 2.0]), 4, 4)
    for name, lengths in (("train_length", (0, 4)), ("test_length", (4, 0))):
        with raises(f"{name}: expected a whole number >= 1, got 0"):
            transfer.length_transfer_rate(problem(3), *lengths)
    with raises("variances: expected a value >= 0, got -1.0"):
        transfer.random_covariance_optimum(-WIDE, 4)
    with raises("probabilities: expected shape (2,), got (3,)"):
        transfer.random_covariance_optimum(WIDE, 4, np.ones(3))
    with raises("probabilities: expected a positive entry"):
        transfer.random_covariance_optimum(WIDE, 4, ZERO)
    with raises("constant: expected a value >= 0, got -1.0"):
        gaps.rates(problem(), 4, constant=-1.0)


@pytest.mark.slow
def test_a_certain_label_has_a_risk_but_no_optimum():
    # tau = 0: the risk of a model is defined, and 0 for the right one
    assert reg.risk(step(), nothing(), 4) == 0
    assert reg.risk(block(), nothing(), 4) == 0


def test_checks_of_values_do_not_stand_in_the_way_of_tracing():
    @jax.jit
    def risk(noise_var, M):
        population = LinearPopulation(EYE, ZERO, EYE, noise_var)
        return reg.optimum(reg.LTB, population, M).risk

    expected = reg.optimum(reg.LTB, problem(), 3).risk
    np.testing.assert_allclose(risk(0.25, 3), expected, rtol=1e-14)
    # no error can be raised while values are traced
    assert np.isnan(risk(0.25, -1))
    assert np.isnan(risk(-0.25, 3))


def test_models_are_pytrees_that_transformations_may_fill_with_anything():
    filled = jax.tree.map(jnp.ones_like, step())
    assert jax.tree.structure(step()) == jax.tree.structure(filled)
    assert isinstance(jax.tree.map(lambda a: None, step()), reg.GDBeta)

    @jax.jit
    def build(scales):
        batch = jax.vmap(lambda s: reg.GDBeta(s * jnp.ones(2), s * jnp.eye(2)))(scales)
        return batch, jax.vmap(lambda m: reg.risk(m, problem(), 4))(batch)

    batch, risks = build(jnp.ones(3))
    assert batch.Gamma.shape == (3, 2, 2)
    assert risks.shape == (3,)


def test_blocks_with_leading_axes_have_the_dimension_of_one():
    one = reg.LSA.gradient_step(np.zeros(3), 0.1)
    several = jax.tree.map(lambda W: jnp.stack([W] * 5), one)
    assert one.dim == several.dim == 3
