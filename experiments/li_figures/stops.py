"""Selects the snapshot of each training that is closest to the published norms."""

from typing import NamedTuple

import numpy as np

from experiments.li_figures.layers import LayerRun
from experiments.li_figures.limits import balanced_size
from experiments.li_figures.one_layer import OneLayerGrid, Trained
from experiments.li_figures.published import LAYERS, NORMS, RANGES


class Stop(NamedTuple):
    """One training at one snapshot.

    Attributes:
        shifts: Its set of tasks.
        gain: Size of its second layer, m |a_i|.
        step_size: Its step size.
        step: The snapshot.
        values: What was measured there, by the names of the probes.
        factor: Typical ratio of its norms to the published ones, as a factor.
    """

    shifts: tuple[int, ...]
    gain: float
    step_size: float
    step: int
    values: dict[str, float]
    factor: float


def nearest_stops(trained: list[Trained]) -> list[Stop]:
    """Returns each training's best snapshot by the norms of Figures 8, 10, 11, 14."""
    return [
        min(_stops(one, place), key=lambda stop: stop.factor)
        for one in trained
        for place in range(len(one.settings))
    ]


def _stops(one: Trained, place: int):
    gain, step_size = one.settings[place]
    for at, step in enumerate(one.steps):
        values = {
            name: float(array[place, at])
            for name, array in one.probes._asdict().items()
        }
        targets = NORMS | {"size": float(np.mean(RANGES["size"]))}
        logs = [np.log(values[name] / target) for name, target in targets.items()]
        factor = float(np.exp(np.sqrt(np.mean(np.square(logs)))))
        factor = factor if np.isfinite(factor) else np.inf
        yield Stop(one.shifts, gain, step_size, step, values, factor)


def largest_rise(trained: list[Trained], most: float) -> Stop:
    """Returns the accurate snapshot at which pruning raises the 0-1 error most.

    Args:
        trained: All trainings.
        most: Largest 0-1 error before pruning.

    Returns:
        The stop; its rise is the larger one of the two orders.
    """
    stops = [
        stop
        for one in trained
        for place in range(len(one.settings))
        for stop in _stops(one, place)
        if stop.values["error"] <= most
    ]
    return max(stops, key=rise)


def rise(stop: Stop) -> float:
    """Rise of the 0-1 error by pruning, the larger of two pruning orders."""
    values = stop.values
    return max(values["small_first"], values["random"]) - values["error"]


def worst_relations(grid: OneLayerGrid, trained: list[Trained]) -> dict[str, float]:
    """Largest violation of each relation that holds for every setting."""
    ensemble = grid.ensemble
    delta, xi = ensemble.attention_scale, ensemble.neuron_scale
    excess = delta**2 - ensemble.num_neurons * xi**2
    start = xi**2 * 2 * (ensemble.num_relevant + ensemble.num_irrelevant)
    found = {"angle": 0.0, "drift": 0.0, "size": 0.0}
    for one in trained:
        probes = one.probes
        found["angle"] = max(found["angle"], float(np.nanmax(probes.angle_ratio)))
        found["drift"] = max(found["drift"], float(np.nanmax(probes.drift)))
        grown = np.asarray(probes.label) > 10 * delta * (start / 2) ** 0.5
        if grown.any():
            implied = balanced_size(
                probes.feature[grown], probes.label[grown], probes.large[grown], excess
            )
            off = probes.size[grown] / np.sqrt(implied**2 + start) - 1
            found["size"] = max(found["size"], float(np.nanmax(np.abs(off))))
    return found


class LayerStop(NamedTuple):
    """A training of three layers at the snapshot closest to the figures.

    Attributes:
        run: The training.
        place: The snapshot.
        factor: Typical ratio of the norm at the start and the sorted ones at the stop
            to the published ones, as a factor.
        ratio: The largest turn over the second largest, the most at any snapshot with a
            turn of at least .05 pi and norms that grew in every layer.
    """

    run: LayerRun
    place: int
    factor: float
    ratio: float


def nearest_layers(runs: list[LayerRun]) -> list[LayerStop]:
    """Selects a snapshot of every training that reached an in-domain hinge of 0.1."""
    published = np.array([LAYERS[0], *sorted(LAYERS[1])])
    found = []
    for run in runs:
        known = np.isfinite(run.norm).all(axis=1) & (run.hinge <= 0.1)
        if not known.any():
            continue
        start = np.full((len(run.norm), 1), run.norm[0].mean())
        norms = np.hstack([start, np.sort(run.norm, axis=1)])
        logs = np.log(norms / published)
        factor = np.exp(np.sqrt(np.mean(logs**2, axis=1)))
        place = int(np.argmin(np.where(known, factor, np.inf)))
        found.append(LayerStop(run, place, float(factor[place]), _ratio(run, known)))
    return found


def _ratio(run: LayerRun, known: np.ndarray) -> float:
    turn = np.sort(run.angle[0] - run.angle, axis=1)
    grown = (run.norm > run.norm[0]).all(axis=1)
    valid = known & grown & (turn[:, -1] >= 0.05)
    ratio = turn[:, -1] / np.maximum(turn[:, -2], 1e-3)
    return float(ratio[valid].max()) if valid.any() else 0.0
