"""Bad input of ``regression.bayes`` and of the rates, and its error messages."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import LinearPopulation, orders
from icltheory.statistics import Estimate
from tests.raising import raises

EYE = np.eye(3)
TASK = LinearPopulation(EYE, np.zeros(3), EYE, 0.5)
SILENT = LinearPopulation(EYE, np.zeros(3), 0 * EYE, 0.0)


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
