"""Wrong and borderline inputs that users met.

Each is the right value, NaN as documented, or an error of one line that names the
argument. ``test_bad_values.py`` tries every calculator with generated values.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, layered, linalg, noise, pruning, statistics, training
from icltheory import chain_of_thought as cot
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack, linear_attention
from icltheory.induction import prefix_matching_score
from icltheory.layered import LayeredStack
from icltheory.linalg import low_rank_approximation, svd
from icltheory.models import GPT2
from icltheory.patterns import PatternTask, PatternTransformer
from icltheory.patterns import train as train_patterns
from icltheory.regression import LinearPopulation, predictors, shifts, squared_errors
from icltheory.regression.transfer import task_complexity_bound
from icltheory.training import Curriculum, OptimizerConfig, Ramp, make_optimizer
from tests.raising import raises_one_line as refused

pytestmark = pytest.mark.usefixtures("as_for_a_user")
KEY = jax.random.key(0)
EYE, ONES = np.eye(2), np.ones(2)
INTEGERS = np.array([[3, 1], [1, 2]])
PLANE, TASK, FOUR = (LinearPopulation.isotropic(d) for d in (2, 3, 4))
WIDE = np.diag([2.0, 1.0])[None]
STACK = LinearAttentionStack(WIDE, WIDE, WIDE)
MODEL = LayeredStack.of(STACK)
INPUTS = np.ones((3, 2)), np.ones(2)
RIDGE = predictors.Ridge(0.5)
GPT_2 = GPT2(2, 10, width=8, num_layers=1, num_heads=2)
PATTERNS = PatternTask(4, 2, 1.0)
RULE = make_optimizer(OptimizerConfig("adam", 1e-3), 10)
# LAPACK's decomposition of this matrix, given as it is, does not end.
ENDLESS = np.random.default_rng(0).normal(size=(4, 4))
ENDLESS[0, 0] = np.inf


def scaled(factor):
    return jax.tree.map(lambda W: (W * factor).astype(type(factor)), STACK)


def scored(params=STACK, score=jnp.sum):
    return pruning.Scored(MODEL, params, INPUTS, score)


def step(**changes):
    given = {"curriculum": Curriculum.none(2, 5), "num_points": 5, "batch_size": 4}
    return training.make_step(GPT_2, PLANE, RULE, **given | changes)


def patterns(rate):
    task, model = PatternTask(4, 4, 3.0), PatternTransformer(8)
    start = model.init(task, key=KEY)
    sizes = {"batch_size": 4, "num_examples": 5, "record_every": 2}
    return train_patterns(model, task, start, 4, key=KEY, step_size=rate, **sizes)


def plane(cov=EYE, mean=0 * ONES, task_cov=EYE, noise_var=0.1):
    return LinearPopulation(cov, mean, task_cov, noise_var)


def best_risk(population, num_examples=3):
    return reg.optimum(reg.LTB, population, num_examples).risk


def kl(cov=EYE, prior_cov=EYE):
    return bounds.gaussian_kl(0 * ONES, np.array(cov), 0 * ONES, np.array(prior_cov))


def test_integer_matrices_are_floats_for_the_svd():
    cut = pruning.prune(INTEGERS, pruning.Rank(1))
    np.testing.assert_allclose(cut, [[2.618034, 1.618034], [1.618034, 1]], atol=1e-6)
    np.testing.assert_allclose(low_rank_approximation(INTEGERS, 1), cut, atol=1e-12)


def test_numbers_of_another_kind_are_named():
    with refused("W_V: expected floating weights, got int"):
        pruning.prune_model(MODEL, scaled(1), "0:W_V:0.5")
    with refused("W_V: expected floating weights, got int"):
        pruning.sweep(scored(scaled(1)), 0, "W_V", [0.5])
    with refused("W_V: expected floating weights, got complex"):
        pruning.module_spectra(MODEL, scaled(1j))
    with refused("X: expected real numbers, got complex"):
        RIDGE.predict(np.ones((2, 1)) * 1j, ONES, np.ones(1))
    with refused("input_cov: expected real numbers, got complex"):
        plane(1j * EYE)
    with refused("beta: expected real numbers, got complex"):
        reg.GDBeta(ONES * 1j, EYE)
    with refused("scale: expected numbers, got '0.5'"):
        linear_attention(*3 * [WIDE[0]], *INPUTS, scale="0.5")
    with refused("num_examples: expected a whole number >= 0, got 2.5"):
        reg.optimum(reg.GDBeta, TASK, 2.5)
    with refused("num_examples: expected a whole number >= 0, got 2.5"):
        reg.risk(predictors.Averaging(), TASK, 2.5)
    with refused("active_dims: expected a whole number >= 1, got 2.7"):
        TASK.sample(KEY, 3, 2, active_dims=2.7)
    with refused("dtype: expected a floating dtype, got an array of float64"):
        LinearPopulation.isotropic(2, 0.1, dtype=np.ones(2))
    with refused("limit: expected numbers, got '4'"):
        bounds.ClippedSquaredError("4")
    with refused("level: expected numbers, got '0.9'"):
        statistics.compare([True], [True], level="0.9")
    with refused("dtype: expected a floating dtype, got 'int64'"):
        shifts.Shift("standard", 2, dtype=int)


def test_numbers_out_of_range_are_named():
    with refused("attention: expected weights between 0 and 1, got 7.0"):
        prefix_matching_score(7 * np.ones((4, 4)), np.array([0, 1, 0, 1]))
    with refused("cov: expected a symmetric matrix, got"):
        kl(cov=[[1, 0.9], [0, 1]])
    message = "expected a positive semi-definite matrix, got smallest eigenvalue -1"
    with refused(f"prior_cov: {message}"):
        kl(prior_cov=[[1, 2], [2, 1]])
    with refused("active_dims: expected 1 <= active_dims <= 3, got -1"):
        TASK.sample(KEY, 3, 2, active_dims=-1)
    with refused("curriculum: expected dims that end at most at 2, got 5"):
        step(curriculum=Curriculum(Ramp(5, 5), Ramp(4, 4)))
    with refused("active_points: expected 1 <= active_points <= 3, got 9"):
        training.in_context_loss(jnp.ones((2, 3)), jnp.ones((2, 3)), 9)
    with refused("losses: expected finite losses (a smaller step_size)"):
        patterns(1e300)
    with refused("errors: expected two rows or more, got 1"):
        statistics.curve_interval(jnp.ones((1, 3)), key=KEY)
    with refused("seed: expected integers of 32 bits, got 1099511627776"):
        training.init_state(GPT_2, PLANE, RULE, 2**40, num_points=5)


def test_values_of_another_type_or_shape_are_named():
    errors = functools.partial(squared_errors, key=KEY)
    with refused("what the predictor returns: expected shape (), got (4,)"):
        errors(lambda X, y, x: y, TASK, 4)
    with refused("num_examples: expected one unless prompts are given, got None"):
        errors(RIDGE, lambda key, points, batch: None)
    with refused("key: expected one key from jax.random.key, got 0"):
        errors(RIDGE, TASK, 4, key=0)
    with refused("source: expected a source, a sampler or prompts, got int"):
        errors(RIDGE, 3, 4)
    message = "expected a predictor or a function of (X, y, x_query), got <"
    with refused(f"predictor: {message}"):
        reg.risk(object(), TASK, 3)
    with refused("population: expected a LinearPopulation, got Shift"):
        best_risk(shifts.Shift("skewed", 3))
    with refused("population: expected a LinearPopulation, got LTB: the order is"):
        reg.optimum(TASK, reg.LTB, 20)
    with refused("noise_var: expected numbers, got '0.25'"):
        LinearPopulation.isotropic(3, "0.25")
    with refused("optimizer: expected an OptimizerConfig, such as of 'adam', got"):
        training.fit(GPT_2, PLANE, key=KEY, optimizer="adam")
    with refused("scale: expected shape (), got (2,)"):
        linear_attention(*3 * [WIDE[0]], *INPUTS, scale=np.array([1.0, 9]))
    with refused("stack: expected a LinearAttentionStack, got an array of float"):
        bounds.noisy_steps((WIDE, WIDE, WIDE), jnp.ones((4, 2)), 2)
    with refused("loss: expected one of None, 'squared'"):
        step(loss="mse")
    with refused("score: expected a function that returns numbers, got None"):
        pruning.sweep(scored(score=lambda out: None), 0, "W_V", [0.5])
    with refused("rates: expected a sequence, got 0.5"):
        pruning.sweep(scored(), 0, "W_V", 0.5)
    with refused("modules: expected a sequence, got 'attn'"):
        pruning.sweep_grid(scored(), [0], "attn", [0.5])


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: TASK.sample(key, 4, 2),
        lambda key: reg.PromptPool(TASK, 3, KEY).sample(key, 4, 2),
        lambda key: shifts.Shift("skewed", 3)(key, 4, 2),
        lambda key: PATTERNS.sample(key, 4, 2),
        lambda key: PATTERNS.out_of_domain(1.0, key=key),
        lambda key: PatternTransformer(4).init(PATTERNS, key=key),
        lambda key: cot.PermutationTasks(cot.Alphabet.standard(2, 2), 0.5).draw(key, 4),
        lambda key: cot.ReasoningTask(cot.slide_transitions()).sample(key, 4, 3),
        lambda key: statistics.curve_interval(jnp.ones((4, 2)), key=key),
    ],
)
def test_what_is_no_single_typed_key_is_refused(draw):
    draw(KEY)
    for key in (0, jax.random.PRNGKey(0), jax.random.split(KEY), (KEY,), None):
        with refused("key: expected one key from jax.random.key, got "):
            draw(key)


@pytest.mark.parametrize(
    "run",
    [
        lambda wrong: best_risk(TASK, -3 * wrong),
        lambda wrong: best_risk(plane(noise_var=-5 * wrong)),
        lambda wrong: best_risk(plane(EYE + 3 * wrong * (1 - EYE))),
        lambda wrong: predictors.DiscreteMMSE(jnp.ones((3, 1)), -wrong).predict(
            jnp.ones((2, 1)), ONES, jnp.ones(1)
        ),
        lambda wrong: predictors.Bayes(plane(task_cov=-wrong * EYE)).predict(
            jnp.ones((2, 2)), ONES, ONES
        ),
        lambda wrong: task_complexity_bound(plane(mean=wrong * ONES), 3, 8, 0.1).total,
        lambda wrong: pruning.prune_rows(jnp.ones((2, 2)), fraction=2 * wrong),
    ],
)
def test_traced_and_out_of_range_is_nan(run):
    assert np.all(np.isnan(jax.jit(run)(jnp.array(1.0))))
    with pytest.raises(ValueError, match=r"expected"):
        run(np.float64(1.0))


def least_squares(W):
    return predictors.LeastSquares().predict(W, jnp.ones(4), jnp.ones(4))


@pytest.mark.parametrize(
    "run",
    [
        lambda W: svd(W).s,
        lambda W: low_rank_approximation(W, 1),
        least_squares,
        jax.grad(least_squares),
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
        return bounds.isotropic_bound(bounds.noisy_steps(stack, H, 3), 1.0).value

    with refused("W_V: expected finite entries, got "):
        bound(stack)
    with refused("W_V: expected finite entries, got inf"):
        noise.support_dims(stack)
    assert np.isnan(jax.jit(bound)(stack))


def test_a_sampler_returns_prompts_with_a_query_per_prefix():
    def prompts(key, num_points, batch_size, extra=-1):
        return TASK.sample(key, num_points + extra, batch_size)

    sizes = {"num_examples": 5, "num_prompts": 4, "prefixes": True, "key": KEY}
    errors = functools.partial(squared_errors, predictors.NearestNeighbors(), **sizes)
    assert errors(lambda *args: prompts(*args).prefixes()).shape == (4, 6)
    kind = "source: expected a sampler that returns a PrefixPrompt, got "
    with refused(f"{kind}Prompt: call its prefixes()"):
        errors(prompts)
    with refused(f"{kind}NoneType"):
        errors(lambda *args: None)
    with refused("y of the sampler's prompts: expected shape (4, 6), got (4, 7)"):
        errors(lambda *args: prompts(*args, extra=0).prefixes())


SPARSE = reg.SparseLinearRegression(3, 2)


@pytest.mark.parametrize("task", [TASK, pytest.param(SPARSE, marks=pytest.mark.slow)])
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
    assert all(np.isnan(loss(y, 0 * y, wrong)) for wrong in (-1, 0, 9))
    assert loss(y, 0 * y, 2) == training.in_context_loss(y, 0 * y, 2)
    cut = jax.jit(lambda rank: svd(EYE).truncate(rank))
    assert np.all(np.isnan(cut(9)))
    np.testing.assert_allclose(cut(2), EYE, atol=1e-12)


@dataclasses.dataclass(frozen=True)
class Doubled:
    """A layered model whose layer names its matrices twice."""

    num_layers: int = 1

    def __getattr__(self, name):
        return getattr(MODEL, name)

    def matrices(self, layer):
        """The matrices of the layer, each of them twice."""
        return 2 * MODEL.matrices(layer)


@pytest.mark.parametrize(
    "run",
    [
        lambda model: pruning.module_spectra(model, STACK),
        lambda model: pruning.prune_model(model, STACK, "0:W_V:0.5"),
        lambda model: layered.check_model(model, STACK, (INPUTS[0], np.ones(3))),
    ],
)
def test_a_model_of_ones_own_is_told_what_it_lacks(run):
    with refused("model: expected a layered model, got int without block, embed, "):
        run(3)
    with refused("model: expected distinct names of matrices, got ['W_V', "):
        run(Doubled())


def test_negative_zero_is_zero():
    found = [predictors.Ridge(zero).predict(EYE, ONES, ONES) for zero in (-0.0, 0.0)]
    assert found[0] == found[1]
    assert float(best_risk(plane(noise_var=-0.0))) == pytest.approx(1)


def test_lists_are_arrays():
    given = [[1.0, 0.0], [0.0, 2.0]], [1.0, 4.0], [1.0, 1.0]
    assert RIDGE.predict(*given) == RIDGE.predict(*map(np.array, given))
    assert reg.GDBeta([1, 2], [[1.0, 0.0], [0.0, 1.0]]).beta.tolist() == [1.0, 2.0]
    assert LinearPopulation([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], EYE, 0.1).dim == 2


def test_condition_numbers_beyond_the_precision_are_infinite():
    W = np.diag([1.0, 1e-10])
    assert np.isinf(linalg.condition_number(W.astype(np.float32)))
    np.testing.assert_allclose(linalg.condition_number(W), 1e10)


def test_records_show_themselves_in_a_line_and_compare():
    H = np.arange(24.0).reshape(12, 2)
    spectra = functools.partial(noise.noise_spectrum, STACK, shots=2)
    shown = repr(spectra(H))
    assert "\n" not in shown
    assert len(shown) < 300
    assert "eigenvalues=float64[1, 12]" in shown
    assert "rank=[" in shown
    assert spectra(H) == spectra(H) != spectra(H[::-1] + 1)
    assert TASK == LinearPopulation.isotropic(3) != LinearPopulation.isotropic(4)
    assert len(repr(LinearPopulation.isotropic(60))) < 300
    assert TASK != 3
