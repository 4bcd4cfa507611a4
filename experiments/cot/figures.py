"""The figures of a run."""

import numpy as np
from matplotlib.figure import Figure

from experiments.cot.config import Config
from experiments.cot.drawing import (
    LengthPanel,
    LengthSeries,
    NeedPanel,
    attention_along_training,
    errors_against_length,
    lengths_that_suffice,
)
from experiments.cot.findings import LEVEL, needed, predicted, stage_ends
from experiments.cot.measure import SettingErrors
from experiments.cot.settings import FRACTION, RHO, TAU, ReasoningSetting
from experiments.cot.theory import TheoryLines
from icltheory.chain_of_thought import AttentionMasses
from icltheory.statistics import Estimate

_COT, _ICL = 1, 2
_SYMBOLS = {FRACTION: r"$\alpha'$", TAU: r"$\tau$", RHO: r"$\rho$"}
_CLASSES = {
    "same_step_same_input": "same step, same input",
    "same_step_other_input": "same step, other input",
    "other_step_same_input": "other step, same input",
    "other_step_other_input": "other step, other input",
}


def figures(
    config: Config,
    masses: AttentionMasses,
    swept: list[tuple[ReasoningSetting, SettingErrors]],
    compared: list[tuple[ReasoningSetting, SettingErrors, TheoryLines]],
) -> dict[str, Figure]:
    """All figures by file name."""
    of = f"mean and 95 % interval of {len(config.seeds)} trainings"
    lengths = errors_against_length(
        _length_panels(config, swept),
        f"CoT error, {config.chain_steps} steps ({of}; dashed: votes counted)",
        ylabel="CoT error",
        shared_legend=False,
    )
    needed = lengths_that_suffice(
        _need_panels(config, swept),
        "Prompt length against what Theorem 5 says it depends on",
        f"examples for a CoT error of {LEVEL:g}",
    )
    comparison = errors_against_length(
        _comparison_panels(config, compared),
        f"Chain of thought and plain ICL, two steps ({of})",
        ylabel="error",
        floor=3e-4,
    )
    first, second = stage_ends(config, masses)
    mechanism = attention_along_training(
        np.arange(0, config.iterations + 1, config.record_every),
        {label: getattr(masses, name) for name, label in _CLASSES.items()},
        [stage for stage in (first, second) if np.isfinite(stage)],
        f"Attention along training, mean and range of {len(config.seeds)} seeds\n"
        "(dotted: the step is found; the input leads)",
    )
    return {
        "lengths.png": lengths,
        "needed.png": needed,
        "comparison.png": comparison,
        "mechanism.png": mechanism,
    }


def _length_panels(config, swept) -> dict[str, LengthPanel]:
    panels = {}
    for group, symbol in _SYMBOLS.items():
        series = {}
        own = [(s, m) for s, m in swept if s.group == group]
        for colour, (setting, measured) in enumerate(own, start=1):
            found = Estimate.of(np.asarray(measured.trained.mean))
            series[f"{symbol} = {setting.value:g}"] = LengthSeries(
                found.mean, found.half_width(), "dots", colour
            )
            series[f"_{setting.value}"] = LengthSeries(
                np.mean(measured.counting.mean, axis=0), None, "dashed", colour
            )
        panels[_panel_title(config, group)] = LengthPanel(config.lengths, series)
    return panels


def _panel_title(config, group) -> str:
    alpha = rf"$\alpha' = {config.chain_fraction:g}$"
    return {
        FRACTION: rf"$\tau = {config.tau_of_rhos:g}$, $\rho = {config.rhos[0]:g}$",
        TAU: rf"$\rho = {config.rho_of_taus:g}$, {alpha}",
        RHO: rf"$\tau = {config.tau_of_rhos:g}$, {alpha}",
    }[group]


def _need_panels(config, swept) -> dict[str, NeedPanel]:
    panels = {}
    for group, symbol in _SYMBOLS.items():
        values, trained, counting = needed(config, swept, group)
        proved, asked = predicted(config, group, values)
        panels[symbol] = NeedPanel(
            values,
            {"trained": trained, "votes counted": counting},
            {
                r"$\propto 1 / (\alpha' \tau (1 - \sqrt{1 - \rho})^2)$, proved": proved,
                r"$\propto (\alpha' \tau \rho)^{-2}$, Theorem 5": asked,
            },
        )
    return panels


def _comparison_panels(config, compared) -> dict[str, LengthPanel]:
    panels = {}
    ordered = sorted(
        compared, key=lambda part: config.compare_fractions.index(part[0].fraction)
    )
    for setting, measured, lines in ordered:
        parts = (("CoT", "mean", _COT), ("ICL", "direct", _ICL))
        series = {}
        for name, field, colour in parts:
            found = Estimate.of(np.asarray(getattr(measured.trained, field)))
            series[f"{name}, trained"] = LengthSeries(
                found.mean, found.half_width(), "dots", colour
            )
            counted = np.mean(getattr(measured.counting, field), axis=0)
            series[f"{name}, votes counted"] = LengthSeries(
                counted, None, "dashed", colour
            )
        bound = np.where(lines.cot_bound < 1, lines.cot_bound, np.nan)
        series["CoT, proved bound"] = LengthSeries(bound, None, "dotted", _COT)
        bound = np.where(lines.icl_bound < 1, lines.icl_bound, np.nan)
        series["ICL, proved bound"] = LengthSeries(bound, None, "dotted", _ICL)
        if lines.direct_votes is not None:
            middle = lines.direct_votes.mean(axis=1)
            series["ICL, exact vote"] = LengthSeries(middle, None, "crosses", 0)
        title = rf"{setting.value}, $\alpha' = {setting.fraction:g}$"
        panels[title] = LengthPanel(config.compare_lengths, series, lines.icl_limit)
    return panels
