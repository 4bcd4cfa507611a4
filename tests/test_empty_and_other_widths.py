"""No examples, no prompts, another width, and matrices that are not finite.

Each is the right value, or an error of one line that names the argument.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory import linalg, models, patterns, pruning, statistics, training
from icltheory.attention import LinearAttentionStack
from icltheory.bridge import spectra
from icltheory.layered import LayeredStack
from icltheory.regression import (
    LinearPopulation,
    Prompt,
    TaskPool,
    estimate_risk,
    predictors,
    shifts,
)
from tests.regression.calls import answers

pytestmark = pytest.mark.usefixtures("as_for_a_user")
KEY = jax.random.key(0)
TASK = LinearPopulation.isotropic(2)
EMPTY = np.zeros((0, 3, 2)), np.zeros((0, 3)), np.zeros((0, 2)), np.zeros(0)
GPT_2 = models.GPT2(2, 10, width=8, num_layers=1, num_heads=2)


def test_the_risk_without_examples_is_that_of_the_prior():
    for source in (TASK, shifts.Shift("standard", 2)):
        risk = estimate_risk(
            predictors.Lasso(0.1), source, [0], key=KEY, num_prompts=4000
        )
        assert risk.mean.shape == (1,)
        assert abs(risk.mean[0] - 2) < 5 * risk.standard_error[0]
    bayes = predictors.Bayes(TASK)
    assert float(bayes.risk_given(TASK, jnp.zeros((0, 2)))) == 2
    for rule in (bayes, predictors.Ridge(0.1), predictors.LeastSquares()):
        np.testing.assert_allclose(estimate_risk(rule, TASK, 0, key=KEY).mean, 2)


RULES = {
    "Bayes": lambda: predictors.Bayes(
        LinearPopulation.isotropic(2, 1.0, mean=np.ones(2))
    ),
    "DiscreteMMSE": lambda: predictors.DiscreteMMSE(np.ones((3, 2)), 1.0),
    "Steps": lambda: predictors.Steps([0.1, 0.1]),
    "LinearStep": lambda: predictors.LinearStep(np.eye(2)),
    "Newton": lambda: predictors.Newton(2),
    "Ridge": lambda: predictors.Ridge(0.5),
    "Lasso": lambda: predictors.Lasso(0.5),
    "Averaging": predictors.Averaging,
    "NearestNeighbors": predictors.NearestNeighbors,
    "LeastSquares": predictors.LeastSquares,
    "Zero": predictors.Zero,
}


@pytest.mark.parametrize("name", RULES)
def test_a_predictor_without_examples_predicts_its_prior(name):
    rule = RULES[name]()
    prior = 2.0 * isinstance(rule, predictors.Bayes | predictors.DiscreteMMSE)
    found = rule.predict(np.zeros((0, 2)), np.zeros(0), np.ones(2))
    np.testing.assert_allclose(found, prior, atol=1e-7)
    assert answers(rule, np.ones((0, 3, 2)), np.ones((0, 3))).shape == (0, 3)
    assert answers(rule, np.ones((2, 0, 2)), np.ones((2, 0))).shape == (2, 0)


def test_the_lasso_of_inputs_without_coordinates_is_zero():
    arguments = jnp.zeros((3, 0)), jnp.ones(3), jnp.zeros(0)
    assert float(predictors.Lasso(0.1).predict(*arguments)) == 0
    fit = predictors.Lasso(0.1).fit(*arguments[:2])
    assert (fit.w.shape, bool(fit.converged)) == ((0,), True)


def reasoning(run, dim=3):
    """Runs a function of a model of some dimension and a prompt of dimension 4."""

    def call():
        task = cot.ReasoningTask(cot.faithful_transitions(1.0))
        return run(cot.ReasoningAttention.matching(dim), task.draw(KEY, 5))

    return call


def pattern(run):
    """Runs a function of parameters for tokens of 16 and a task with tokens of 20."""

    def call():
        model, own = patterns.PatternTransformer(8), patterns.PatternTask(4, 4, 3.0)
        other = patterns.PatternTask(5, 5, 3.0)
        return run(model, model.init(own, key=KEY), other)

    return call


def sampled(task):
    return task.sample(KEY, 5, 2)


SIZES = {"batch_size": 2, "num_examples": 5, "step_size": 1.0}
OTHER = "model: expected dimension 4, as of the prompt, got 3"
PROMPT = "params: expected width 20, as of the prompt, got 16"
PARAMS = "params: expected width 20, as of the task, got 16"


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (reasoning(lambda m, prompt: cot.ChainOfThought(m).answers(prompt)), OTHER),
        (reasoning(lambda m, prompt: cot.DirectAnswer(m).answers(prompt)), OTHER),
        (reasoning(cot.attention_masses), OTHER),
        (reasoning(lambda model, prompt: cot.prompt_loss(model, prompt, 0)), OTHER),
        (
            reasoning(lambda model, prompt: cot.prompt_loss(model, prompt, 9), 4),
            "step: expected 0 <= step <= 1, got 9",
        ),
        (
            reasoning(lambda m, prompt: cot.ChainOfThought(m).answers(prompt, 0), 4),
            "num_examples: expected 1 <= num_examples <= 5, got 0",
        ),
        (pattern(lambda m, p, task: patterns.scores(m, p, sampled(task))), PROMPT),
        (
            pattern(lambda m, p, task: patterns.train(m, task, p, 2, key=KEY, **SIZES)),
            PARAMS,
        ),
        (pattern(lambda m, p, task: patterns.pattern_logits(p, task)), PARAMS),
        (pattern(lambda m, p, task: patterns.gain_ratio(p, task)), PARAMS),
        (pattern(lambda m, p, task: patterns.neuron_parts(p, task)), PARAMS),
        (
            pattern(lambda m, p, task: patterns.projections(p, task, sampled(task))),
            PARAMS,
        ),
        (
            lambda: TaskPool(TASK, pool=np.ones((3, 5))),
            "pool: expected members of shape (2,), got (5,)",
        ),
        (
            lambda: TaskPool(TASK, pool=np.ones((0, 2))),
            "pool: expected at least one member, got none",
        ),
        (
            lambda: estimate_risk(
                predictors.Zero(), Prompt(*map(jnp.asarray, EMPTY), None), 3
            ),
            "source: expected at least one prompt, got none",
        ),
        (
            lambda: training.in_context_loss(*2 * [jnp.ones((0, 3))], 2),
            "y: expected at least one prompt, got shape (0, 3)",
        ),
        (
            lambda: GPT_2.tokenize(*map(jnp.asarray, EMPTY[:2])),
            "X: expected at least one point, got shape (0, 3, 2)",
        ),
        (
            lambda: linalg.condition_number(np.zeros((0, 3))),
            "W: expected at least one entry, got shape (0, 3)",
        ),
        (
            lambda: pruning.prune(np.zeros((0, 3)), 0.5),
            "W: expected at least one entry, got shape (0, 3)",
        ),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(run, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize(
    "run",
    [
        spectra.Exact("float32"),
        spectra.Exact("float64"),
        spectra.Randomised(2),
        spectra.rounding_noise,
        lambda W: spectra.randomised_svd(KEY, W, 2),
        lambda W: pruning.frobenius_split(W, 1),
        lambda W: pruning.module_spectra(LayeredStack.of(stack(W)), stack(W)),
    ],
)
def test_a_matrix_that_is_not_finite_is_named(run, wrong):
    W = np.eye(3)
    W[0, 1] = wrong
    message = r"^W(_V)?: expected finite entries, got (NaN or infinity|nan|inf)$"
    with pytest.raises(ValueError, match=message):
        run(W)


def stack(W):
    return LinearAttentionStack(W[None], np.eye(3)[None], np.eye(3)[None])


def test_an_estimate_of_an_array_has_a_text():
    text = str(statistics.Estimate.of(np.array([[1.0, 2.0], [3.0, 2.0]])))
    assert text == "Estimate(mean=[2., 2.], standard_error=[1., 0.], dof=1)"
