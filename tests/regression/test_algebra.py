"""One algebra: predictors are values, and a risk or an optimum is asked in one way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import (
    LinearPopulation,
    LinearStep,
    NoClosedForm,
    SparseLinearRegression,
    Steps,
    estimate_risk,
    optimum,
    predictors,
    risk,
    shifts,
    squared_errors,
)
from icltheory.regression.position import label_weights
from tests.regression.calls import answers

KEY = jax.random.key(0)
MEAN = LinearPopulation.isotropic(5, 0.25, mean=np.full(5, 1.3))
SKEWED = LinearPopulation(
    jnp.diag(jnp.array([1.5, 1.0, 0.7, 0.4])), jnp.zeros(4), jnp.eye(4), 0.25
)


def test_the_best_linear_step_of_the_four_papers_is_asked_in_one_way():
    best = optimum(LinearStep, SKEWED, 6)
    expected = [0.41811847, 0.55299539, 0.68571429, 0.90225564]
    np.testing.assert_allclose(jnp.diag(best.model.Gamma), expected, rtol=1e-7)
    np.testing.assert_allclose(best.risk, 1.8758771555, rtol=1e-9)
    np.testing.assert_allclose(risk(best.model, SKEWED, 6), best.risk, rtol=1e-12)
    # The prior's mean is 0.
    others = (optimum(reg.GDBeta, SKEWED, 6).risk, optimum(reg.LTB, SKEWED, 6).risk)
    np.testing.assert_allclose(others, best.risk, rtol=1e-12)


@pytest.mark.parametrize("num_examples", [0, 1, 7])
@pytest.mark.parametrize("name", ["step", "gd", "ltb", "lsa"])
def test_exact_risks_agree_with_simulated_errors(name, num_examples):
    step = LinearStep(0.4 * jnp.eye(5))
    start = reg.GDBeta(jnp.ones(5), 0.3 * jnp.eye(5) + 0.05)
    block = start.to_ltb()
    attention = reg.LSA(block.W_K, block.W_Q, block.W_P, block.W_V)
    model = {"step": step, "gd": start, "ltb": block, "lsa": attention}[name]
    exact = float(risk(model, MEAN, num_examples))
    errors = squared_errors(model, MEAN, num_examples, key=KEY, num_prompts=4000)
    z = (errors.mean() - exact) / (errors.std() / np.sqrt(len(errors)))
    assert abs(z) < 4
    found = estimate_risk(model, MEAN, num_examples)
    assert (float(found.mean), float(found.standard_error)) == (exact, 0)
    assert found.how == "exact"


@pytest.mark.parametrize(
    "rule",
    [
        predictors.Ridge(0.5),
        predictors.Bayes(MEAN),
        predictors.Bayes(MEAN.with_(task_mean=np.zeros(5), noise_var=1.0)),
        predictors.Steps([0.3, 0.4]),
        predictors.Newton(3),
    ],
    ids=["ridge", "bayes", "wrong prior", "steps", "newton"],
)
def test_a_risk_given_the_inputs_has_the_mean_of_squared_errors(rule):
    given = estimate_risk(rule, MEAN, 4, key=KEY, num_prompts=2000)
    plain = squared_errors(
        rule, MEAN, 4, key=jax.random.fold_in(KEY, 1), num_prompts=4000
    )
    spread = float(plain.std() / np.sqrt(len(plain)))
    assert given.how == "exact given the inputs"
    assert float(given.standard_error) < spread
    total = np.hypot(float(given.standard_error), spread)
    assert abs(float(given.mean) - float(plain.mean())) < 4 * total
    curve = estimate_risk(rule, MEAN, [0, 4], key=KEY, num_prompts=500)
    assert curve.mean.shape == (2,)


def test_many_examples_are_drawn_as_a_triangular_factor():
    rule, other = predictors.Bayes(MEAN), jax.random.fold_in(KEY, 1)
    factor = estimate_risk(rule, MEAN, 12, key=KEY)
    (mean,), (error,) = (
        getattr(estimate_risk(rule, MEAN, [12], key=other), name)  # of all 12 rows
        for name in ("mean", "standard_error")
    )
    total = np.hypot(float(factor.standard_error), float(error))
    assert abs(float(factor.mean) - float(mean)) < 4 * total < 0.05


@pytest.mark.slow
def test_prefixes_of_any_function_are_its_answers_to_each_prefix():
    prompt = MEAN.sample(KEY, 6, 1)
    X, y, x = prompt.X[0], prompt.y[0], prompt.x_query[0]
    for rule in (
        predictors.Lasso(0.1),
        predictors.NearestNeighbors(2),
        LinearStep(0.5 * jnp.eye(5)),
    ):
        path = rule.predict_prefixes(X, y, jnp.tile(x, (6, 1)))
        each = [float(rule.predict(X[:k], y[:k], x)) for k in range(6)]
        np.testing.assert_allclose(path, each, rtol=1e-9, atol=1e-9)
    found = estimate_risk(lambda X, y, x: 1.0 * len(y), MEAN, range(3), key=KEY)
    assert (found.mean.shape, found.how) == ((3,), "simulated")


def test_any_source_and_any_length_can_be_asked_for():
    for source in (shifts.Shift("skewed", 5), SparseLinearRegression(5)):
        curve = estimate_risk(
            predictors.LeastSquares(), source, range(11), key=KEY, num_prompts=64
        )
        assert curve.mean.shape == (11,)
        one = estimate_risk(
            predictors.LeastSquares(), source, 10, key=KEY, num_prompts=64
        )
        assert float(one.mean) < 1e-9
        assert float(curve.mean[-1]) < 1e-9


def test_errors_are_squared_differences_to_the_labels_of_the_queries():
    whole = MEAN.sample(KEY, 6, 8)
    prompt, rule = whole.prefixes(), predictors.Averaging()
    expected = (answers(rule, prompt.X, prompt.y) - prompt.y_query) ** 2
    for source in (whole, prompt):
        found = squared_errors(rule, source, prefixes=True)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        for asked in (None, 6, 2):  # also fewer examples than were drawn
            last = squared_errors(rule, source, asked)
            at = -1 if asked is None else asked
            np.testing.assert_allclose(last, expected[:, at], rtol=1e-10)
        curve = estimate_risk(rule, source, [1, 4])
        means = expected.mean(axis=0)[np.array([1, 4])]
        np.testing.assert_allclose(curve.mean, means, rtol=1e-10)
        for asked in (7, range(8)):
            with pytest.raises(
                ValueError, match="^num_examples: expected at most 6, as"
            ):
                estimate_risk(rule, source, asked)
    drawn = squared_errors(rule, MEAN, 6, key=KEY, num_prompts=8, prefixes=True)
    np.testing.assert_allclose(drawn, expected, rtol=1e-10)
    shifted = shifts.Shift("random_quadrants", 5)(KEY, 7, 4)
    asked = shifted.X, shifted.y, shifted.X_query
    expected = (answers(rule, *asked) - shifted.y_query) ** 2
    found = squared_errors(rule, shifted, prefixes=True)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    for missing in ("key", "num_examples"):
        given = {"key": KEY, "num_examples": 3} | {missing: None}
        with pytest.raises(ValueError, match=f"^{missing}: expected one unless"):
            squared_errors(rule, MEAN, **given)


def test_errors_come_in_batches():
    rule = predictors.NearestNeighbors(2)
    sizes = {"key": KEY, "num_prompts": 12, "prefixes": True}
    found = squared_errors(rule, MEAN, 3, batch_size=4, **sizes)
    parts = [
        squared_errors(rule, MEAN, 3, key=key, num_prompts=4, prefixes=True)
        for key in jax.random.split(KEY, 3)
    ]
    np.testing.assert_array_equal(found, jnp.concatenate(parts))
    average = estimate_risk(rule, MEAN, [0, 3], key=KEY, num_prompts=12, batch_size=4)
    np.testing.assert_allclose(average.mean, found[:, [0, 3]].mean(axis=0), rtol=1e-12)
    with pytest.raises(ValueError, match="^batch_size: expected a divisor of 12, got"):
        squared_errors(rule, MEAN, 3, batch_size=5, **sizes)


def test_a_sampler_of_prefix_prompts_is_a_source():
    def sampler(key, num_points, num_prompts):
        return MEAN.sample(key, num_points - 1, num_prompts).prefixes()

    rule, sizes = predictors.Averaging(), {"key": KEY, "num_prompts": 6}
    for prefixes in (False, True):
        found = squared_errors(rule, sampler, 4, prefixes=prefixes, **sizes)
        own = squared_errors(rule, MEAN, 4, prefixes=prefixes, **sizes)
        np.testing.assert_allclose(found, own, rtol=1e-12)
    message = r"returns a PrefixPrompt, got Prompt: call its prefixes\(\)"
    with pytest.raises(ValueError, match=message):
        squared_errors(rule, lambda key, N, S: MEAN.sample(key, N, S), 4, **sizes)


def test_one_gradient_step_is_exact_for_every_population():
    best = optimum(Steps(1), SKEWED, 6)
    np.testing.assert_allclose(risk(best.model, SKEWED, 6), best.risk, rtol=1e-12)
    slope = jax.grad(risk)(best.model, SKEWED, 6).step_sizes
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    assert optimum(LinearStep, SKEWED, 6).risk < best.risk


def test_several_steps_are_exact_in_any_units():
    one = optimum(Steps(3), LinearPopulation.isotropic(5, 0.25), 20)
    other = LinearPopulation(4 * jnp.eye(5), jnp.zeros(5), 0.5 * jnp.eye(5), 0.5)
    scaled = optimum(Steps(3), other, 20)
    np.testing.assert_allclose(scaled.risk, 2 * one.risk, rtol=1e-12)
    sizes = one.model.step_sizes
    np.testing.assert_allclose(4 * scaled.model.step_sizes, sizes, rtol=1e-10)


def test_inputs_known_by_their_moments_have_the_risks_of_one_step_alone():
    signs = MEAN.with_(fourth_moment=1.0)
    assert optimum(LinearStep, signs, 5).risk < optimum(LinearStep, MEAN, 5).risk
    assert signs.with_(noise_var=1.0).fourth_moment == 1
    for call in (
        lambda: risk(predictors.LeastSquares(), signs, 20),
        lambda: risk(reg.GDBeta(jnp.ones(5), jnp.eye(5)), signs, 20),
        lambda: optimum(reg.LTB, signs, 20),
        lambda: optimum(Steps(2), signs, 20, key=KEY),
    ):
        with pytest.raises(NoClosedForm, match="^population: expected Gaussian inputs"):
            call()
    for call in (
        lambda: signs.sample(KEY, 3, 2),
        lambda: estimate_risk(predictors.Bayes(signs), signs, 3, key=KEY),
        lambda: estimate_risk(predictors.Ridge(1.0), signs, 3, key=KEY),
    ):
        with pytest.raises(ValueError, match="^fourth_moment: expected None, Gaussian"):
            call()


def test_what_has_no_closed_form_says_what_has():
    with pytest.raises(NoClosedForm, match=r"^predictor: [^\n]*use estimate_risk\("):
        risk(predictors.Bayes(MEAN), MEAN, 3)
    # Least squares has one for isotropic inputs or as many examples as dimensions.
    assert float(risk(predictors.LeastSquares(), MEAN, 20)) > 0.25
    sampled = estimate_risk(predictors.LeastSquares(), SKEWED, 2, key=KEY)
    assert float(sampled.standard_error) > 0


def test_a_risk_is_differentiable_and_can_be_batched_in_everything():
    step = LinearStep(0.7 * jnp.eye(5))
    slope = jax.grad(risk)(step, MEAN, 20)
    assert isinstance(slope, LinearStep)
    best = optimum(LinearStep, MEAN, 20).model
    np.testing.assert_allclose(jax.grad(risk)(best, MEAN, 20).Gamma, 0, atol=1e-9)
    noise = jnp.linspace(0, 1, 3)
    batch = jax.vmap(lambda s: risk(step, MEAN.with_(noise_var=s), 20))(noise)
    each = [float(risk(step, MEAN.with_(noise_var=s), 20)) for s in noise]
    np.testing.assert_allclose(batch, each, rtol=1e-12)
    lengths = jax.vmap(lambda k: risk(step, MEAN, k))(jnp.arange(4))
    assert lengths.shape == (4,)
    assert np.isnan(jax.jit(lambda k: risk(step, MEAN, k))(-1))


@pytest.mark.slow
def test_optima_of_families_are_ordered():
    found = {
        family.__name__: optimum(family, MEAN, 10, key=KEY)
        for family in (LinearStep, reg.LSA, reg.GDBeta, reg.LTB)
    }
    least = [float(one.risk) for one in found.values()]
    assert least == sorted(least, reverse=True)
    for one in found.values():
        np.testing.assert_allclose(risk(one.model, MEAN, 10), one.risk, rtol=1e-9)
    with pytest.raises(ValueError, match="family: expected LinearStep, GDBeta, LTB"):
        optimum(predictors.Ridge, MEAN, 3)
    with pytest.raises(ValueError, match="step_sizes: expected numbers, got a family"):
        Steps(2).predict(jnp.ones((2, 5)), jnp.ones(2), jnp.ones(5))


def test_an_error_of_a_users_function_is_its_own_with_a_note():
    for wrong, kind in ((lambda X, y, x: X @ y @ x, TypeError), (_of_float, TypeError)):
        with pytest.raises(kind) as caught:
            estimate_risk(wrong, MEAN, 3, key=KEY)
        (note,) = (n for n in caught.value.__notes__ if n.startswith("in your "))
        assert "predictor, called with X (3, 5), y (3,), x_query (5,)" in note


def test_a_source_whose_prompts_are_a_tuple_is_refused():
    class Pairs:
        dim = 5

        def sample(self, *sizes):
            return MEAN.sample(*sizes).points()

    with pytest.raises(
        ValueError, match="^source.sample: expected a Prompt, got a tup"
    ):
        estimate_risk(predictors.Zero(), Pairs(), 3, key=KEY, num_prompts=4)


def _of_float(X, y, x):
    return float(y[0])


def test_sources_without_exact_theory_are_told_what_they_have(as_for_a_user):
    sparse = SparseLinearRegression(5)
    for asked in (
        lambda: risk(predictors.Zero(), shifts.Shift("skewed", 5), 3),
        lambda: optimum(LinearStep, sparse, 3),
        lambda: predictors.Bayes(sparse),
    ):
        with pytest.raises(ValueError, match="population: expected a LinearPopulation"):
            asked()
    for wrong, hint in ((predictors.LeastSquares, "make one"), (sparse, "function")):
        with pytest.raises(ValueError, match=f"^predictor: expected .*{hint}"):
            risk(wrong, MEAN, 3)
    with pytest.raises(ValueError, match="num_examples: expected one number"):
        risk(predictors.Zero(), MEAN, range(3))


def test_a_population_of_ones_own_covariance_has_standard_tasks():
    H = jnp.diag(jnp.array([2.0, 1.0]))
    whole = LinearPopulation(H, jnp.zeros(2), jnp.eye(2), 0.1)
    assert LinearPopulation(H, noise_var=0.1) == whole
    assert whole.with_(noise_var=0.0) == LinearPopulation(H)
    with pytest.raises(ValueError, match="with_: expected one of 'input_cov'"):
        whole.with_(H=H)
    lengths = estimate_risk(predictors.Zero(), whole, jnp.arange(3))
    assert lengths.mean.shape == (3,)


@pytest.mark.parametrize("dim", [1, 2])
def test_least_squares_without_noise_learns_one_dimension_an_example(dim):
    task = LinearPopulation.isotropic(dim, noise_var=0.0)
    found = [float(risk(predictors.LeastSquares(), task, k)) for k in range(dim + 3)]
    np.testing.assert_allclose(found, [max(dim - k, 0) for k in range(dim + 3)])


def test_risks_of_one_example():
    """E |H M x x' - w|^2 of one example: d + 1 + 1 from x x' x x', and the noise."""
    task = LinearPopulation.isotropic(3, 0.25)
    expected = 3 * (3 + 1 + 0.25) + 0.25
    assert float(risk(predictors.Averaging(), task, 1)) == pytest.approx(expected)
    found = risk(predictors.LinearStep(jnp.eye(3)), task, 1)
    assert float(found) == pytest.approx(expected)


def test_predictions_of_one_example():
    x, y, query = jnp.array([[1.0, -2.0]]), jnp.array([3.0]), jnp.array([0.5, 2.0])
    weights = label_weights(jnp.array([0.3]), x, query)
    np.testing.assert_allclose(weights, [0.3 * -3.5], rtol=1e-12)
    found = LinearStep(0.3 * jnp.eye(2)).predict(x, y, query)
    np.testing.assert_allclose(found, 3 * 0.3 * -3.5, rtol=1e-12)
    # Half of the square of 3 - 2 w, and 4 |w|: the slope 4 w - 6 + 4 is 0 at 1/2.
    fit = predictors.Lasso(4.0).fit(jnp.array([[2.0]]), y)
    np.testing.assert_allclose(fit.w, [0.5], rtol=1e-12)


def test_constants_of_convergence_in_one_dimension():
    """With a covariance of 1: K_1 = 2 - s^2 g, and u_min^2 = s^2 K_1 / 2, g = 3."""
    start = reg.AttentionWeights(0.5, 0.5 * jnp.eye(1))
    found = reg.flow_bounds(start, LinearPopulation.isotropic(1), 1, jnp.zeros(1))
    K_1 = 2 - 0.25 * 3
    np.testing.assert_allclose(found.scale_floor**2, 0.25 * K_1 / 2, rtol=1e-12)
    np.testing.assert_allclose(found.rate, 2 * 0.25 * K_1 * 3, rtol=1e-12)
