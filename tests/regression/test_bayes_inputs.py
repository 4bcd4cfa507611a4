"""Bad input of ``regression.bayes`` and of the rates, and its error messages."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import LinearPopulation, bayes, rates
from icltheory.statistics import Estimate
from tests.raising import raises

EYE = np.eye(3)
TASK = LinearPopulation(EYE, np.zeros(3), EYE, 0.5)
MOVED = LinearPopulation(EYE, np.ones(3), EYE, 0.5)
SILENT = LinearPopulation(EYE, np.zeros(3), 0 * EYE, 0.0)


@pytest.mark.parametrize(
    "function",
    [
        bayes.sandwich,
        bayes.risk_rate,
        rates.effective_dimension,
        rates.optimal_risk_rate,
        rates.one_step_optimum,
        rates.preconditioned_optimum,
    ],
)
@pytest.mark.parametrize("length", [0, -2])
def test_prompts_without_examples_are_refused(function, length):
    with raises("num_examples: expected "):
        function(TASK, length)


@pytest.mark.slow
def test_rates_refuse_what_no_theorem_covers():
    with raises("constant: expected a value >= 0, got -1.0"):
        rates.optimal_risk_rate(TASK, 4, constant=-1.0)
    with raises("constant: expected a value >= 0, got -1.0"):
        bayes.risk_rate(TASK, 4, constant=-1.0)
    with raises("problem: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
        bayes.sandwich(SILENT, 4)
    with raises("problem: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
        rates.length_transfer(SILENT, 4, 8)


def test_one_step_refuses_other_priors_shapes_and_counts():
    with raises("Gamma: expected shape (3, 3), got (2, 2)"):
        rates.one_step_excess(TASK, 4, np.eye(2))
    with raises("train_length: expected a whole number >= 1, got 0"):
        rates.length_transfer(TASK, 0, 4)
    with raises("test_length: expected a whole number >= 1, got 0"):
        rates.length_transfer(TASK, 4, 0)
    with raises("num_tasks: expected an integer >= 2, got 1"):
        rates.task_complexity_bound(TASK, 4, 1, 0.1)
    with raises("initial_step: expected a value >= 0, got -0.1"):
        rates.halving_steps(8, -0.1)
    with raises("problem: expected task_mean = 0, got "):
        rates.task_complexity_bound(MOVED, 4, 8, 0.1)
    skewed = LinearPopulation(EYE, np.zeros(3), np.diag([1.0, 2.0, 1.0]), 0.5)
    with raises("problem: expected task_cov = psi^2 I, got a matrix that is not"):
        rates.task_complexity_bound(skewed, 4, 8, 0.1)
    with raises("Gamma_0: expected shape (3, 3), got (2, 2)"):
        rates.task_complexity_bound(TASK, 4, 8, 0.1, np.eye(2))
    with raises("problem: expected task_mean = 0, got "):
        rates.preconditioned_optimum(MOVED, 4)
    with raises("P: expected shape (4, 4), got (3, 3)"):
        rates.preconditioned_prediction(
            EYE, np.eye(4), np.ones((5, 3)), np.ones(5), np.ones(3)
        )


def test_trained_attention_refuses_what_is_no_covariance():
    with raises("input_cov: expected shape (d, d), got (2, 3)"):
        rates.trained_attention_limit(EYE[:2], 4)
    with raises("input_cov: expected a positive semi-definite matrix"):
        rates.trained_attention_limit(-EYE, 4)
    with raises("input_cov: expected a covariance other than 0, got 0"):
        rates.trained_attention_limit(0 * EYE, 4)
    with raises("num_examples: expected a whole number >= 1, got 0"):
        rates.trained_attention_limit(EYE, 0)
    singular = np.diag([1.0, 0.0, 2.0])
    with raises("input_cov: expected a positive definite matrix, got a singular one"):
        rates.risk_at_length_bound(singular, 4, 4)
    with raises("input_cov: expected a positive definite matrix, got a singular one"):
        rates.convergence_constants(singular, 4, EYE / 3**0.25, 0.1)
    with raises("Theta: expected |Theta Theta'|_F = 1, got 1.73205"):
        rates.convergence_constants(EYE, 4, EYE, 0.1)
    with raises("scale: expected a value >= 0, got -0.1"):
        rates.convergence_constants(EYE, 4, EYE / 3**0.25, -0.1)
    with raises("test_length: expected a whole number >= 1, got 0"):
        rates.risk_at_length(EYE, 4, 0, weight=np.ones(3), moment_cov=EYE)
    with raises("train_length: expected a whole number >= 1, got 0"):
        rates.risk_at_length(EYE, 0, 4, weight=np.ones(3), moment_cov=EYE)
    with raises("weight: expected shape (3,), got (2,)"):
        rates.linear_moment_cov(EYE, np.ones(2))
    with raises("moment_cov: expected a positive semi-definite matrix"):
        rates.risk_at_length(EYE, 4, 4, weight=np.ones(3), moment_cov=-EYE)
    with raises("variances: expected a value >= 0, got -1.0"):
        rates.random_covariance_optimum(-np.ones((2, 3)), 4)
    with raises("probabilities: expected shape (2,), got (3,)"):
        rates.random_covariance_optimum(np.ones((2, 3)), 4, np.ones(3))
    with raises("probabilities: expected a positive entry, got 0"):
        rates.random_covariance_optimum(np.ones((2, 3)), 4, np.zeros(2))


def test_a_simulated_risk_unpacks():
    mean, error = Estimate.of(jnp.array([1.0, 3.0]))
    assert (mean, error) == (2.0, 1.0)
