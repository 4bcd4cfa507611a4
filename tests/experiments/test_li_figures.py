"""The experiment on unpublished settings: its limits, its votes, a small run."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import li_figures as li
from experiments.cot import PUBLISHED, PUBLISHED_LENGTHS
from experiments.pattern_layers import Layers
from experiments.shared.patterns import PatternEnsemble
from icltheory.chain_of_thought import vote_error
from icltheory.runs import plain

GRID = li.VoteGrid(
    prompts=40, probabilities=(0.5, 0.65), gaps=(0.5, 0.6), rivals=(1,), steps=(1, 2)
)


def test_the_size_of_a_row_solves_the_balance():
    count, excess, w_f, w_b = 53, 0.0144, 0.24, 0.41
    f, b = (w * np.sqrt(count * w**2 + excess) for w in (w_f, w_b))
    assert li.balanced_size(f, b, count, excess) == pytest.approx(np.hypot(w_f, w_b))


def test_limits_of_angle_pruning_and_neighbours():
    assert li.least_attention_scale(0.5, 1.2, 0.6) == pytest.approx(2.0)
    assert li.pruned_error_bound(0.95, 0.5) == pytest.approx(0.2)
    assert li.pruned_error_bound(0.95, 1.5) == li.pruned_error_bound(0.1, 0.5) == 1
    needs = li.pruning_needs(0.2, 0.95)
    assert li.pruned_error_bound(0.95, needs) == pytest.approx(0.2)
    assert li.nearest_neighbour_error(1.0, 3) == pytest.approx(1 / 8)
    assert li.nearest_neighbour_error(0.5, 1) == pytest.approx(0.5)


def test_the_linear_program_knows_what_votes_can_do():
    """Errors of a vote are met exactly; a rise with alpha' is not."""
    lengths = (6, 12)
    exact = {
        a: [float(vote_error(0.7, l, a).wrong) for l in lengths] for a in (0.5, 1.0)
    }
    assert li.least_factor(exact, lengths, falling=False) < 1.001
    # One vote more or less: errors that grow fourfold with alpha' need at least 2.
    rising = {0.5: [0.1], 1.0: [0.4]}
    assert li.least_factor(rising, (12,)) == pytest.approx(2, abs=1e-3)


@pytest.mark.statement("Li CoT: Figures 17 and 18")
def test_figure_17_is_near_what_votes_can_do():
    curves = PUBLISHED["alpha'"]
    assert li.least_factor(curves, PUBLISHED_LENGTHS) == pytest.approx(1.287, abs=0.01)


def test_rows_are_distributions_with_the_right_follower_first():
    row = li.row_of(0.5, 0.6, 2, 10)
    np.testing.assert_allclose(row, [0.5, 0.2, 0.2] + [0.1 / 7] * 7)
    assert li.row_of(0.8, 0.3, 1, 10) is None  # .8 + .56 is more than 1
    assert li.row_of(0.3, 0.9, 1, 10) is None  # the others were above the rival
    assert li.row_of(0.6, 1 / 3, 1, 3).sum() == pytest.approx(1)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_votes_between_two_states_have_the_exact_error(fraction):
    """First step, and plain in-context learning of one step; ties by a fair coin."""
    grid = dataclasses.replace(GRID, prompts=4_000, states=3)
    chain, direct = li.voter(grid, (7, 15))(np.array([0.6, 0.4, 0.0]), fraction)
    for place, length in enumerate((7, 15)):
        exact = vote_error(0.6, length, fraction)
        # Without any vote, two of three states are wrong.
        nobody = (1 - fraction) ** length
        p = float(exact.wrong + (exact.tied - nobody) / 2 + nobody * 2 / 3)
        error = np.sqrt(p * (1 - p) / grid.prompts)
        assert abs(chain[0, place] - p) < 4 * error
        assert abs(direct[0, place] - p) < 4 * error


def test_two_steps_of_plain_learning_have_the_error_of_the_product():
    grid = dataclasses.replace(GRID, prompts=4_000, states=3)
    _, direct = li.voter(grid, (15,))(np.array([0.8, 0.2, 0.0]), 1.0)
    # Offsets 0, 1, 2 of the final state: .64, .32, .04.
    draws = np.random.default_rng(1).choice(3, p=[0.64, 0.32, 0.04], size=(20_000, 15))
    counts = np.stack([(draws == s).sum(1) for s in range(3)], axis=1)
    lost = (counts.argmax(1) != 0).mean()
    assert abs(direct[1, 0] - lost) < 4 * np.sqrt(lost / grid.prompts)


def test_the_best_task_is_the_one_whose_errors_are_published():
    published, found = PUBLISHED["alpha'"], {}
    for fraction, wanted in published.items():
        for p, scale in ((0.5, 2.0), (0.65, 1.0)):
            errors = scale * np.array([0.4, *wanted])
            found[li.Task(p, 0.5, 1, fraction, 1)] = errors, errors
    curves = [*li.curves_of("alpha'").values()]
    candidates = [
        [[task] for task in group] for group in li.grouped(found, lambda task: task.p)
    ]
    fit = li.best(curves, candidates, found, 1e-9)
    assert {task.p for task in fit["tasks"]} == {0.65}
    assert fit["typical"] == pytest.approx(1)
    assert fit["largest"] == pytest.approx(1)


def probes(**given):
    """Probes of one training with two snapshots; norms as published unless given."""
    names = ("attention", "feature_turn", "label_turn", "angle_ratio", "drift", "hinge")
    values = dict.fromkeys((*names, "error", "small_first", "random"), 0.0)
    values |= li.ENDS | {"large": 53.0} | given
    return {k: np.broadcast_to(np.asarray(v, float), (1, 2)) for k, v in values.items()}


def one_layer(**given):
    row = {"shifts": (1, 2), "settings": [(2.0, 0.5)], "steps": [0, 20]}
    return row | {"probes": probes(**given)}


def three_layers():
    norm = np.array([[0.01] * 3, [0.026, 0.05, 0.036], [np.nan] * 3])
    angle = np.array([[0.5] * 3, [0.4, 0.2, 0.48], [np.nan] * 3])
    row = {"rule": "Adam", "step size": 1e-3, "scale": 0.007, "steps": [0, 5, 10]}
    measured = {"norm": norm, "angle": angle, "attention": norm, "hinge": norm[:, 0]}
    return row | measured


def test_levels_are_measured_again_on_fresh_prompts_and_reported():
    config = li.Config(votes=GRID, fresh_prompts=60)
    found = li.search(GRID)
    assert len(found) == 4 * 4 * 2  # rows, fractions, steps
    fits = li.levels(config, found)
    assert len(fits) == 2 + 2 + 1 + 3  # no tasks here have the labels' values of rho
    (named,) = [level for level in fits if level["name"].endswith("as labelled")]
    taus = [task.tau for task in named["tasks"]]
    np.testing.assert_allclose(taus, list(PUBLISHED["tau"]))
    for level in fits:
        assert level["typical"] >= 1
        assert len(level["curves"]) == len(level["tasks"]) == len(level["errors"])
    single = [one_layer(angle_ratio=0.5, drift=0.01)]
    made = li.report(config, fits, single, [three_layers()])
    assert made.passed
    assert len(made.tables) == 4
    held = {claim.claim[:9]: claim.held for claim in made.claims}
    assert held["Figures 8"]
    assert not held["Figure 11"]
    assert set(made.figures) == {"levels.png", "norms.png"}
    json.dumps(plain(made.numbers), allow_nan=False)


def test_the_nearest_stop_and_the_largest_rise_are_found():
    one = one_layer(query=[3.5, 1.75], error=[0.03, 0.01], random=[0.9, 0.05])
    (stops,) = li.stops_of([one])
    near = min(stops, key=lambda stop: stop["factor"])
    assert (near["step"], near["gain"]) == (20, 2.0)
    assert near["factor"] == pytest.approx(1)
    most = li.largest_rise([stops], 0.02)
    assert most["step"] == 20
    assert li.rise(most) == pytest.approx(0.04)
    assert li.largest_rise([stops], 0.005) is None


def test_what_a_relation_is_off_is_the_worst_of_all_stops():
    one = one_layer(angle_ratio=[0.2, 0.7], drift=[0.03, 0.01])
    worst = li.worst_relations(li.OneLayerGrid().ensemble, [one])
    assert worst["angle"] == 0.7
    assert worst["drift"] == 0.03
    # The published norms are in balance.
    assert worst["size"] < 0.01


def test_layers_are_compared_by_norm_and_by_turn():
    (stop,) = li.nearest_layers([three_layers()])
    assert stop["step"] == 5
    assert stop["factor"] == pytest.approx(1)
    assert stop["ratio"] == pytest.approx(3)


@pytest.mark.slow
def test_a_small_training_of_one_layer_obeys_the_relations():
    """Two gains with one product of gain and step size learn at one speed at first."""
    small = {"num_irrelevant": 6, "num_neurons": 8, "batch_size": 8}
    ensemble = PatternEnsemble(**small, steps=20, record_every=10, seeds=(0,))
    sizes = {"gains": (1.0, 4.0), "rates": (0.25,), "prompts": 16, "orders": 1}
    found = li.train_one_layer(li.OneLayerGrid(ensemble, **sizes), (1, 2))
    assert found["settings"] == [(1.0, 0.25), (4.0, 0.0625)]
    assert found["steps"] == [0, 10, 20]
    probes = found["probes"]
    assert probes["query"].shape == (2, 3)
    for name, values in probes.items():
        if name != "hinge":
            np.testing.assert_array_equal(values[0, 0], values[1, 0])
    np.testing.assert_allclose(probes["label"][0], probes["label"][1], rtol=0.01)
    assert np.all(probes["query"][:, 2] != probes["query"][:, 0])
    assert np.all(probes["angle_ratio"] <= 1.01)
    assert np.all(probes["drift"] <= 0.1)
    np.testing.assert_array_equal(probes["drift"][:, 0], 0)


@pytest.mark.slow
def test_a_small_training_of_three_layers_is_followed():
    small = {"num_irrelevant": 6, "num_neurons": 8, "batch_size": 4}
    trained = Layers(**small, steps=4, record_every=2, seeds=(0,))
    grid = li.LayerGrid(trained, scales=(0.01, 0.1), descent=(0.3,), prompts=16)
    first, second = li.train_three_layers(grid, "descent", grid.descent)
    assert (first["scale"], second["scale"]) == (0.01, 0.1)
    assert first["steps"] == [0, 2, 4]
    for name in ("norm", "angle", "attention"):
        assert first[name].shape == (3, 3)
    # delta xi sqrt(d) and what the noise of W_V adds; ten times the scale.
    np.testing.assert_allclose(second["norm"][0], 10 * first["norm"][0], rtol=1e-4)
    assert np.all(first["angle"] <= 0.5)
