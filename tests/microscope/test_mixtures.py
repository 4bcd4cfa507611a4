"""Mixture weights on the simplex, and intervals of weights and shares."""

import itertools

import numpy as np
import pytest
import scipy.stats

from icltheory.microscope import intervals

rng = np.random.default_rng(0)


def by_supports(E):
    """The best mixture by trying every support: an equality-constrained fit each."""
    best, J = (np.inf, None), E.shape[1]
    for size in range(1, J + 1):
        for support in itertools.combinations(range(J), size):
            A = E[:, support]
            system = np.block(
                [[A.T @ A, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]]
            )
            u = np.linalg.lstsq(system, np.append(np.zeros(size), 1), rcond=None)[0]
            u = u[:size]
            if (u > -1e-12).all():
                loss = np.sum((A @ u) ** 2)
                if loss < best[0] - 1e-12:
                    w = np.zeros(J)
                    w[list(support)] = u
                    best = loss, w
    return best[1]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
def test_weights_are_the_best_over_all_supports(scale):
    for _ in range(20):
        E = scale * (rng.normal(size=(40, 5)) @ rng.normal(size=(5, 5)))
        E += scale * rng.normal(size=5)
        found = intervals.mixture_weights(E)
        np.testing.assert_allclose(found, by_supports(E / scale), atol=1e-6)
        assert found.min() >= 0
        assert abs(found.sum() - 1) < 1e-12


def test_an_exact_mixture_is_found_to_rounding():
    G, w = rng.normal(size=(200, 4)), np.array([0.6, 0.0, 0.3, 0.1])
    found = intervals.mixture_weights(G - (G @ w)[:, None])
    np.testing.assert_allclose(found, w, atol=1e-12)


def test_an_exact_member_has_the_whole_weight():
    G = rng.normal(size=(50, 3))
    found = intervals.mixture_weights(G - G[:, [1]])
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-12)
    ends = intervals.weight_intervals(G - G[:, [1]], found)
    np.testing.assert_allclose(ends[1], (1, 1), atol=1e-9)


@pytest.mark.slow
def test_intervals_of_weights_cover():
    """Of 2,000 samples; the z-score of the count is within 3."""
    w, hits = np.array([0.55, 0.3, 0.15]), np.zeros(3)
    samples = 2000
    for _ in range(samples):
        G = rng.normal(size=(300, 3)) + 0.5 * rng.normal(size=(300, 1))
        E = G - (G @ w + rng.normal(size=300) * (0.3 + 0.3 * abs(G[:, 0])))[:, None]
        found = intervals.mixture_weights(E)
        ends = np.array(intervals.weight_intervals(E, found))
        hits += (ends[:, 0] <= w) & (w <= ends[:, 1])
    z = (hits - 0.95 * samples) / np.sqrt(samples * 0.95 * 0.05)
    assert (abs(z) < 3.5).all(), z


@pytest.mark.slow
def test_shares_cover():
    samples, hits = 2000, 0
    for _ in range(samples):
        f = rng.normal(size=400)
        e = 0.5 * rng.normal(size=400) * (1 + 0.2 * f)
        low, high = intervals.explained_share(e, f).interval()
        hits += low <= 0.25 * 1.04 <= high
    z = (hits - 0.95 * samples) / np.sqrt(samples * 0.95 * 0.05)
    assert abs(z) < 3.5, z


def test_an_interval_reaches_farther_on_the_side_of_the_tail():
    values = rng.exponential(size=(50, 2)) * np.array([1.0, -1.0])
    found = intervals.SkewedEstimate.of(values)
    n, m, s = 50, values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(50)
    g = np.mean((values - m) ** 3, axis=0) / values.std(axis=0) ** 3
    t = scipy.stats.t.ppf(0.975, n - 1)
    moved = s * g * (1 + 2 * t**2) / (6 * np.sqrt(n))
    low, high = found.interval()
    np.testing.assert_allclose(low, m - t * s + [0, moved[1]], rtol=1e-10)
    np.testing.assert_allclose(high, m + t * s + [moved[0], 0], rtol=1e-10)
    both = intervals.stacked([intervals.SkewedEstimate.of(v) for v in values.T])
    np.testing.assert_allclose(both.interval(), found.interval(), rtol=1e-12)


def test_a_constant_model_has_no_share():
    assert np.isnan(intervals.explained_share([0.0, 0.0], [1.0, 1.0]).mean)
    assert intervals.explained_share([1.0, 1.0], [1.0, 1.0]).mean == np.inf


@pytest.mark.parametrize("wrong", [[1.0, 2.0], np.zeros((0, 2))])
def test_a_table_is_needed(wrong):
    with pytest.raises(ValueError, match=r"errors: expected \(prompts, candidates\)"):
        intervals.mixture_weights(wrong)
