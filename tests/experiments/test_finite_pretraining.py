"""The experiment on finite pretraining: its settings, its fits, its figures."""

import numpy as np
import pytest
import scipy.stats

from experiments import finite_pretraining
from experiments.finite_pretraining import Config
from icltheory.statistics import Estimate

SMALL = """
    --preset cpu --dims 4 8 10 --fits 3 2 2 --ratios 0.5 2 --spreads 1 10
    --pools 2 --small-prompts 100 200 --small-fits 3
"""
CONFIG = Config(ratios=(0.5, 1.0, 2.0), spreads=(1.0, 10.0))


def test_a_setting_varies_one_number_and_leaves_out_the_peak():
    rows = finite_pretraining.settings(CONFIG)
    assert [(r["tau"], r["ridge"]) for r in rows if r["panel"] == "tau"] == [
        *((0.5, 0), (2.0, 0)),
        *((0.5, 0.3), (1.0, 0.3), (2.0, 0.3)),
    ]
    assert [r["kappa"] for r in rows if r["panel"] == "kappa"] == [0.5, 1, 2]
    shifted = [(r["kappa"], r["spread"]) for r in rows if r["panel"] == "spread"]
    assert shifted == [(2.0, 1.0), (2.0, 10.0), (0.5, 1.0), (0.5, 10.0)]
    assert all(r["test"] == (10 if r["panel"] == "spread" else 1) for r in rows)


def test_both_ways_to_fit_are_least_squares_with_the_penalty():
    rng = np.random.default_rng(0)
    d, ridge = 3, 0.7
    for n in (5, 20):
        x, h, y = (rng.normal(size=s) for s in ((n, d), (n, d), (n,)))
        Gamma = finite_pretraining.fitted(x, h, y, ridge)
        # Of the fit of features x (d h)' with weights Gamma / d and lambda n / d.
        F = np.einsum("ni,nj->nij", x, d * h).reshape(n, -1)
        A = F.T @ F + ridge * n / d * np.eye(d * d)
        wanted = np.linalg.solve(A, F.T @ y).reshape(d, d) * d
        np.testing.assert_allclose(Gamma, wanted, rtol=1e-9)


def test_prompts_have_the_moments_of_their_setting():
    rng, d, N, n = np.random.default_rng(1), 4, 6, 20_000
    tasks = rng.normal(size=(3, d))
    x, h, y = finite_pretraining.drawn(rng, d, N, n, tasks, 0.3)
    np.testing.assert_allclose(x.T @ x / n, np.eye(d) / d, atol=0.02)
    # E y x = w / d, and E X'y / N is the same.
    w = tasks[np.arange(n) % 3]
    for seen in (h, y[:, None] * x):
        found = [seen[k::3].mean(0) * d for k in range(3)]
        np.testing.assert_allclose(found, tasks, atol=0.2)
    noise = Estimate.of((y - np.sum(x * w, 1)) ** 2)
    assert abs(noise.mean - 0.3) < 4 * noise.standard_error


def test_errors_are_extrapolated_to_the_limit():
    exact, slope = np.array([1.0, 2.0]), np.array([3.0, -4.0])
    # Standard errors of 6 and 3 fits whose deviations are c / d, c = 2.
    fits = {
        d: Estimate(exact + slope / d, np.full(2, 2 / d / n**0.5), n - 1)
        for d, n in ((10, 6), (30, 3))
    }
    row = {"fits": fits, "exact": exact}
    c, dof = finite_pretraining.spread_of_fits(row)
    assert (c, dof) == (pytest.approx(2), 7)
    np.testing.assert_allclose(finite_pretraining.p_values(row), 1, atol=1e-12)
    p = finite_pretraining.p_values({"fits": fits, "exact": exact - 0.3})
    error = np.hypot(1.5 * 2 / 30 / 3**0.5, 0.5 * 2 / 10 / 6**0.5)
    np.testing.assert_allclose(p, 2 * scipy.stats.t.sf(0.3 / error, dof))
    # A third dimension on the line changes no mean.
    fits[90] = Estimate(exact + slope / 90, np.full(2, 2 / 90 / 2**0.5), 1)
    np.testing.assert_allclose(finite_pretraining.p_values(row), 1, atol=1e-12)
    mean, error = finite_pretraining.deviations([row, row], 10)
    assert mean == pytest.approx((0.3 - 0.2) / 2)
    assert error == pytest.approx(np.mean([0.2, 0.1]) / 6**0.5 / 2**0.5)


@pytest.mark.slow
def test_a_small_run_stores_its_settings_and_draws_them(small_run):
    _, result, pictures = small_run(finite_pretraining, SMALL)
    assert pictures == {"errors", "cost"}
    assert len(result["settings"]) == 2 * 2 + 2 + 2 * 2
    for row in result["settings"]:
        assert len(row["exact"]) == len(row["8"]["mean"]) == 2
        assert ("10" in row) == (row["panel"] == "tau" and row["ridge"] == 0)
        assert ("dmmse" in row) == (row["panel"] == "kappa")
        # The dimension is small: errors are within half of their limit.
        ratio = np.array(row["8"]["mean"]) / np.array(row["exact"])
        assert 0.5 < ratio.min() <= ratio.max() < 2
    assert {row["family"] for row in result["cost"]} == {*finite_pretraining.FAMILIES}
