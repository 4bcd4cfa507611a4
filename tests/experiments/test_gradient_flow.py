"""The experiment on gradient flow: its parts, a tiny run, its figures."""

import numpy as np
import pytest

from experiments import gradient_flow
from icltheory import regression as reg

TINY = """
    --preset cpu --dim 3 --null-dim 1 --points 5 --condition 2 --num-examples 3
    --descent-dim 2 --sgd-steps 40 --seeds 2 --batch-sizes 2 64 --step-shares 0.1 0.9
    --dims 2 --lengths 2 --num-starts 8 --end-time 200
"""
CONFIG = gradient_flow.Config()
FATES = list(gradient_flow.FATES)


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(small_run):
    folder, result, pictures = small_run(gradient_flow, TINY)
    assert pictures == {"paths", "rates", "descents", "starts"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    for name in ("regular H", "singular H"):
        assert verdicts[f"{name}: excess at the end"]
        assert verdicts[f"{name}: share of bound, preconditioner"]
        assert result["paths"][name]["distance_from_limit"] < 1e-9
    for setting in result["starts"]:
        assert sum(setting["counts"].values()) == 8
        assert setting["spurious_is_minimum"]
        low, high = setting["least_risk_interval"]
        assert 0 <= low <= setting["counts"]["least risk"] / 8 <= high <= 1


def test_fates_are_told_apart():
    levels = np.array([0.5, 0.7])
    excess = np.array(
        [
            [1.0, 1e-3, 1e-9],
            [1.0, 0.5, 0.5 + 1e-5],
            [1.0, 0.7, 0.7],
            [1.0, 0.6, 0.6],
            [1.0, 0.7, 0.5],
            [1.0, 0.6, np.nan],
        ]
    )
    last, moving = gradient_flow.last_finite(excess)
    np.testing.assert_allclose(last, [1e-9, 0.5, 0.7, 0.6, 0.5, 0.6], atol=1e-4)
    fate = gradient_flow.fates(last, moving, levels, 1.0)
    found = [next(name for name in FATES if fate[name][i]) for i in range(len(last))]
    assert found == [*FATES, "still moving"]
    found = gradient_flow.commonest(np.array([0.58, 0.5801, 0.3]))
    assert found == {"excess": 0.58, "count": 2}
    assert gradient_flow.commonest(np.zeros(0)) == {"excess": None, "count": 0}


def test_the_stationary_levels_begin_with_the_spurious_minimum():
    cov = np.diag([1.0, 0.4])
    population = reg.LinearPopulation(np.eye(2), np.ones(2), cov, 0.25)
    levels = gradient_flow.stationary_levels(population, 2)
    angles = np.array([0.0, np.pi / 2])
    first, last = reg.landscape.excess_profile(population, 2, angles)
    assert levels[0] == pytest.approx(float(first), rel=1e-6)
    assert levels[0] < levels[1]
    assert float(last) == pytest.approx(0.0, abs=1e-9)


T, VALUES = np.array([0.0, 0.1, 1.0]), np.array([1.0, 0.5, 0.1])


def flow_of(values):
    """A flow in two dimensions, as it is measured, and its limit."""
    curves = {
        "start": (values, {"bound": 2 * values}),
        "preconditioner": (values, {f"bound {i}": values + i for i in range(9)}),
        "excess": (values, {"bound": T}),
    }
    limit = reg.GDBeta(np.ones(2), np.ones((2, 2)))
    arrays = {"times": T, "beta": np.ones((3, 2)), "Gamma": np.ones((3, 2, 2))}
    return {**arrays, "limit": limit, "curves": curves}


def test_paths_and_bounds_are_drawn_as_given():
    paths = {"a": flow_of(VALUES), "b": flow_of(VALUES)}
    beta, *maps = gradient_flow.draw_paths(CONFIG, paths).axes[:6]
    assert len(beta.get_lines()) == 4
    assert [axes.get_title() for axes in maps][::4] == ["start", "limit"]
    np.testing.assert_array_equal(maps[2].get_images()[0].get_array(), np.ones((2, 2)))
    first, second, *_ = gradient_flow.draw_rates(CONFIG, paths).axes
    flow, bound = first.get_lines()
    np.testing.assert_array_equal(flow.get_ydata(), VALUES[1:])
    np.testing.assert_array_equal(bound.get_ydata(), 2 * VALUES[1:])
    assert bound.get_linestyle() == "--"
    # More bounds than colours are all drawn.
    assert len(second.get_lines()) == 10


def test_descents_are_drawn_beside_the_flow():
    descents = {
        "flow": (T, VALUES),
        "steps": {share / 10: (T, VALUES) for share in range(9)},
        "sampled_times": T,
        "sampled": {batch: np.ones((2, 3)) for batch in range(9)},
    }
    for axes in gradient_flow.draw_descents(CONFIG, descents).axes:
        assert len(axes.get_lines()) == 10


def test_starts_are_drawn_by_their_fates():
    ends = dict.fromkeys(FATES, np.zeros(4, bool))
    ends |= {FATES[0]: np.arange(4) < 3, FATES[1]: np.arange(4) == 3}
    row = {
        "model": "LTB",
        "dim": 2,
        "num_examples": 3,
        "times": T,
        "path": np.array([[4.0, 4, 1], [4, 4, 2], [4, 4, 3], [4, 4, 4]]),
        "spurious_excess": 0.5,
        "spurious_is_minimum": True,
        "fates": ends,
        "least_risk_interval": (0.3, 0.95),
    }
    figure = gradient_flow.draw_starts(CONFIG, [row, row])
    drawn = [axes for axes in figure.axes if axes.get_title().startswith("LTB")]
    assert len(drawn) == 2
    for axes in drawn:
        first, second, level = axes.get_lines()
        np.testing.assert_array_equal(first.get_ydata(), [4, 2])  # the median
        np.testing.assert_array_equal(second.get_ydata(), [4, 4])
        assert set(level.get_ydata()) == {0.5}
    widths = [bar.get_width() for bar in figure.axes[-1].patches]
    assert widths == [0.75, 0.75, 0.25, 0.25]
