"""Training and its reduced dynamics: laws, a small run, pictures, mistakes."""

import numpy as np
import pytest

from experiments import pattern_dynamics
from experiments.pattern_dynamics import fitted, slopes

pytestmark = pytest.mark.usefixtures("float32")
SHARES = (1.0, 0.5, 0.25, 0.125)
TINY = """
    --preset cpu --scales 3 2 --shares 1 0.9 0.8 --small-shares 1 0.8 0.6 --seeds 0 1
    --num-examples 6 --steps 240 --batch-size 32 --prompts 64 --num-neurons 16
"""


def test_each_law_is_found_where_it_holds():
    power = fitted(SHARES, [50 * x**-0.7 for x in SHARES])
    np.testing.assert_allclose(power["power"], (50, -0.7))
    assert power["power_error"] < 1e-12 < 0.01 < power["sum_error"]
    total = fitted(SHARES, [30 / x + 70 for x in SHARES])
    np.testing.assert_allclose(total["sum"], (30, 70))
    assert total["sum_error"] < 1e-12 < 0.01 < total["power_error"]
    some = fitted(SHARES, [30 + 70, np.nan, 30 / 0.25 + 70, 30 / 0.125 + 70])
    np.testing.assert_allclose(some["sum"], (30, 70))
    assert np.isnan(fitted(SHARES, [1, np.nan, np.nan, 2])["sum_error"])
    np.testing.assert_allclose(slopes(SHARES, [8 * x**-1.5 for x in SHARES]), -1.5)


def test_the_first_loss_below_the_goal():
    losses = [[1.0, 0.5, 0.05, 0.2], [1.0, 1.0, 1.0, 1.0]]
    found = pattern_dynamics.first_below(losses, 0.1)
    np.testing.assert_array_equal(found, [2, np.nan])


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(small_run):
    _, result, pictures = small_run(pattern_dynamics, TINY)
    assert pictures == {"paths", "steps"}
    assert set(result["settings"]) == {f"beta 3, alpha {x:g}" for x in (1, 0.9, 0.8)}
    for one in result["settings"].values():
        steps = np.array([one["steps"], one["predicted steps"]], float)
        assert steps.shape == (2, 2)
        assert np.nanmin(steps) > 10
    assert len(result["jump"]["slopes"]) == 2
    assert len(result["claims"]) == 3


def test_dots_and_lines_of_steps():
    found = np.array([[100.0, 110.0], [150.0, 160.0], [260.0, 270.0]])
    points = {"a": (found, found + 1, (60.0, 45.0))}
    (axes,) = pattern_dynamics.draw_steps((1.0, 0.5, 0.25), points, "t").axes
    dots, _, crosses = axes.get_lines()[:3]
    np.testing.assert_array_equal(dots.get_ydata(), found[:, 0])
    np.testing.assert_array_equal(crosses.get_ydata(), found[:, 0] + 1)
    (law,) = (x for x in axes.get_lines() if str(x.get_label()).startswith("a:"))
    np.testing.assert_allclose(law.get_ydata()[-1], 105)
