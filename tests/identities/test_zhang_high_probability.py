"""Lemma 6.1 and Corollary 6.2 with high probability: bounds, frequencies, each step.

The oracle draws inputs and inverts matrices in NumPy; tails are SciPy's.
"""

import numpy as np
import pytest
from scipy import stats

from icltheory.regression import LinearPopulation, gaps

SPECTRA = {
    "flat, little signal": (np.full(8, 0.02), 40),
    "decaying": (1.0 / np.arange(1, 25) ** 2, 40),
    "one large": (np.array([3.0] + [0.001] * 20), 64),
    "more directions than examples": (np.full(120, 0.01), 40),
}


def drawn_risks(phi, M, count, rng):
    """tr[Phi (I + Z'Z Phi)^-1] at noise 1, by an eigenvalue problem in M dimensions."""
    Z = rng.normal(size=(count, M, len(phi))) * np.sqrt(phi)
    inner = np.linalg.inv(np.eye(M) + Z @ np.swapaxes(Z, 1, 2))
    removed = np.einsum("nmd,nmk,nkd,d->n", Z, inner, Z, phi)
    return phi.sum() - removed


@pytest.mark.statement("Zhang: Lemma 6.1, high probability")
@pytest.mark.parametrize("name", SPECTRA)
def test_drawn_inputs_obey_both_bounds(name, measured):
    phi, M = SPECTRA[name]
    found = gaps.rates(LinearPopulation(np.diag(phi), noise_var=1.0), M).likely
    S = np.minimum(phi, 1 / M).sum()
    np.testing.assert_allclose(found.lower, 1 + S / 3, rtol=1e-12)
    kappa = 9 + 8 * np.log(9) + 4 * phi.sum()
    np.testing.assert_allclose(found.upper, 1 + 4 * kappa * S, rtol=1e-12)
    risks = drawn_risks(phi, M, 400, np.random.default_rng(0))
    measured("least ratio to the threshold sum", risks.min() / S)
    measured("largest ratio to the threshold sum", risks.max() / S)
    assert np.all(risks >= S / 3)
    assert np.all(risks <= float(found.upper) - 1)


@pytest.mark.statement("Zhang: Lemma 6.1, high probability")
def test_probabilities_are_those_of_the_proof(measured):
    whole = gaps.rates(LinearPopulation.isotropic(2, 1.0), 200)
    found = whole.likely
    missed = np.exp(-200 * (1 - np.log(2)) / 2)
    np.testing.assert_allclose(found.lower_probability, 1 - missed, rtol=1e-14)
    both = 1 - missed - np.exp(-200) - np.exp(-200 / 32)
    np.testing.assert_allclose(found.probability, both, rtol=1e-12)
    measured("probability of both sides at M = 200", both)
    np.testing.assert_allclose(found.ratio, 3 * (1 + 2 * 2), rtol=1e-12)
    assert bool(whole.holds)
    assert not bool(
        gaps.rates(LinearPopulation.isotropic(2, 1.0), 200, constant=1).holds
    )


@pytest.mark.statement("Zhang: Lemma 6.1, high probability")
def test_each_tail_of_the_proof_is_above_the_true_one(measured):
    """Chi-square, quadratic forms of the tail, least singular value of the head."""
    for M in (1, 4, 20, 80):
        true, bound = stats.chi2.sf(2 * M, M), np.exp(-M * (1 - np.log(2)) / 2)
        assert true <= bound
        measured("chi-square tail over its bound", true / bound)
    x = np.linspace(0, 0.5, 1000)
    assert np.all(-np.log1p(-x) / 2 <= x)
    # A form of the tail: phi_i = sigma^2 / M, as large as they may be.
    M, c, rng = 64, 0.5, np.random.default_rng(1)
    n = int(c * M)
    forms = rng.chisquare(n, size=100_000) / M
    for s in (1.0, 1.5, 2.0):
        assert np.mean(forms >= s) <= np.exp(M * (2 * c - s) / 4)
    least = [
        np.linalg.svd(rng.normal(size=(M, M // 16)), compute_uv=False)[-1]
        for _ in range(200)
    ]
    assert np.min(least) ** 2 >= M / 4
    measured("least eigenvalue of the head over M / 4", np.min(least) ** 2 / (M / 4))


@pytest.mark.statement("Zhang: Corollary 6.2, high probability")
def test_best_step_is_of_the_bayes_order_on_drawn_inputs(measured):
    """R_min - sigma^2 <= 3 (1 + 2c) times the Bayes excess of every draw."""
    for phi, M in SPECTRA.values():
        tau = phi.sum() + 1
        excess = np.sum(phi * (phi + tau) / ((M + 1) * phi + tau))
        risks = drawn_risks(phi, M, 200, np.random.default_rng(2))
        limit = float(
            gaps.rates(LinearPopulation(np.diag(phi), noise_var=1.0), M).likely.ratio
        )
        measured("ratio over its bound", (excess / risks).max() / limit)
        assert np.all(excess <= limit * risks)


@pytest.mark.statement("Zhang: Lemma 6.1, high probability")
def test_without_noise_the_bounds_are_finite():
    found = gaps.rates(LinearPopulation(np.eye(2)), 50).likely
    assert float(found.lower) == 0
    assert np.isfinite(found.upper)
    assert np.isinf(found.ratio)
