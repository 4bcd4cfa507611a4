"""Bad input of the theory of transfer, of the number of tasks and of the rates."""

import numpy as np
import pytest

from icltheory.regression import LinearPopulation, LinearStep, orders, transfer
from tests.raising import raises

EYE = np.eye(3)
TASK = LinearPopulation(EYE, np.zeros(3), EYE, 0.5)
MOVED = LinearPopulation(EYE, np.ones(3), EYE, 0.5)
STEP = LinearStep(EYE)


def test_the_number_of_tasks_refuses_other_priors_shapes_and_counts():
    with raises("num_tasks: expected an integer >= 2, got 1"):
        transfer.task_complexity_bound(TASK, 4, 1, 0.1)
    with raises("initial_step: expected a value >= 0, got -0.1"):
        transfer.halving_steps(8, -0.1)
    with raises("population: expected task_mean = 0, got "):
        transfer.task_complexity_bound(MOVED, 4, 8, 0.1)
    skewed = LinearPopulation(EYE, np.zeros(3), np.diag([1.0, 2.0, 1.0]), 0.5)
    with raises("population: expected task_cov = psi^2 I, got "):
        transfer.task_complexity_bound(skewed, 4, 8, 0.1)
    with raises("Gamma_0: expected shape (3, 3), got (2, 2)"):
        transfer.task_complexity_bound(TASK, 4, 8, 0.1, np.eye(2))


def test_other_labels_and_lengths_refuse_what_does_not_fit():
    given = {"weight": np.ones(3), "moment_cov": EYE}
    with raises("num_examples: expected a whole number >= 1, got 0"):
        transfer.risk_for_labels(STEP, EYE, 0, **given)
    with raises("input_cov: expected a positive semi-definite matrix"):
        transfer.risk_for_labels(STEP, -EYE, 4, **given)
    with raises("input_cov: expected shape (3, 3), got (2, 2)"):
        transfer.risk_for_labels(STEP, np.eye(2), 4, **given)
    with raises("weight: expected shape (3,), got (2,)"):
        transfer.risk_for_labels(STEP, EYE, 4, weight=np.ones(2), moment_cov=EYE)
    with raises("moment_cov: expected a positive semi-definite matrix"):
        transfer.risk_for_labels(STEP, EYE, 4, weight=np.ones(3), moment_cov=-EYE)
    singular = np.diag([1.0, 0.0, 2.0])
    with raises("input_cov: expected a positive definite matrix, got 0.0"):
        transfer.risk_at_length_bound(singular, 4, 4)
    for name, lengths in (("train_length", (0, 4)), ("test_length", (4, 0))):
        with raises(f"{name}: expected a whole number >= 1, got 0"):
            transfer.length_transfer_rate(TASK, *lengths)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-np.ones((2, 3)),), "variances: expected a value >= 0, got -1.0"),
        ((np.ones((2, 3)), np.ones(3)), "probabilities: expected shape (2,), got (3,)"),
        ((np.ones((2, 3)), np.zeros(2)), "probabilities: expected a positive entry"),
    ],
)
def test_random_covariances_refuse_what_is_no_distribution(given, message):
    with raises(message):
        transfer.random_covariance_optimum(given[0], 4, *given[1:])


def test_rates_refuse_what_no_theorem_covers():
    silent = LinearPopulation(EYE, np.zeros(3), 0 * EYE, 0.0)
    with raises("population: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
        orders.rates(silent, 4)
    with raises("constant: expected a value >= 0, got -1.0"):
        orders.rates(TASK, 4, constant=-1.0)
    for length in (0, -2):
        with raises("num_examples: expected "):
            orders.rates(TASK, length)
