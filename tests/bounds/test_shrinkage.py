"""Ledoit-Wolf from the spectrum against the definition and scikit-learn's formula."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bounds import isotropic_bound, ledoit_wolf_intensity, noisy_steps
from icltheory.noise import noise_covariance
from tests import stacks


def intensity(z):
    """The definition with d x d matrices, for centred rows z."""
    N, d = z.shape
    S = z.T @ z / N
    mu = np.trace(S) / d
    delta = np.linalg.norm(S - mu * np.eye(d)) ** 2 / d
    beta = sum(np.linalg.norm(np.outer(a, a) - S) ** 2 for a in z) / (N**2 * d)
    return min(beta, delta) / delta


@pytest.mark.parametrize(("N", "d"), [(9, 16), (40, 4)])
def test_intensity_equals_the_definition(N, d):
    z = np.random.default_rng(0).normal(size=(N, d)) * np.linspace(1, 3, d)
    z = z - z.mean(axis=0)
    values = np.linalg.eigvalsh(z.T @ z / N)[::-1]
    got = ledoit_wolf_intensity(values, np.sum(z**2, axis=1), d)
    assert abs(float(got) - intensity(z)) < 1e-12


def test_intensity_is_1_where_the_covariance_is_a_multiple_of_the_identity():
    assert float(ledoit_wolf_intensity(jnp.ones(3), jnp.full(4, 3.0), 3)) == 1.0


def test_nan_is_not_hidden():
    broken = jnp.array([jnp.nan, 1.0])
    assert np.isnan(ledoit_wolf_intensity(broken, jnp.ones(2), 2))
    assert np.isnan(ledoit_wolf_intensity(jnp.ones(2), broken, 3))


def test_the_bound_with_ledoit_wolf_is_that_of_the_shrunken_covariance():
    stack, H, _ = stacks.problem(1, 9, 3, rho=0.5)
    g = stacks.gradients(stack, H)[0]
    z = 9 * g.reshape(9, -1)
    centred = z - z.mean(axis=0)
    C = np.asarray(noise_covariance(stack, H, 4, 0))
    rho, mu = intensity(centred), np.trace(C) / 9
    shrunk = (1 - rho) * C + rho * mu * np.eye(9)
    square = np.sum(g.sum(axis=0) ** 2)
    expected = 9 * np.log((square + np.trace(shrunk)) / 9)
    expected -= np.linalg.slogdet(shrunk)[1]
    bound = isotropic_bound(noisy_steps(stack, H, 4).ambient().shrunken(), 1.0)
    assert abs(float(bound.terms[0]) / expected - 1) < 1e-10
    assert any("without jitter" in text for text in bound.failing)
    deviations = np.asarray(stacks.spectrum(stack, H, 4).deviations)[0]
    np.testing.assert_allclose(deviations, np.sum(centred**2, axis=1), rtol=1e-10)
