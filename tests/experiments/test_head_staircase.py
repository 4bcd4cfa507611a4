"""The experiment head_staircase: ends of plateaus, long rests, figures, a small run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import head_staircase
from icltheory import regression as reg

SMALL = """
    --preset cpu --eigenvalues 2 0.8 --heads 2 --scales 0.1 0.05 --seeds 0 1
    --sgd-seeds 0 1 --sgd-steps 100 --points 20 --lengths 1 6 --batch-size 4
"""
CONFIG = head_staircase.Config(eigenvalues=(2.0, 1.0))
LEVELS = np.array([3.0, 2.0, 1.5])


def made(kind="rank 1", scale=0.003):
    """A path of one start that falls in two steps, at times 10 and 100."""
    times = np.append(0, np.geomspace(1, 1000, 200))[None]
    falls = (times >= 10).astype(float) + (times >= 100) / 2
    removed = np.stack([times >= 100, times >= 10], axis=2) * np.array([0.5, 1.0])
    heads = reg.Heads(jnp.ones((1, 201, 2)), jnp.zeros((1, 201, 2, 2, 2)))
    found = {"kind": kind, "scale": scale, "levels": LEVELS, "times": times}
    found |= {"risks": 3.0 - falls, "learned": np.array([0, 1]), "removed": removed}
    found |= {"predicted": np.array([[10.0, 80.0]]), "succeeded": True}
    found |= {"measured": np.array([[10.0, 100.0]]), "heads": np.array([[1, 0]])}
    return found | {"models": heads}


# A path has a leading axis of times, which the checks of one layer refuse.
@pytest.fixture(autouse=True)
def without_checks(monkeypatch):
    monkeypatch.setattr(reg.Heads, "__post_init__", lambda self: None)


def test_a_long_rest_has_its_level_and_the_worth_of_its_heads():
    (row,) = head_staircase.rests(made())
    assert row == {
        "learned": 1.0,
        "level": 2.0,
        "gain": 1.0,
        "risk": 2.0,
        "worth": 1.0,
        "others": 0.0,
    }
    short = made() | {"measured": np.array([[10.0, 20.0]])}
    assert head_staircase.rests(short) == []


def test_errors_are_those_of_the_ends():
    first, second = head_staircase.errors([made()])
    assert (first["learned"], first["largest_error"]) == (0, 0.0)
    assert second["median_error"] == pytest.approx(0.25)
    assert (second["predicted"], second["measured"]) == (80.0, 100.0)


def test_merged_heads_are_worth_their_share_squared():
    merged = made("merged") | {"removed": np.full((1, 201, 2), 1.5 / 4)}
    assert head_staircase.shares(merged) == pytest.approx(0, abs=1e-15)


def test_times_are_dense_around_the_ends():
    times = head_staircase.recorded(CONFIG, np.array([50.0, 400.0]))
    assert np.all(np.diff(times) >= 0)
    assert np.diff(times)[np.searchsorted(times, 400.0)] < 0.05


def test_paths_and_removals_are_drawn_as_given():
    kinds = list(head_staircase.KINDS)
    config = head_staircase.Config(eigenvalues=(2.0, 1.0), scales=(0.003,))
    found = [made(kind) for kind in kinds]
    figure = head_staircase.draw_staircases(config, found)
    assert [axes.get_title() for axes in figure.axes] == kinds
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2]
    np.testing.assert_array_equal(lines[0].get_ydata(), made()["risks"][0, 1:])
    (circles,) = (a for a in figure.axes[0].get_lines() if a.get_marker() == "o")
    np.testing.assert_array_equal(circles.get_xdata(), [10.0, 80.0])
    np.testing.assert_array_equal(circles.get_ydata(), [2.5, 1.75])
    removed = [
        {"length": N, "eigenvalue": value, "change": N - 2, "predicted": N - 2}
        for N in (1, 4)
        for value in (2.0, 1.0)
    ]
    left, _, right = head_staircase.draw_removals(config, found, removed).axes
    whole = left.get_lines()[2].get_ydata()
    np.testing.assert_array_equal(whole, made()["risks"][0, 1:])
    assert right.get_lines()[1].get_ydata().tolist() == [-1, 2]


@pytest.mark.slow
def test_a_run_reports_levels_times_and_removals(small_run):
    _, result, pictures = small_run(head_staircase, SMALL)
    assert pictures == {"staircases", "removals", "sgd"}
    with jax.enable_x64(True):
        task = head_staircase.problem(head_staircase.Config(eigenvalues=(2.0, 0.8)))
        levels = reg.head_plateaus(task, 16)
    np.testing.assert_allclose(result["levels"], levels, rtol=1e-5)
    ends = {(r["kind"], r["scale"], r["learned"]): r for r in result["ends"]}
    assert ends["rank 1", 0.05, 0]["largest_error"] < 0.1
    for row in result["removals"]:
        assert row["change"] == pytest.approx(row["predicted"], abs=1e-3)
    numbers = {check["name"]: check["measured"] for check in result["checks"]}
    assert numbers["all times reached"] == 1
    assert numbers["worth of merged heads: largest error / scale"] < 2
