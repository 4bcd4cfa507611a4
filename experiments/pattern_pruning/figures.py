"""Hands the numbers of a run to the drawing functions."""

from typing import Any

import numpy as np

from experiments.pattern_pruning.bridge import AXES, METHODS, MODULES, Bridge
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.drawing import (
    PrunedLine,
    errors_against_kept,
    errors_against_pruned,
    spectra_after_training,
)
from experiments.pattern_pruning.gpt2 import GptCurves
from experiments.pattern_pruning.gpt2_report import PUBLISHED, PUBLISHED_RATES
from experiments.pattern_pruning.neurons import TITLES, NeuronCurves
from experiments.pattern_pruning.summary import interval

_ORDERS = {order: TITLES[order] for order in ("magnitude", "random", "reverse")}


def figures(
    config: Config, found: NeuronCurves, gpt: GptCurves, bridge: Bridge
) -> dict[str, Any]:
    """All figures by file name."""
    count = len(config.ensemble.seeds)
    over = f"{count} seeds, 95 % intervals"
    return {
        "neurons.png": errors_against_pruned(
            found.sizes,
            _panels(config, found),
            f"Pruning neurons of the one-layer model ({over})",
        ),
        "gpt2.png": errors_against_pruned(
            gpt.sizes,
            _gpt_panels(config, gpt),
            f"Pruning MLP neurons of GPT-2 ({len(config.gpt_seeds)} seeds)",
            norm=r"$\|W_{in}(i, \cdot)\|$",
        ),
        "kept.png": errors_against_kept(
            _kept(config, bridge, "hinge"),
            f"Hinge error against the parameters that are kept ({over})",
            "hinge error",
        ),
        "kept_errors.png": errors_against_kept(
            _kept(config, bridge, "error"),
            f"0-1 error against the parameters that are kept ({count} seeds, range)",
            "0-1 error",
        ),
        "spectra.png": spectra_after_training(
            {_pretty(name): values for name, values in bridge.spectra.items()},
            {
                _pretty("W_O W_V"): 2,
                _pretty("W_K' W_Q"): config.ensemble.num_relevant - 1,
            },
            f"What training leaves ({count} seeds)",
        ),
    }


def _panels(config: Config, found: NeuronCurves):
    """Hinge and 0-1 error by order, in and out of domain; then by alpha'."""
    panels = {}
    for what, label in (
        ("hinge", "hinge error"),
        ("error", "0-1 error (range of the seeds)"),
    ):
        for test in (0, 1):
            lines = {}
            for colour, (order, name) in enumerate(_ORDERS.items(), start=1):
                curve = found.curves[order]
                values = getattr(curve, what)[:, :, test]
                lines[name] = _line(config.rates, values, colour, what)
                if what == "hinge":
                    formula = curve.counted[:, :, test].mean(0)
                    lines[f"{name}, $[1 - F(1 - g)]_+$"] = PrunedLine(
                        config.rates, formula, None, None, colour, "--"
                    )
            panels[_pretty(config.tests[test]), label] = lines
    title = f"$S_1$ = {config.coefficient_sum:g}, small first"
    values = found.curves["magnitude"].hinge[..., 1:]
    panels[title, "hinge error"] = _by_alpha(config, config.rates, values, "hinge")
    return panels


def _gpt_panels(config: Config, found: GptCurves):
    """Errors by order and by alpha', and what pruning adds where Figure 14 looks."""
    by_order, shown = {}, _pretty(config.tests[1])
    near = np.asarray(config.gpt_rates) <= PUBLISHED_RATES[-1] + 1e-6
    change = {}
    for colour, (order, name) in enumerate(_ORDERS.items(), start=1):
        error = found.error[order]
        by_order[name] = _line(config.gpt_rates, error, colour, "error")
        added = interval((error - error[:, :1])[:, near])
        change[name] = PrunedLine(
            np.asarray(config.gpt_rates)[near], *added, colour=colour
        )
        if order in PUBLISHED:
            level = np.asarray(PUBLISHED[order])
            read = PrunedLine(PUBLISHED_RATES, level, None, None, colour, "--")
            by_order[f"_{name}, published"] = read  # the next panel names it
            change[f"{name}, published"] = read._replace(mean=level - level[0])
    panels = {
        (shown, "0-1 error (range of the seeds)"): by_order,
        (shown, "added 0-1 error (95 % intervals)"): change,
        (shown, "hinge error (range of the seeds)"): {
            name: _line(config.gpt_rates, found.hinge[order], colour, "error")
            for colour, (order, name) in enumerate(_ORDERS.items(), start=1)
        },
    }
    title = f"$S_1$ = {config.coefficient_sum:g}, small first"
    for values, label in (
        (found.test_error, "0-1 error (range of the seeds)"),
        (found.test_hinge, "hinge error (range of the seeds)"),
    ):
        panels[title, label] = _by_alpha(
            config, config.gpt_rates, values[..., 1:], "error"
        )
    return panels


def _by_alpha(config: Config, rates, values, what: str):
    """A line for each alpha'; values are (seeds, rates, alphas)."""
    return {
        f"$\\alpha'$ = {alpha:g}": _line(
            rates, values[:, :, place], 4 + place % 3, what
        )
        for place, alpha in sorted(enumerate(config.alphas), key=lambda item: item[1])
    }


def _line(x, values, colour: int, what: str = "hinge") -> PrunedLine:
    """With an interval; with the range where seeds err on all prompts or on none."""
    mean, low, high = interval(values)
    if what == "error":
        low, high = values.min(0), values.max(0)
    return PrunedLine(np.asarray(x), mean, np.maximum(low, 0), high, colour)


def _kept(config: Config, bridge: Bridge, what: str):
    """Rows of panels: in domain, out of domain; a panel for each module."""
    rows = {}
    for test, name in enumerate(config.tests[:2]):
        rows[_pretty(name)] = row = {_pretty(module): {} for module in MODULES}
        for curve in bridge.curves:
            line = _line(
                curve.parameters / curve.total,
                getattr(curve, what)[:, :, test],
                1 + METHODS.index(curve.method),
                what,
            )
            if curve.method == AXES:  # often on top of another
                line = line._replace(style="--")
            row[_pretty(curve.module)][curve.method] = line
    return rows


def _pretty(name: str) -> str:
    """Symbols as formulas."""
    for symbol in ("W_O", "W_V", "W_Q", "W_K", "S_1"):
        name = name.replace(symbol, f"${symbol}$")
    return name.replace("alpha'", r"$\alpha'$")
