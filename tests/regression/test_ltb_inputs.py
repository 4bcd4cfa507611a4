"""Bad input of the linear transformer block is refused in one line."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import LinearPopulation, ltb
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
    return ltb.GDBeta(ZERO, EYE)


@functools.cache
def parts():
    return jax.jit(ltb.GDBeta.effective)(step())


@functools.cache
def block():
    return jax.jit(ltb.gd_beta_to_ltb)(step())


def attention():
    return ltb.LSA(block().W_K, block().W_Q, block().W_P, block().W_V)


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
        ((EYE, np.zeros(3), EYE, 0.1), "input_cov: expected shape (3, 3), got (2, 2)"),
    ],
)
def test_impossible_problems_are_refused(parts, message):
    H, mean, Psi, noise_var = parts
    with raises(message):
        LinearPopulation(np.asarray(H, float), mean, Psi, noise_var)


# --- models


def test_models_of_wrong_shapes_are_refused():
    with raises("Gamma: expected shape (2, 2), got (3, 3)"):
        ltb.GDBeta(ZERO, np.eye(3))
    with raises("p: expected shape (2,), got (3,)"):
        ltb.EffectiveParameters(ZERO, np.zeros(3), 1.0, EYE, ZERO)
    with raises("U: expected shape (2, 2), got (2, 3)"):
        ltb.EffectiveParameters(ZERO, ZERO, 1.0, np.ones((2, 3)), ZERO)
    wide, four = np.ones((2, 3)), np.ones((2, 4))
    with raises("W_Q: expected shape (rows, d + 1) with the d of W_K, got (2, 4)"):
        ltb.LSA(wide, four, wide, wide)
    with raises("W_Q: expected the shape (2, 3) of W_K, got (1, 3)"):
        ltb.LSA(wide, wide[:1], wide, wide)
    with raises("W_V: expected the shape (2, 3) of W_P, got (1, 3)"):
        ltb.LTB(wide, wide, wide, wide[:1], wide, wide)
    with raises("W_2: expected the shape (2, 3) of W_1, got (1, 3)"):
        ltb.LTB(wide, wide, wide, wide, wide, wide[:1])
    with raises("W_K: expected shape (rows, d + 1) with the d of W_K, got (2, 1)"):
        ltb.LSA(*([np.ones((2, 1))] * 4))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_models_that_are_not_finite_are_refused(bad):
    with raises("beta: expected finite entries, got "):
        ltb.GDBeta(np.array([0, bad]), EYE)
    with raises("Gamma: expected finite entries, got "):
        ltb.GDBeta(ZERO, np.full((2, 2), bad))
    with raises("v: expected finite entries, got "):
        ltb.EffectiveParameters(ZERO, ZERO, bad, EYE, ZERO)
    wide = np.ones((2, 3))
    with raises("W_V: expected finite entries, got "):
        ltb.LTB(wide, wide, wide, np.full((2, 3), bad), wide, wide)


# --- prompts


def test_prompts_that_do_not_fit_are_refused(model):
    with raises("X: expected shape (..., M, 2) with M >= 1, got (4, 3)"):
        model.predict(np.ones((4, 3)), Y, QUERY)
    with raises("X: expected shape (..., M, 2) with M >= 1, got (0, 2)"):
        model.predict(X[:0], Y[:0], QUERY)
    with raises("y: expected shape (4,), got (3,)"):
        model.predict(X, Y[:3], QUERY)
    with raises("x_query: expected shape (2,), got (3,)"):
        model.predict(X, Y, np.ones(3))
    with raises("x_query: expected shape (7, 2), got (2,)"):
        model.predict(np.ones((7, 4, 2)), np.ones((7, 4)), QUERY)
    with raises("E: expected shape (..., M + 1, 3) with M >= 1, got (5, 4)"):
        model.predict_tokens(np.ones((5, 4)))
    with raises("E: expected shape (..., M + 1, 3) with M >= 1, got (1, 3)"):
        model.predict_tokens(TOKENS[:1])


def test_prompts_may_have_no_batch_or_several_batch_axes(model):
    rng = np.random.default_rng(0)
    X, x = rng.normal(size=(3, 2, 4, 2)), rng.normal(size=(3, 2, 2))
    y = rng.normal(size=(3, 2, 4))
    whole = model.predict(X, y, x)
    tokens = np.zeros((3, 2, 5, 3))
    tokens[..., :4, :2], tokens[..., :4, 2], tokens[..., 4, :2] = X, y, x
    np.testing.assert_allclose(model.predict_tokens(tokens), whole, rtol=1e-12)
    for i in np.ndindex(3, 2):
        one = model.predict(X[i], y[i], x[i])
        np.testing.assert_allclose(whole[i], one, rtol=1e-12)


def test_masks_have_two_names(model):
    message = "mask: expected one of 'demos', 'none', got 'causal'"
    with raises(message):
        model.predict(X, Y, QUERY, mask="causal")
    with raises(message):
        model.predict_tokens(TOKENS, mask="causal")


def test_the_weight_of_a_prompt_that_does_not_fit_is_refused():
    with raises("y: expected shape (4,), got (3,)"):
        parts().weight(X, Y[:3])
    with raises("X: expected shape (..., M, 2) with M >= 1, got (4, 3)"):
        parts().weight(np.ones((4, 3)), Y)


# --- risks


def test_risks_of_other_dimensions_or_without_examples_are_refused(model):
    with raises("problem: expected dimension 2, got 3"):
        model.risk(three(), 4)
    with raises("problem: expected dimension 2, got 3"):
        ltb.risk(model, three(), 4)
    with raises("problem: expected dimension 2, got 3"):
        ltb.risk_gradient(model, three(), 4)
    for wrong in (0, -1):
        with raises(f"num_examples: expected a whole number >= 1, got {wrong}"):
            model.risk(problem(), wrong)
        with raises(f"num_examples: expected a whole number >= 1, got {wrong}"):
            ltb.risk_gradient(model, problem(), wrong)


NEEDS_EXAMPLES = {
    "minimal_risk": ltb.minimal_risk,
    "optimal_gd_beta": ltb.optimal_gd_beta,
    "gd_beta_minimizers": ltb.gd_beta_minimizers,
    "gd_beta_excess": lambda task, M: ltb.gd_beta_excess(step(), task, M),
    "excess_terms": lambda task, M: ltb.excess_terms(block(), task, M),
    "optimality_conditions": lambda task, M: ltb.optimality_conditions(
        block(), task, M
    ),
    "approximation_gap": ltb.approximation_gap,
    "gap_upper_bounds": ltb.gap_upper_bounds,
    "small_mean_gap": ltb.small_mean_gap,
    "spurious_minimum": ltb.spurious_minimum,
    "excess_profile": lambda task, M: ltb.excess_profile(task, M, np.zeros(3)),
    "optimal_lsa": lambda task, M: ltb.optimal_lsa(task, M, jax.random.key(0)),
}


@pytest.mark.parametrize("function", NEEDS_EXAMPLES.values(), ids=NEEDS_EXAMPLES)
def test_no_optimum_without_examples_or_anything_to_learn(function):
    with raises("num_examples: expected a whole number >= 1, got 0"):
        function(problem(), 0)
    with raises("problem: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
        function(nothing(), 4)


def test_other_arguments_that_do_not_fit_are_refused(key):
    with raises("problem: expected dimension 2, got 3"):
        ltb.gd_beta_excess(step(), three(), 4)
    with raises("problem: expected dimension 2, got 3"):
        ltb.excess_terms(block(), three(), 4)
    with raises("Gamma: expected shape (2, 2), got (3, 3)"):
        ltb.curvature(problem(), 4, np.eye(3))
    with raises("num_examples: expected a whole number >= 1, got 0"):
        ltb.curvature(problem(), 0, EYE)
    with raises("shift: expected shape (2,), got (3,)"):
        ltb.gd_beta_minimizers(problem(), 4).member(np.ones(3), EYE)
    with raises("change: expected shape (2, 2), got (3, 3)"):
        ltb.gd_beta_minimizers(problem(), 4).member(np.ones(2), np.eye(3))
    with raises("problem: expected dimension 2, got 3"):
        ltb.optimality_conditions(block(), three(), 4)
    with raises("tolerance: expected a value >= 0, got -1"):
        ltb.optimality_conditions(block(), problem(), 4).hold(-1.0)
    with raises("problem: expected dimension 1, got 2"):
        ltb.scalar_gap(problem(), 4)
    with raises("num_starts: expected a positive integer, got 0"):
        ltb.optimal_lsa(problem(), 4, key, num_starts=0)


def test_converters_refuse_widths_that_are_too_small():
    with raises("key_dim: expected at least 2, got 1"):
        ltb.gd_beta_to_ltb(step(), key_dim=1)
    with raises("value_dim: expected a positive integer, got 0"):
        ltb.gd_beta_to_ltb(step(), value_dim=0)
    with raises("hidden_dim: expected a positive integer, got 0"):
        ltb.gd_beta_to_ltb(step(), hidden_dim=0)
    with raises("start: expected finite entries, got NaN"):
        ltb.von_oswald_lsa(np.array([0, np.nan]), 0.5)


# --- what is allowed


@pytest.mark.slow
def test_a_certain_label_has_a_risk_but_no_optimum():
    # tau = 0: the risk of a model is defined, and 0 for the right one
    assert step().risk(nothing(), 4) == 0
    assert block().risk(nothing(), 4) == 0


def test_checks_of_values_do_not_stand_in_the_way_of_tracing():
    @jax.jit
    def risk(noise_var, M):
        return ltb.minimal_risk(LinearPopulation(EYE, ZERO, EYE, noise_var), M)

    np.testing.assert_allclose(
        risk(0.25, 3), ltb.minimal_risk(problem(), 3), rtol=1e-14
    )
    # no error can be raised while values are traced
    assert np.isnan(risk(0.25, 0))
    assert np.isnan(risk(-0.25, 3))


def test_models_are_pytrees_that_transformations_may_fill_with_anything():
    assert jax.tree.structure(step()) == jax.tree.structure(
        jax.tree.map(jnp.ones_like, step())
    )
    nothing = jax.tree.map(lambda a: None, step())
    assert isinstance(nothing, ltb.GDBeta)

    @jax.jit
    def build(scales):
        batch = jax.vmap(lambda s: ltb.GDBeta(s * jnp.ones(2), s * jnp.eye(2)))(scales)
        return batch, jax.vmap(lambda m: m.risk(problem(), 4))(batch)

    batch, risks = build(jnp.ones(3))
    assert batch.Gamma.shape == (3, 2, 2)
    assert risks.shape == (3,)


def test_blocks_with_leading_axes_have_the_dimension_of_one():
    one = ltb.von_oswald_lsa(np.zeros(3), 0.1)
    several = jax.tree.map(lambda W: jnp.stack([W] * 5), one)
    assert one.dim == several.dim == 3
