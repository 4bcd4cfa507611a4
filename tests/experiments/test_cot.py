"""The experiment on chain of thought: a tiny run, its parts, its figures."""

import json

import numpy as np
import pytest

from experiments import cot
from experiments.publish import RESULTS
from icltheory.chain_of_thought import ReasoningTask
from icltheory.statistics import Estimate

TINY = """
    --preset cpu --seeds 0 1 --dim 10 --train-states 6 --iterations 4 --record-every 2
    --batch-size 4 --train-examples 5 --states 4 --chain-steps 2 --lengths 5 10
    --fractions 1.0 --taus 0.4 --rho-of-taus 0.7 --rhos 0.6 --tau-of-rhos 0.3
    --compare-lengths 11 21 --compare-fractions 1.0 --draws 1 --prompts 8
    --compare-prompts 8 --mass-prompts 4
"""


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises(small_run):
    _, result, pictures = small_run(cot, TINY)
    assert pictures == {"needed", "comparison", "mechanism"}
    tasks = [cot.SLIDE, cot.POPULAR, cot.FAITHFUL]
    assert len(result["sweeps"]) == 5
    assert [part["value"] for part in result["comparison"]] == tasks
    masses = np.array(list(result["attention"].values()))
    assert masses.shape == (4, 2, 3)
    np.testing.assert_allclose(masses.sum(axis=0), 1, atol=1e-5)


def test_lengths_and_slopes_are_read_off():
    errors = [0.4, 0.2, 0.05]
    middle = 20 + 20 * np.log(0.2 / 0.1) / np.log(0.2 / 0.05)
    assert cot.needed_length(errors, (10, 20, 40), 0.1) == pytest.approx(middle)
    # the first length at which the level is reached counts
    risen = [*errors, 0.15]
    assert cot.needed_length(risen, (10, 20, 40, 80), 0.1) == pytest.approx(middle)
    assert np.isnan(cot.needed_length([0.05, 0.01], (10, 20), 0.1))
    assert np.isnan(cot.needed_length([0.5, 0.4], (10, 20), 0.1))
    values = np.array([1, 2, 4])
    assert cot.slope(values, np.array([8, 2, 0.5])) == pytest.approx(-2)
    assert np.isnan(cot.slope(values, np.array([3, np.nan, np.nan])))


def test_settings_have_the_tau_and_rho_that_they_are_named_after():
    config = cot.PRESETS["cpu"]
    found = cot.sweeps(config)
    assert len(found) == 20
    for row in found:
        task = ReasoningTask(row["steps"])
        numbers = {"tau": task.tau, "rho": task.rho, "alpha'": row["relevant_fraction"]}
        own = float(numbers[row["group"].split(",")[0]])
        assert own == pytest.approx(row["value"], rel=1e-6)
    proved, asked = cot.predicted(config, cot.TAU, np.array([0.4, 0.8]))
    assert proved[0] / proved[1] == pytest.approx(2)
    assert asked[0] / asked[1] == pytest.approx(4)


# An independent simulation, one seed and one draw of patterns: attention to the same
# step and input over training; CoT error at l = 10 on 2,000 prompts.
ALONG = {100: 0.745, 200: 0.910, 300: 0.940, 400: 0.952}
AT_TEN = {
    cot.EVEN_FRACTION: {0.4: 0.168, 0.6: 0.058, 0.8: 0.022, 1.0: 0.0056},
    cot.EVEN_TAU: {0.4: 0.237, 0.5: 0.174, 0.6: 0.116, 0.7: 0.075},
}
# Attention of Figure 20 before training, read off to 0.005: same step and input, other
# step, other input, both others.
START = (0.145, 0.26, 0.205, 0.385)


def test_the_stored_numbers_are_those_of_figure_20_and_of_a_simulation():
    result = json.loads((RESULTS / "cot/result.json").read_text())
    masses = {name: np.array(mass) for name, mass in result["attention"].items()}
    for mass, value in zip(masses.values(), START, strict=True):
        at = Estimate.of(mass[:, 0])
        assert abs(at.mean - value) <= 0.005 + 3 * at.standard_error
    same, other, _, both = masses.values()
    late = (same.mean(axis=0) > 0.6).argmax()
    assert (other + both)[:, late].max() < 0.05
    for iteration, value in ALONG.items():
        at = Estimate.of(same[:, iteration // 10])
        # The reference has one seed, so its own spread and rounding are included.
        close = 0.002 + 4 * at.standard_error * np.sqrt(1 + len(same))
        assert abs(at.mean - value) <= close, iteration
    compared = 0
    for row in result["sweeps"]:
        known = AT_TEN.get(row["group"], {}).get(row["value"])
        if known is not None:
            place = row["lengths"].index(10)
            mean = row["trained"]["mean"][place]
            error = row["trained"]["mean standard error"][place]
            # Theirs is one training, for which the spread between ours is assumed.
            variance = known * (1 - known) / 2000 + (len(same) + 1) * error**2
            assert abs(mean - known) <= 3 * np.sqrt(variance), (row["group"], known)
            compared += 1
    assert compared == 8


def test_bounds_fall_and_the_limit_is_that_of_the_slides():
    options = {"compare_fractions": (1.0,), "compare_lengths": (1, 11)}
    found, *_ = cot.comparisons(cot.Config(seeds=(0, 1), **options))
    assert found["icl_limit"] == 0.5
    assert found["cot_bound"][1] < found["cot_bound"][0]


def measured(value, mean):
    """What is measured of a task of two steps; every seed has the same errors."""
    errors = dict.fromkeys(("mean", "direct"), np.array([mean, mean]))
    row = {"value": value, "relevant_fraction": 1.0, "icl_limit": 0.5}
    row |= {"cot_bound": np.ones(3), "icl_bound": np.ones(3)}
    return row | {"trained": errors, "counting": errors}


def test_figures_draw_what_they_are_given():
    lengths = {"compare_lengths": (1, 11, 21), "compare_fractions": (1.0,)}
    config = cot.Config(seeds=(0, 1), iterations=10, **lengths)
    row = measured(cot.SLIDE, [0.5, 0.2, 0.0])
    figure = cot.draw_comparison(config, [row], floor=0.01)
    (axes,) = figure.axes
    trained, counted, bound, zero, *_ = axes.get_lines()
    for line in (trained, counted):
        np.testing.assert_array_equal(line.get_ydata(), [0.5, 0.2, np.nan])
    assert np.isnan(bound.get_ydata()).all()  # a bound of 1 says nothing
    assert (zero.get_marker(), zero.get_xydata().tolist()) == ("v", [[21.0, 0.01]])
    assert {text.get_text() for text in axes.texts} == {"CoT", "ICL", "limit"}
    assert len(figure.legends[0].get_texts()) == 4
    masses = {"same_step_same_input": np.array([[0.1, 0.9], [0.3, 0.7]])}
    for name in ("same_step_other_input", "other_step_same_input"):
        masses[name] = np.full((2, 2), 0.1)
    masses["other_step_other_input"] = np.full((2, 2), 0.0)
    (axes,) = cot.draw_mechanism(config, masses).axes
    line = axes.get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), [0.2, 0.8])


def test_guides_go_through_the_last_length_that_suffices():
    config = cot.Config(seeds=(0, 1), lengths=(5, 10), fractions=(0.5, 1.0))
    rows = [
        measured(0.5, [0.4, 0.3]) | {"group": cot.FRACTION},
        measured(1.0, [0.2, 0.05]) | {"group": cot.FRACTION},
    ]
    axes = cot.draw_needed(config, rows).axes[0]
    trained, _, proved, asked = axes.get_lines()
    first, last = trained.get_ydata()
    assert np.isnan(first)
    assert last == cot.needed_length([0.2, 0.05], (5, 10), cot.LEVEL)
    np.testing.assert_allclose(proved.get_ydata(), [2 * last, last])
    np.testing.assert_allclose(asked.get_ydata(), [4 * last, last])
