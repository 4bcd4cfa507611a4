"""Bad input of the linear transformer block is refused in one line."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests.raising import raises_one_line as raises

EYE, ZERO = np.eye(2), np.zeros(2)
X, Y, QUERY, TOKENS = np.ones((4, 2)), np.ones(4), np.ones(2), np.ones((5, 3))


@functools.cache
def problem():
    return LinearPopulation(EYE, ZERO, EYE, 0.25)


@functools.cache
def nothing():
    return LinearPopulation(EYE, ZERO, np.zeros((2, 2)), 0.0)  # tau = 0


@functools.cache
def three():
    return LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.25)


@functools.cache
def step():
    return reg.GDBeta(ZERO, EYE)


@functools.cache
def parts():
    return jax.jit(reg.GDBeta.effective)(step())


@functools.cache
def block():
    return jax.jit(lambda model: model.to_ltb())(step())


def attention():
    return reg.LSA(block().W_K, block().W_Q, block().W_P, block().W_V)


MODELS = {"GDBeta": step, "LTB": block, "LSA": attention, "parts": parts}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


# --- problems


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((-EYE, ZERO, EYE, 0.1), "input_cov: expected a positive semi-definite matrix"),
        ((EYE, ZERO, np.diag([1.0, -0.1]), 0.1), "task_cov: expected a positive semi-"),
        (([[1, 2], [0, 1]], ZERO, EYE, 0.1), "input_cov: expected a symmetric matrix"),
        ((EYE, ZERO, EYE, -0.1), "noise_var: expected a value >= 0, got -0.1"),
        ((EYE, ZERO, EYE, np.nan), "noise_var: expected finite entries, got nan"),
        ((EYE, np.array([0, np.inf]), EYE, 0.1), "task_mean: expected finite entries"),
        ((EYE, np.zeros(3), EYE, 0.1), "task_mean: expected shape (2,), got (3,)"),
    ],
)
def test_impossible_problems_are_refused(parts, message):
    H, mean, Psi, noise_var = parts
    with raises(message):
        LinearPopulation(np.asarray(H, float), mean, Psi, noise_var)


# --- models


def test_models_of_wrong_shapes_are_refused():
    with raises("Gamma: expected shape (2, 2), got (3, 3)"):
        reg.GDBeta(ZERO, np.eye(3))
    with raises("p: expected shape (2,), got (3,)"):
        reg.EffectiveParameters(ZERO, np.zeros(3), 1.0, EYE, ZERO)
    with raises("U: expected shape (2, 2), got (2, 3)"):
        reg.EffectiveParameters(ZERO, ZERO, 1.0, np.ones((2, 3)), ZERO)
    wide, four = np.ones((2, 3)), np.ones((2, 4))
    with raises("W_Q: expected shape (rows, d + 1) with the d of W_K, got (2, 4)"):
        reg.LSA(wide, four, wide, wide)
    with raises("W_Q: expected the shape (2, 3) of W_K, got (1, 3)"):
        reg.LSA(wide, wide[:1], wide, wide)
    with raises("W_V: expected the shape (2, 3) of W_P, got (1, 3)"):
        reg.LTB(wide, wide, wide, wide[:1], wide, wide)
    with raises("W_2: expected the shape (2, 3) of W_1, got (1, 3)"):
        reg.LTB(wide, wide, wide, wide, wide, wide[:1])
    with raises("W_K: expected shape (rows, d + 1) with the d of W_K, got (2, 1)"):
        reg.LSA(*([np.ones((2, 1))] * 4))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_models_that_are_not_finite_are_refused(bad):
    with raises("beta: expected finite entries, got "):
        reg.GDBeta(np.array([0, bad]), EYE)
    with raises("Gamma: expected finite entries, got "):
        reg.GDBeta(ZERO, np.full((2, 2), bad))
    with raises("v: expected finite entries, got "):
        reg.EffectiveParameters(ZERO, ZERO, bad, EYE, ZERO)
    wide = np.ones((2, 3))
    with raises("W_V: expected finite entries, got "):
        reg.LTB(wide, wide, wide, np.full((2, 3), bad), wide, wide)


# --- prompts


def test_prompts_that_do_not_fit_are_refused(model):
    with raises("y: expected shape (4,), got (3,)"):
        model.predict(X, Y[:3], QUERY)
    with raises("x_query: expected shape (2,), got (3,)"):
        model.predict(X, Y, np.ones(3))


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
    assert float(model.predict(X[:0], Y[:0], QUERY)) == 0
    if hasattr(model, "predict_tokens"):
        assert float(model.predict_tokens(TOKENS[:1] * [1, 1, 0])) == 0


# --- risks


def test_risks_of_other_dimensions_or_without_examples_are_refused(model):
    with raises("population: expected dimension 2, got 3"):
        reg.risk(model, three(), 4)
    with raises("num_examples: expected a whole number >= 0, got -1"):
        reg.risk(model, problem(), -1)


NEEDS_EXAMPLES = {
    "minimizers": reg.landscape.minimizers,
    "optimality_conditions": lambda task, M: reg.landscape.optimality_conditions(
        block(), task, M
    ),
    "gap": reg.gap,
    "small_mean_gap": reg.gaps.small_mean_gap,
    "spurious_minimum": reg.landscape.spurious_minimum,
    "excess_profile": lambda task, M: reg.landscape.excess_profile(
        task, M, np.zeros(3)
    ),
    "best LSA": lambda task, M: reg.optimum(reg.LSA, task, M, key=jax.random.key(0)),
}


@pytest.mark.parametrize("function", NEEDS_EXAMPLES.values(), ids=NEEDS_EXAMPLES)
def test_no_optimum_without_examples_or_anything_to_learn(function):
    with raises("num_examples: expected a whole number >= 1, got 0"):
        function(problem(), 0)
    with raises("population: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
        function(nothing(), 4)


def test_without_examples_the_best_start_is_the_mean():
    population = LinearPopulation(EYE, np.ones(2), EYE, 0.25)
    for family in (reg.GDBeta, reg.LTB):
        best = reg.optimum(family, population, 0)
        assert float(best.risk) == float(reg.risk(best.model, population, 0)) == 2.25
        assert float(reg.excess(best.model, population, 0).total) == 0
    assert float(reg.excess(step(), population, 0).total) == 2
    for function in (
        lambda task: reg.optimum(reg.LTB, task, 4),
        lambda task: reg.excess(step(), task, 4),
    ):
        with raises("population: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
            function(nothing())


def test_other_arguments_that_do_not_fit_are_refused(key):
    with raises("population: expected dimension 2, got 3"):
        reg.excess(block(), three(), 4)
    with raises("Gamma: expected shape (2, 2), got (3, 3)"):
        reg.landscape.curvature(np.eye(3), problem(), 4)
    with raises("num_examples: expected a whole number >= 1, got 0"):
        reg.landscape.curvature(EYE, problem(), 0)
    with raises("shift: expected shape (2,), got (3,)"):
        reg.landscape.minimizers(problem(), 4).member(np.ones(3), EYE)
    with raises("change: expected shape (2, 2), got (3, 3)"):
        reg.landscape.minimizers(problem(), 4).member(np.ones(2), np.eye(3))
    with raises("population: expected dimension 2, got 3"):
        reg.landscape.optimality_conditions(block(), three(), 4)
    with raises("tolerance: expected a value >= 0, got -1"):
        reg.landscape.optimality_conditions(block(), problem(), 4).hold(-1.0)
    with raises("population: expected dimension 1, got 2"):
        reg.gaps.scalar_gap(problem(), 4)
    with raises("num_starts: expected a positive integer, got 0"):
        reg.optimum(reg.LSA, problem(), 4, key=key, num_starts=0)


def test_converters_refuse_widths_that_are_too_small():
    with raises("key_dim: expected an integer >= 2, got 1"):
        step().to_ltb(key_dim=1)
    with raises("value_dim: expected a positive integer, got 0"):
        step().to_ltb(value_dim=0)
    with raises("hidden_dim: expected a positive integer, got 0"):
        step().to_ltb(hidden_dim=0)
    with raises("start: expected finite entries, got nan"):
        reg.LSA.gradient_step(np.array([0, np.nan]), 0.5)


# --- what is allowed


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

    np.testing.assert_allclose(
        risk(0.25, 3), reg.optimum(reg.LTB, problem(), 3).risk, rtol=1e-14
    )
    # no error can be raised while values are traced
    assert np.isnan(risk(0.25, -1))
    assert np.isnan(risk(-0.25, 3))


def test_models_are_pytrees_that_transformations_may_fill_with_anything():
    assert jax.tree.structure(step()) == jax.tree.structure(
        jax.tree.map(jnp.ones_like, step())
    )
    nothing = jax.tree.map(lambda a: None, step())
    assert isinstance(nothing, reg.GDBeta)

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
