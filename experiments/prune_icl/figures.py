"""The pictures of the experiment."""

from typing import Any

import numpy as np

from experiments.prune_icl.algorithm import condition_numbers
from experiments.prune_icl.analysis import PruningMeasurements, kept_table
from experiments.prune_icl.config import Config
from experiments.prune_icl.drawing import (
    Gain,
    RatePanel,
    condition_numbers_by_layer,
    errors_against_rate,
    gains_of_choices,
)
from experiments.prune_icl.subjects import CONDITIONS
from icltheory import pruning
from icltheory.layered import get_matrix
from icltheory.plotting import Curve
from icltheory.statistics import Estimate


def _ticks(measured: PruningMeasurements) -> list[str]:
    subject = measured.subject
    return [
        f"{rate:.2f}".removeprefix("0") + f"\n({rank})"
        for rate, rank in zip(subject.rates, subject.ranks, strict=True)
    ]


def _curves(errors: np.ndarray, level: float) -> tuple[dict[str, Curve], float]:
    """One curve a layer, from (seeds, layers, rates, prompts), and the baseline.

    The band is the interval of the paired difference to the unpruned model.
    """
    errors = errors.mean(axis=0, dtype=np.float64)
    base = errors[:1, :1]
    mean, start = errors.mean(axis=-1), base.mean()
    low, high = Estimate.of(errors - base, axis=-1).interval(level)
    curves = {
        f"layer {layer}": Curve(mean[layer], start + low[layer], start + high[layer])
        for layer in range(len(mean))
    }
    return curves, float(start)


def _panel(
    measured: PruningMeasurements,
    config: Config,
    module: int,
    condition: str,
    shot: int = -1,
) -> RatePanel:
    errors = measured.at(condition, shot)[:, :, module]
    curves, baseline = _curves(errors, config.level)
    return RatePanel(_ticks(measured), curves, baseline)


def draw(all_measured: list[PruningMeasurements], config: Config) -> dict[str, Any]:
    """All figures by file name."""
    percent = f"{100 * config.level:g} %"
    seeds = len(all_measured[0].subject.params)
    note = f"{config.test_prompts:,} test prompts, {seeds} seeds"
    by_layer, by_shots, by_condition, kinds = {}, {}, {}, {}
    for m in all_measured:
        subject = m.subject
        for place, module in enumerate(subject.modules):
            title = f"{subject.name}, {module}, k = {subject.shots[-1]}"
            by_layer[title] = _panel(m, config, place, "standard")
        for place in range(min(2, len(subject.modules))):
            for shot, k in enumerate(subject.shots[:4]):
                title = f"{subject.name}, {subject.modules[place]}, k = {k}"
                by_shots[title] = _panel(m, config, place, "standard", shot)
        for condition in CONDITIONS:
            title = f"{subject.name}, {condition}"
            by_condition[title] = _panel(m, config, 0, condition)
        for module in m.magnitude:
            kinds[f"{subject.name}, {module}"] = _kinds(m, module)
    return {
        "figure1_layers.png": errors_against_rate(
            by_layer,
            f"Clipping one module of one layer ({note};\nbands: {percent} intervals "
            "of the paired difference to the unpruned model, dotted)",
            columns=2,
        ),
        "figure2_shots.png": errors_against_rate(
            by_shots, f"Clipping at k shots ({note})", columns=4
        ),
        "figure_conditions.png": errors_against_rate(
            by_condition, f"Clipping attention under shifts ({note})"
        ),
        "figure_magnitude.png": errors_against_rate(
            kinds,
            "SVD (solid) against magnitude pruning (dashed)\n"
            f"at equal numbers of stored parameters ({config.test_prompts:,} "
            "test prompts, one seed)",
        ),
        "figure3_condition_numbers.png": condition_numbers_by_layer(
            {m.subject.name: _matrices(m) for m in all_measured},
            "Condition numbers after training (points: seeds)",
        ),
        "figure4_algorithm1.png": gains_of_choices(
            {c: _gains(all_measured, c) for c in CONDITIONS},
            f"Rate chosen on {config.validation_prompts:,} validation prompts, judged "
            f"on {config.test_prompts:,} others ({percent} intervals);\n"
            "all against the unpruned model, beyond scaling against the scaled answer",
        ),
    }


def _kinds(m: PruningMeasurements, module: str) -> RatePanel:
    """SVD and magnitude pruning of one module, over the share of parameters kept."""
    place = m.subject.modules.index(module)
    chosen = m.asked.parts["standard", "test"]
    clipped = m.errors[0, :, place][..., chosen, -1].mean(axis=-1)
    by_size = m.magnitude[module][..., chosen, -1].mean(axis=-1)
    names = [f"layer {layer}" for layer in m.subject.layers]
    shares = kept_table(m, module)
    ticks = [
        f"{100 * share:.0f} %\n({rank})"
        for share, rank in zip(shares, m.subject.ranks, strict=True)
    ]
    return RatePanel(
        ticks,
        {name: Curve(row) for name, row in zip(names, clipped, strict=True)},
        float(clipped[0, 0]),
        {name: Curve(row) for name, row in zip(names, by_size, strict=True)},
        "parameters stored (rank of the SVD)",
    )


def _matrices(m: PruningMeasurements) -> dict[str, tuple[np.ndarray, float]]:
    subject = m.subject
    values = np.array(
        [condition_numbers(subject, s) for s in range(len(subject.params))]
    )
    found = {}
    for place, spec in enumerate(subject.model.matrices(0)):
        shape = get_matrix(subject.params[0], spec).shape
        null = pruning.random_condition_number(shape)
        found[f"{spec.name} {shape[0]} x {shape[1]}"] = (values[:, :, place], null)
    return found


def _gains(all_measured: list[PruningMeasurements], condition: str) -> dict[str, Gain]:
    gains = {}
    for m in all_measured:
        for c in m.choices:
            if c.condition != condition:
                continue
            label = f"{c.model}, {c.rule}, seed {c.seed}"
            gains[label] = Gain(c.validation, c.test, c.low, c.high, c.what)
    return gains
