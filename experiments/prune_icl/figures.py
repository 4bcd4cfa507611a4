"""The figures of the experiment."""

from typing import Any

import numpy as np

from experiments._frame.looks import page, plain_words
from experiments.prune_icl.algorithm import condition_numbers
from experiments.prune_icl.analysis import PruningMeasurements, inflation, kept_table
from experiments.prune_icl.conditions import (
    ConditionCurve,
    condition_numbers_along_depth,
)
from experiments.prune_icl.config import Config
from experiments.prune_icl.drawing import (
    ErrorCurve,
    Gain,
    RatePanel,
    errors_against_rate,
    gains_of_choices,
)
from experiments.prune_icl.subjects import CONDITIONS
from icltheory import pruning
from icltheory.layered import get_matrix
from icltheory.plotting import heat_map
from icltheory.statistics import Estimate, adjust_holm

RULES = ("exhaustive", "scaled answer", "beyond scaling")


def _panel(
    measured: PruningMeasurements,
    config: Config,
    module: int,
    condition: str,
    shot: int = -1,
) -> tuple[RatePanel, float]:
    """Returns a panel with one curve per layer, and the unpruned error.

    The band is the interval of the paired difference to the unpruned model, over
    prompts, for the mean of the seeds; Holm's family is the panel.
    """
    errors = measured.at(condition, shot)[:, :, module].mean(axis=0, dtype=np.float64)
    start = float(errors[0, 0].mean())
    found = Estimate.of(errors - errors[:1, :1], axis=-1)
    low, high = found.interval(config.level)
    # The first rate is the unpruned model itself, so it is not tested.
    tested = np.asarray(found.p_value("two-sided"))[:, 1:]
    sure = np.zeros(found.mean.shape, bool)
    sure[:, 1:] = np.asarray(adjust_holm(tested)) <= 1 - config.level
    ratios = (1 + part / start for part in (found.mean, low, high))
    curves = {
        f"layer {layer}": ErrorCurve(*parts)
        for layer, parts in enumerate(zip(*ratios, sure, strict=True))
    }
    return RatePanel(measured.subject.rates, curves), start


def _name(measured: PruningMeasurements, module: str) -> str:
    return f"{measured.subject.name}, {plain_words(module)}"


def _title(measured: PruningMeasurements, module: str, shots: int, start: float):
    return f"{_name(measured, module)}\n{shots} examples, unpruned {start:.2g}"


def draw(all_measured: list[PruningMeasurements], config: Config) -> dict[str, Any]:
    """Draws all figures by file name."""
    percent = f"{100 * config.level:g} %"
    seeds = len(all_measured[0].subject.params)
    prompts = f"mean of {seeds} seeds, {config.test_prompts:,} test prompts"
    note = f"{prompts}; bands: paired {percent} intervals; Holm over a panel"
    by_layer, by_shots, by_condition, kinds = {}, {}, {}, {}
    for m in all_measured:
        subject = m.subject
        for place, module in enumerate(subject.modules):
            found, start = _panel(m, config, place, "standard")
            by_layer[_title(m, module, subject.shots[-1], start)] = found
        for place in range(min(2, len(subject.modules))):
            for shot, k in enumerate(subject.shots[:4]):
                found, start = _panel(m, config, place, "standard", shot)
                title = _title(m, subject.modules[place], k, start)
                by_shots[title] = found
        for condition in CONDITIONS:
            found, start = _panel(m, config, 0, condition)
            by_condition[f"{subject.name}, {condition}\nunpruned {start:.2g}"] = found
        for module in m.magnitude:
            kinds[_name(m, module)] = _kinds(m, module)
    return {
        "figure1_layers.png": errors_against_rate(
            by_layer,
            f"Squared error / d after clipping one module of one layer\n({note})",
            columns=2,
        ),
        "figure2_shots.png": errors_against_rate(
            by_shots,
            f"Squared error / d after clipping, by in-context examples\n({note})",
            columns=4,
            sharey=True,
        ),
        "figure_conditions.png": errors_against_rate(
            by_condition,
            f"Squared error / d after clipping attention, under shifts\n({note})",
        ),
        "figure_magnitude.png": errors_against_rate(
            kinds,
            "Clipping singular values or small entries, at equal numbers of stored "
            f"parameters\n(one seed, {config.test_prompts:,} test prompts)",
            ways=("singular values", "entries by magnitude"),
        ),
        "layers_by_rate.png": _layers_by_rate(all_measured, f"geometric {prompts}"),
        "figure3_condition_numbers.png": condition_numbers_along_depth(
            {m.subject.name: _matrices(m) for m in all_measured},
            f"Condition numbers after training (points: {seeds} seeds; lines: "
            "geometric means)",
        ),
        "figure4_algorithm1.png": gains_of_choices(
            {c: _gains(all_measured, config, c) for c in CONDITIONS},
            f"Choice made on {config.validation_prompts:,} validation prompts, tested "
            f"on {config.test_prompts:,} others\n({percent} intervals, one line per "
            "seed; all against the unpruned model,\n"
            "beyond scaling against the scaled answer)",
        ),
    }


def _layers_by_rate(all_measured: list[PruningMeasurements], note: str) -> Any:
    """Draws the ratio to the unpruned error of every layer and rate as colours."""
    maps = {
        _name(m, module): (m.subject, inflation(m).mean(axis=0)[:, place])
        for m in all_measured
        for place, module in enumerate(m.subject.modules)
    }
    limit = max(float(np.abs(values).max()) for _, values in maps.values())
    title = f"Squared error over the unpruned error after clipping one layer\n({note})"
    with page(maps, 2, title, 2.2) as (axes, _):
        for ax, (subject, values) in zip(axes, maps.values(), strict=True):
            heat_map(
                values,
                ax=ax,
                columns=[f"{rate:.2g}" for rate in subject.rates],
                limit=limit,
                write=_factor,
                title=ax.get_title(),
            )
    return axes[0].figure


def _factor(log_ratio: float) -> str:
    factor = 10**log_ratio
    return f"{factor:,.0f}" if factor >= 100 else f"{factor:.2g}"


def _kinds(m: PruningMeasurements, module: str) -> RatePanel:
    """Returns a panel of SVD and magnitude pruning over the share of parameters kept.

    A low-rank matrix that needs more parameters than a dense one is stored dense: of
    the ranks with all parameters only the full one is drawn.
    """
    place = m.subject.modules.index(module)
    chosen = m.asked.parts["standard", "test"]
    clipped = m.errors[0, :, place][..., chosen, -1].mean(axis=-1)
    by_size = m.magnitude[module][..., chosen, -1].mean(axis=-1)
    shares = np.asarray(kept_table(m, module))
    drawn = shares < 1
    drawn[0] = True
    start = float(clipped[0, 0])
    solid, dashed = (
        {
            f"layer {layer}": ErrorCurve(row[drawn] / start)
            for layer, row in zip(m.subject.layers, errors, strict=True)
        }
        for errors in (clipped, by_size)
    )
    return RatePanel(shares[drawn].tolist(), solid, dashed, shares=True)


def _matrices(m: PruningMeasurements) -> dict[str, ConditionCurve]:
    subject = m.subject
    values = np.array(
        [condition_numbers(subject, s) for s in range(len(subject.params))]
    )
    found = {}
    for place, spec in enumerate(subject.model.matrices(0)):
        rows, columns = get_matrix(subject.params[0], spec).shape
        found[spec.name] = ConditionCurve(
            list(subject.layers),
            values[:, :, place],
            pruning.random_condition_number((rows, columns)),
            f"{max(rows, columns)} x {min(rows, columns)}",
        )
    return found


def _gains(
    all_measured: list[PruningMeasurements], config: Config, condition: str
) -> dict[str, list[Gain]]:
    """Returns gains of each seed by model and rule, with Holm's correction."""
    everything = [c for m in all_measured for c in m.choices]
    sure: set[int] = set()
    for rule in ("Algorithm 1", *RULES):
        own = [c for c in everything if c.rule.startswith(rule)]
        after = np.asarray(adjust_holm([c.p_better for c in own])) <= 1 - config.level
        sure |= {id(c) for c, holds in zip(own, after, strict=True) if holds}
    found: dict[str, list[Gain]] = {}
    for c in everything:
        if c.condition == condition:
            rule, _, module = c.rule.partition(", ")
            name = f"{c.model}, {rule}{module and f', {plain_words(module)}'}"
            gain = Gain(c.validation, c.test, c.low, c.high, id(c) in sure)
            found.setdefault(name, []).append(gain)
    return found
