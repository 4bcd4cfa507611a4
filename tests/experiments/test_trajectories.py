"""The trajectory experiment end to end, and its pictures."""

import numpy as np
import pytest

from experiments import trajectories
from icltheory.plotting import Curve

SMALL = """
    --preset cpu --linear.dim 2 --linear.num-points 9 --linear.num-layers 3
    --linear.steps 20 --linear.batch-size 4 --linear.optimizer.warmup-steps 0
    --ranks 1 --prompts 8 --shots 4
"""


@pytest.mark.slow
def test_a_small_run_shows_what_theorem_1_says(small_run):
    _, result, pictures = small_run(trajectories, SMALL)
    assert pictures == {"norms", "ratios", "terms"}
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    for name, passed in verdicts.items():
        assert passed, name
    assert set(result["unpruned"]) == {"random", "gradient descent", "trained"}
    # Three stacks, three kinds of matrix, one rank.
    assert len(result["pruned"]) == 9
    for row in result["pruned"]:
        ratio = np.array(row["G ratio [k][t]"])
        assert (ratio[np.tril_indices(3, -1)] == 1).all()
        assert np.shape(row["support_dim [k][t]"]) == (3, 3)
    by_case = {(r["stack"], r["matrix"]): r for r in result["pruned"]}
    descent = by_case["gradient descent", "W_V"]
    assert descent["G ratio [k][t]"] == np.ones((3, 3)).tolist()
    # n = 3: symmetric matrices have 6 dimensions, of which rank one leaves 3.
    assert result["unpruned"]["random"]["support_dim"] == [6, 6, 6]
    dims = np.array(by_case["random", "W_K"]["support_dim [k][t]"])
    assert dims.tolist() == (6 - 3 * np.eye(3, dtype=int)).tolist()


def test_curves_are_geometric_means_and_an_infinite_term_leaves_the_axes():
    norms = trajectories.geometric(np.array([[1.0, 4.0], [4.0, 1.0]]))
    terms = {
        "whole": Curve(np.array([2.0, 1.0])),
        "cut": Curve(np.array([1.0, np.inf])),
    }
    nothing = {"whole": Curve(np.array([np.inf, np.inf]))}
    panels = {"norms": {"line": norms}, "terms": terms, "none": nothing}
    first, second, third = trajectories.draw_lines(panels, "title", "norm").axes
    np.testing.assert_allclose(first.get_lines()[0].get_ydata(), [2.0, 2.0])
    assert first.get_yscale() == "log"
    whole, cut = second.get_lines()
    np.testing.assert_array_equal(whole.get_ydata(), [2.0, 1.0])
    assert cut.get_ydata()[1] > second.get_ylim()[1]
    assert not third.get_lines()


def test_every_changed_cell_of_a_heat_map_says_its_number():
    ratios = np.array([[0.5, 1.23], [1.0, 1e9]])
    panels = {"one": ratios, "two": np.ones((2, 2))}
    axes, other, _ = trajectories.draw_ratios(panels, "title").axes
    assert [text.get_text() for text in axes.texts] == ["0.50", "1.23", "", "1e9"]
    assert "".join(text.get_text() for text in other.texts) == "unchanged"
    np.testing.assert_allclose(axes.get_images()[0].get_array(), np.log(ratios))
