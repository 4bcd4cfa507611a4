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
from experiments.cot.settings import (
    FAITHFUL,
    FRACTION,
    POPULAR,
    RHO,
    SLIDE,
    TAU,
    ReasoningSetting,
)
from experiments.cot.theory import TheoryLines
from icltheory.chain_of_thought import AttentionMasses
from icltheory.statistics import Estimate

_COT, _ICL = 1, 2
_SYMBOLS = {FRACTION: r"$\alpha'$", TAU: r"$\tau$", RHO: r"$\rho$"}
_QUANTITIES = {
    FRACTION: r"share of relevant examples $\alpha'$",
    TAU: r"least probability of a correct path $\tau$",
    RHO: r"least gap of the two likeliest states $\rho$",
}
_CLASSES = {
    "same_step_same_input": "same step,\nsame input",
    "same_step_other_input": "same step,\nother input",
    "other_step_same_input": "other step,\nsame input",
    "other_step_other_input": "other step,\nother input",
}
_TITLES = {
    SLIDE: "Condition 1 fails for one input",
    POPULAR: "Condition 1 fails for all inputs",
    FAITHFUL: "Condition 1 holds",
}


def figures(
    config: Config,
    masses: AttentionMasses,
    swept: list[tuple[ReasoningSetting, SettingErrors]],
    compared: list[tuple[ReasoningSetting, SettingErrors, TheoryLines]],
) -> dict[str, Figure]:
    """Draws all figures of a run, by file name."""
    of = f"{len(config.seeds)} trainings"
    kinds = {
        "dots": f"trained (95 % interval of {of})",
        "dashed": "votes counted",
        "dotted": "proved bound",
    }
    lengths = errors_against_length(
        _length_panels(config, swept),
        f"Error of chain of thought over {config.chain_steps} steps",
        {kind: kinds[kind] for kind in ("dots", "dashed")},
        ylabel="error",
    )
    needed = lengths_that_suffice(
        _need_panels(config, swept),
        "Prompt length against what Theorem 5 says it depends on",
        f"examples for a CoT error of {LEVEL:g}",
    )
    comparison = errors_against_length(
        _comparison_panels(config, compared),
        "Errors of chain of thought (CoT) and of plain in-context learning (ICL), "
        "which tends to its limit",
        kinds,
        ylabel="error",
        floor=3e-4,
    )
    names = "the step is found", "the input leads"
    stages = dict(zip(names, stage_ends(config, masses), strict=True))
    mechanism = attention_along_training(
        np.arange(0, config.iterations + 1, config.record_every),
        {label: getattr(masses, name) for name, label in _CLASSES.items()},
        {name: stage for name, stage in stages.items() if np.isfinite(stage)},
        f"Attention on examples along training (mean and range of {of})",
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
        series = []
        own = [(s, m) for s, m in swept if s.group == group]
        for colour, (setting, measured) in enumerate(own, start=1):
            name = f"{symbol} = {setting.value:g}"
            series += _trained_and_counted(measured, "mean", colour, name)
        panels[_panel_title(config, group)] = LengthPanel(config.lengths, series)
    return panels


def _trained_and_counted(
    measured: SettingErrors, field: str, colour: int, name: str
) -> list[LengthSeries]:
    found = Estimate.of(np.asarray(getattr(measured.trained, field)))
    counted = np.mean(getattr(measured.counting, field), axis=0)
    return [
        LengthSeries(found.mean, found.half_width(), "dots", colour, name),
        LengthSeries(counted, None, "dashed", colour),
    ]


def _panel_title(config, group) -> str:
    alpha = rf"$\alpha' = {config.chain_fraction:g}$"
    return {
        FRACTION: rf"$\tau = {config.tau_of_rhos:g}$, $\rho = {config.rhos[0]:g}$",
        TAU: rf"$\rho = {config.rho_of_taus:g}$, {alpha}",
        RHO: rf"$\tau = {config.tau_of_rhos:g}$, {alpha}",
    }[group]


def _need_panels(config, swept) -> dict[str, NeedPanel]:
    panels = {}
    for group, quantity in _QUANTITIES.items():
        values, trained, counting = needed(config, swept, group)
        proved, asked = predicted(config, group, values)
        panels[quantity] = NeedPanel(
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
        series = []
        for name, field, bound, colour in (
            ("CoT", "mean", lines.cot_bound, _COT),
            ("ICL", "direct", lines.icl_bound, _ICL),
        ):
            series += _trained_and_counted(measured, field, colour, name)
            bound = np.where(bound < 1, bound, np.nan)
            series.append(LengthSeries(bound, None, "dotted", colour))
        title = _TITLES.get(str(setting.value), str(setting.value))
        panels[f"{title}\n" + rf"$\alpha' = {setting.fraction:g}$"] = LengthPanel(
            config.compare_lengths, series, lines.icl_limit
        )
    return panels
