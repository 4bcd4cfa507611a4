"""Inputs that once gave a wrong number without a word, and errors nobody could read.

``test_bad_values.py`` tries every calculator with generated values; these are the cases
that users met.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, linalg, pruning, statistics, training
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack, linear_attention
from icltheory.chain_of_thought import (
    Alphabet,
    PermutationTasks,
    ReasoningTask,
    slide_transitions,
)
from icltheory.induction import prefix_matching_score
from icltheory.layered import LayeredStack
from icltheory.models import GPT2
from icltheory.noise import noise_spectrum
from icltheory.patterns import PatternTask, PatternTransformer
from icltheory.patterns import train as train_patterns
from icltheory.regression import (
    LinearPopulation,
    PromptPool,
    predictors,
    risk,
    shifts,
    squared_errors,
)
from icltheory.training import Curriculum, OptimizerConfig, Ramp, make_optimizer

pytestmark = pytest.mark.usefixtures("as_for_a_user")
INTEGERS = np.array([[3, 1], [1, 2]])
TASK = LinearPopulation.isotropic(3)
WIDE = jnp.stack([jnp.diag(jnp.array([2.0, 1.0]))])
STACK = LinearAttentionStack(WIDE, WIDE, WIDE)
MODEL = LayeredStack.of(STACK)
INPUTS = jnp.ones((3, 2)), jnp.ones(2)
KEY = jax.random.key(0)
RIDGE = predictors.Ridge(0.5)
NOISE = functools.partial(noise_spectrum, STACK, shots=2)
JAX = "\n-+\nFor simplicity, JAX has removed"  # what it adds while tracing
GPT_2 = GPT2(2, 10, width=8, num_layers=1, num_heads=2)
PATTERNS = PatternTask(4, 2, 1.0)
RULE = make_optimizer(OptimizerConfig("adam", 1e-3), 10)


def test_integer_matrices_are_floats_for_the_svd():
    expected = [[2.618034, 1.618034], [1.618034, 1.0]]
    for cut in (
        pruning.prune(INTEGERS, pruning.Rank(1)),
        linalg.low_rank_approximation(INTEGERS, 1),
    ):
        np.testing.assert_allclose(cut, expected, atol=1e-6)
    stack = jax.tree.map(lambda W: W.astype(int), STACK)
    with pytest.raises(ValueError, match="W_V: expected floating weights, got int"):
        pruning.prune_model(MODEL, stack, "0:W_V:0.5")
    with pytest.raises(ValueError, match="W_V: expected floating weights, got int"):
        pruning.sweep(scored(params=stack), 0, "W_V", [0.5])


def scored(params=STACK, score=jnp.sum):
    return pruning.Scored(MODEL, params, INPUTS, score)


def grid(**changes):
    given = {"layers": [0], "modules": ["W_V"], "rates": [0.5]} | changes
    return pruning.sweep_grid(scored(), **given)


def step(**changes):
    given = {
        "curriculum": Curriculum.none(2, 5),
        "num_points": 5,
        "batch_size": 4,
    } | changes
    return training.make_step(GPT_2, LinearPopulation.isotropic(2), RULE, **given)


def patterns(rate):
    task, model = PatternTask(4, 4, 3.0), PatternTransformer(8)
    start = model.init(task, key=KEY)
    sizes = {"batch_size": 4, "num_examples": 5, "record_every": 2}
    return train_patterns(model, task, start, 4, key=KEY, step_size=rate, **sizes)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: bounds.noisy_steps(STACK, jnp.ones((4, 2)) * 1j, 2),
            "H: expected real numbers, got complex",
        ),
        (
            lambda: RIDGE.predict(np.ones((2, 1)) * 1j, np.ones(2), np.ones(1)),
            "X: expected real numbers, got complex",
        ),
        (
            lambda: pruning.module_spectra(
                MODEL, jax.tree.map(lambda W: W * 1j, STACK)
            ),
            "W_V: expected floating weights, got complex",
        ),
        (
            lambda: LinearPopulation(1j * jnp.eye(2), jnp.zeros(2), jnp.eye(2), 0.1),
            "input_cov: expected real numbers, got complex",
        ),
        (
            lambda: reg.GDBeta(jnp.ones(2) * 1j, jnp.eye(2)),
            "beta: expected real numbers, got complex",
        ),
        (
            lambda: squared_errors(lambda X, y, x: y, TASK, 4, key=KEY),
            "what the predictor returns: expected shape (), got (4,)",
        ),
        (
            lambda: squared_errors(RIDGE, lambda key, points, batch: None, key=KEY),
            "num_examples: expected one unless prompts are given, got None",
        ),
        (
            lambda: linear_attention(*[WIDE[0]] * 3, *INPUTS, scale="0.5"),
            "scale: expected numbers, got '0.5'",
        ),
        (
            lambda: linear_attention(*[WIDE[0]] * 3, *INPUTS, scale=np.array([1.0, 9])),
            "scale: expected shape (), got (2,)",
        ),
        (
            lambda: reg.optimum(reg.GDBeta, TASK, 2.5),
            "num_examples: expected a whole number >= 0, got 2.5",
        ),
        (
            lambda: risk(predictors.Averaging(), TASK, 2.5),
            "num_examples: expected a whole number >= 0, got 2.5",
        ),
        (
            lambda: prefix_matching_score(7 * np.ones((4, 4)), np.array([0, 1, 0, 1])),
            "attention: expected weights between 0 and 1, got 7.0",
        ),
        (
            lambda: bounds.gaussian_kl(
                np.zeros(2), np.array([[1, 0.9], [0, 1]]), np.zeros(2), np.eye(2)
            ),
            "cov: expected a symmetric matrix, got",
        ),
        (
            lambda: bounds.gaussian_kl(
                np.zeros(2), np.eye(2), np.zeros(2), np.array([[1, 2], [2, 1]])
            ),
            "prior_cov: expected a positive semi-definite matrix, "
            "got smallest eigenvalue -1",
        ),
        (
            lambda: TASK.sample(KEY, 3, 2, active_dims=-1),
            "active_dims: expected 1 <= active_dims <= 3, got -1",
        ),
        (
            lambda: TASK.sample(KEY, 3, 2, active_dims=2.7),
            "active_dims: expected a whole number >= 1, got 2.7",
        ),
        (
            lambda: step(curriculum=Curriculum(Ramp(5, 5), Ramp(4, 4))),
            "curriculum: expected dims that end at most at 2, got 5",
        ),
        (
            lambda: training.in_context_loss(jnp.ones((2, 3)), jnp.ones((2, 3)), 9),
            "active_points: expected 1 <= active_points <= 3, got 9",
        ),
        (lambda: step(loss="mse"), "loss: expected one of None, 'squared'"),
        (
            lambda: patterns(1e300),
            "losses: expected finite losses (a smaller step_size)",
        ),
        (
            lambda: statistics.curve_interval(jnp.ones((1, 3)), KEY),
            "errors: expected two rows or more, got 1",
        ),
        (
            lambda: pruning.sweep(scored(score=lambda out: None), 0, "W_V", [0.5]),
            "score: expected a function that returns numbers, got None",
        ),
        (
            lambda: pruning.sweep(scored(), 0, "W_V", 0.5),
            "rates: expected a sequence, got 0.5",
        ),
        (lambda: grid(modules="attn"), "modules: expected a sequence, got 'attn'"),
        (
            lambda: squared_errors(RIDGE, TASK, 4, key=0),
            "key: expected one key from jax.random.key, got 0",
        ),
        (
            lambda: bounds.noisy_steps((WIDE, WIDE, WIDE), jnp.ones((4, 2)), 2),
            "stack: expected LinearAttentionStack, got an array of float",
        ),
        (
            lambda: reg.risk(object(), TASK, 3),
            "predictor: expected a predictor or a function of (X, y, x_query), got <",
        ),
        (
            lambda: squared_errors(RIDGE, 3, 4, key=KEY),
            "source: expected a source, a sampler or prompts, got int",
        ),
        (
            lambda: reg.optimum(reg.LTB, shifts.Shift("skewed", 3), 3).risk,
            "population: expected a LinearPopulation, got Shift",
        ),
        (
            lambda: training.init_state(
                GPT_2, LinearPopulation.isotropic(2), RULE, 2**40, num_points=5
            ),
            "seed: expected integers of 32 bits, got 1099511627776",
        ),
    ],
)
def test_it_is_an_error_of_one_line(run, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}[^\n]*({JAX}|$)"):
        run()


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: TASK.sample(key, 4, 2),
        lambda key: PromptPool(TASK, 3, KEY).sample(key, 4, 2),
        lambda key: shifts.Shift("skewed", 3)(key, 4, 2),
        lambda key: PATTERNS.sample(key, 4, 2),
        lambda key: PATTERNS.out_of_domain(1.0, key=key),
        lambda key: PatternTransformer(4).init(PATTERNS, key=key),
        lambda key: PermutationTasks(Alphabet.standard(2, 2), 0.5).draw(key, 4),
        lambda key: ReasoningTask(slide_transitions()).sample(key, 4, 3),
        lambda key: statistics.curve_interval(jnp.ones((4, 2)), key),
    ],
)
def test_what_is_no_single_typed_key_is_refused(draw):
    draw(KEY)
    message = "^key: expected one key from jax.random.key, got [^\n]*$"
    for key in (0, jax.random.PRNGKey(0), jax.random.split(KEY), (KEY,), None):
        with pytest.raises(ValueError, match=message):
            draw(key)


@pytest.mark.parametrize(
    "run",
    [
        lambda wrong: reg.optimum(reg.LTB, TASK, -3 * wrong).risk,
        lambda wrong: (
            reg.optimum(
                reg.LTB,
                LinearPopulation(jnp.eye(2), jnp.zeros(2), jnp.eye(2), -5 * wrong),
                3,
            ).risk
        ),
        lambda wrong: (
            reg.optimum(
                reg.LTB,
                LinearPopulation(
                    jnp.eye(2) + 3 * wrong * (1 - jnp.eye(2)),
                    jnp.zeros(2),
                    jnp.eye(2),
                    0.1,
                ),
                3,
            ).risk
        ),
        lambda wrong: bounds.xu_raginsky(1.0, 10, -wrong),
        lambda wrong: bounds.xu_raginsky(1.0, -wrong, 1.0),
        lambda wrong: (
            bounds.isotropic_bound(
                bounds.noisy_steps(STACK, jnp.arange(8.0).reshape(4, 2), 2), -wrong
            ).value
        ),
        lambda wrong: predictors.DiscreteMMSE(jnp.ones((3, 1)), -wrong).predict(
            jnp.ones((2, 1)), jnp.ones(2), jnp.ones(1)
        ),
        lambda wrong: predictors.Bayes(
            LinearPopulation(jnp.eye(2), jnp.zeros(2), -wrong * jnp.eye(2), 1.0)
        ).predict(jnp.ones((2, 2)), jnp.ones(2), jnp.ones(2)),
        lambda wrong: (
            reg.transfer.task_complexity_bound(
                LinearPopulation(jnp.eye(2), wrong * jnp.ones(2), jnp.eye(2), 0.1),
                3,
                8,
                0.1,
            ).total
        ),
        lambda wrong: pruning.prune_rows(jnp.ones((2, 2)), fraction=2 * wrong),
    ],
)
def test_traced_and_out_of_range_is_nan(run):
    assert np.all(np.isnan(jax.jit(run)(jnp.array(1.0))))
    with pytest.raises(ValueError, match=r"expected"):
        run(np.float64(1.0))


def test_lists_are_arrays():
    X, y = [[1.0, 0.0], [0.0, 2.0]], [1.0, 4.0]
    own = RIDGE.predict(X, y, [1.0, 1.0])
    assert own == RIDGE.predict(*map(np.array, (X, y, [1.0, 1.0])))
    assert reg.GDBeta([1, 2], [[1.0, 0.0], [0.0, 1.0]]).beta.tolist() == [1.0, 2.0]
    task = LinearPopulation([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], np.eye(2), 0.1)
    assert task.dim == 2


def test_condition_numbers_beyond_the_precision_are_infinite():
    W = np.diag([1.0, 1e-10])
    assert np.isinf(linalg.condition_number(W.astype(np.float32)))
    np.testing.assert_allclose(linalg.condition_number(W), 1e10)


def test_records_show_themselves_in_a_line_and_compare():
    H = np.arange(24.0).reshape(12, 2)
    spectrum = NOISE(H)
    assert "\n" not in repr(spectrum)
    assert len(repr(spectrum)) < 300
    assert "eigenvalues=float64[1, 12]" in repr(spectrum)
    assert "rank=[" in repr(spectrum)
    assert spectrum == NOISE(H)
    assert spectrum != NOISE(H[::-1] + 1)
    assert TASK == LinearPopulation.isotropic(3) != LinearPopulation.isotropic(4)
    assert len(repr(LinearPopulation.isotropic(60))) < 300
    assert TASK != 3
