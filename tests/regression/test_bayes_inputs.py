"""Bad input of ``regression.bayes`` and of the rates, and its error messages."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import LinearPopulation, bayes, orders
from icltheory.statistics import Estimate
from tests.raising import raises

EYE = np.eye(3)
TASK = LinearPopulation(EYE, np.zeros(3), EYE, 0.5)
SILENT = LinearPopulation(EYE, np.zeros(3), 0 * EYE, 0.0)


def test_bayes_refuses_other_shapes_and_forms(key):
    X, y = np.ones((4, 3)), np.ones(4)
    with raises("X: expected shape (N, 3) or (B, N, 3), got (4, 2)"):
        bayes.posterior_mean(TASK, X[:, :2], y)
    with raises("y: expected shape (4,), got (3,)"):
        bayes.posterior_mean(TASK, X, y[:3])
    with raises("y: expected shape (2, 4), got (4,)"):
        bayes.posterior_mean(TASK, np.ones((2, 4, 3)), y)
    with raises("form: expected one of 'auto', 'primal', 'dual', got 'best'"):
        bayes.posterior_mean(TASK, X, y, form="best")
    with raises("X: expected shape (N, 3) or (B, N, 3), got (1, 1, 4, 3)"):
        bayes.risk_given(TASK, X[None, None])
    with raises("num_examples: expected a positive integer, got 0"):
        bayes.average_risk(TASK, 0, key, 10)
    with raises("num_samples: expected a positive integer, got 0"):
        bayes.average_risk(TASK, 4, key, 0)


@pytest.mark.parametrize("length", [0, -2])
def test_prompts_without_examples_are_refused(length):
    with raises("num_examples: expected "):
        orders.rates(TASK, length)


def test_rates_refuse_what_no_theorem_covers():
    with raises("constant: expected a value >= 0, got -1.0"):
        orders.rates(TASK, 4, constant=-1.0)
    with raises("population: expected tau = tr(H Psi) + noise_var > 0, got 0.0"):
        orders.rates(SILENT, 4)


def test_a_simulated_risk_unpacks():
    mean, error = Estimate.of(jnp.array([1.0, 3.0]))
    assert (mean, error) == (2.0, 1.0)
