"""Draws the figures of a run."""

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
    """Draws all figures by file name."""
    count = len(config.ensemble.seeds)
    over = f"{count} seeds, 95 % intervals"
    return {
        "neurons.png": errors_against_pruned(
            _panels(config, found),
            f"Pruning neurons of the one-layer model ({over})",
            found.sizes,
        ),
        **_gpt_figures(config, gpt),
        **_kept_figures(config, bridge, "hinge", over),
        **_kept_figures(config, bridge, "error", f"range of {count} seeds"),
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
    """Returns the panels of the out-of-domain hinge error by pruning order."""
    lines = {}
    for colour, (order, name) in enumerate(_ORDERS.items(), start=1):
        curve = found.curves[order]
        lines[name] = _line(config.rates, curve.hinge[:, :, 1], colour)
        lines[f"_{name}, formula"] = PrunedLine(
            config.rates,
            curve.counted[:, :, 1].mean(0),
            colour=colour,
            style="--",
            kind="neurons counted by sign, $[1 - F(1 - g)]_+$",
        )
    return {(_where(config, 1), "hinge error"): lines}


def _where(config: Config, test: int) -> str:
    alpha = f"$\\alpha'$ = {config.alphas[max(test - 1, 0)]:g}"
    domain = (
        f"out of domain, $S_1$ = {config.coefficient_sum:g}" if test else "in domain"
    )
    return f"{domain}, {alpha}"


def _gpt_figures(config: Config, found: GptCurves):
    """Draws GPT-2's 0-1 error by order with the published one, and errors by alpha'."""
    by_order = {}
    rates = np.asarray(config.gpt_rates)
    for colour, (order, name) in enumerate(_ORDERS.items(), start=1):
        error = found.error[order]
        by_order[name] = _line(rates, error, colour, "error")
        if order in PUBLISHED:
            level = np.asarray(PUBLISHED[order])
            look: dict[str, Any] = {"colour": colour, "style": "--"}
            read = PrunedLine(PUBLISHED_RATES, level, **look, kind="published")
            by_order[f"_{name}, published"] = read
    shown = _where(config, 1)
    small = f"out of domain, $S_1$ = {config.coefficient_sum:g}, small first"
    orders = {(shown, "0-1 error"): by_order}
    alphas = {
        (small, "0-1 error"): _by_alpha(config, found.test_error[..., 1:]),
        (small, "hinge error"): _by_alpha(config, found.test_hinge[..., 1:]),
    }
    of = f"Pruning MLP neurons of GPT-2: mean of {len(config.gpt_seeds)} seeds"
    return {
        "gpt2.png": errors_against_pruned(
            {title: _first_band(lines) for title, lines in orders.items()},
            f"{of}\n(band of small first: range of the seeds)",
            found.sizes,
            norm=r"$\|W_{in}(i, \cdot)\|$",
        ),
        "gpt2_fractions.png": errors_against_pruned(
            {title: _first_band(lines) for title, lines in alphas.items()},
            f"{of}\n(bands of the least $\\alpha'$: range of the seeds)",
        ),
    }


def _by_alpha(config: Config, values):
    """Returns one line for each alpha', from values (seeds, rates, alphas)."""
    return {
        f"$\\alpha'$ = {alpha:g}": _line(
            config.gpt_rates, values[:, :, place], 4 + place % 3, "error"
        )
        for place, alpha in sorted(enumerate(config.alphas), key=lambda item: item[1])
    }


def _first_band(lines: dict[str, PrunedLine]) -> dict[str, PrunedLine]:
    """Removes the bands of all lines except the first."""
    first, *others = lines
    return {first: lines[first]} | {
        name: lines[name]._replace(low=None, high=None) for name in others
    }


def _line(x, values, colour: int, what: str = "hinge") -> PrunedLine:
    """Returns a line of the mean with an interval, or the range for 0-1 errors."""
    mean, low, high = interval(values)
    if what == "error":
        low, high = values.min(0), values.max(0)
    return PrunedLine(np.asarray(x), mean, np.maximum(low, 0), high, colour)


def _kept_figures(config: Config, bridge: Bridge, what: str, bands: str):
    """Draws one figure in domain and one out of domain, by file name."""
    name = {"hinge": "kept", "error": "kept_errors"}[what]
    return {
        f"{name}{suffix}.png": errors_against_kept(
            _kept(config, bridge, what, test),
            "Keeping singular values, entries or neurons: error at equal numbers of "
            f"parameters\n({_where(config, test)}; bands: {bands})",
            {"hinge": "hinge error", "error": "0-1 error"}[what],
        )
        for test, suffix in ((0, "_in_domain"), (1, ""))
    }


def _kept(config: Config, bridge: Bridge, what: str, test: int):
    """Returns one panel per matrix with one line per method."""
    panels = {_titled(module): {} for module in MODULES}
    for curve in bridge.curves:
        line = _line(
            curve.parameters / curve.total,
            getattr(curve, what)[:, :, test],
            1 + METHODS.index(curve.method),
            what,
        )
        if curve.method == AXES:  # it often coincides with another line
            line = line._replace(style="--")
        panels[_titled(curve.module)][curve.method] = line
    return _without_twins(panels)


def _without_twins(panels):
    """Merges panels of matrices with equal lines, such as W_Q and W_K."""
    shown = {}
    for title, lines in panels.items():
        twins = [name for name, others in shown.items() if _alike(lines, others)]
        shown = {
            f"{name} and {title}" if name in twins else name: others
            for name, others in shown.items()
        }
        if not twins:
            shown[title] = lines
    return shown


def _alike(lines, others) -> bool:
    return lines.keys() == others.keys() and all(
        np.allclose(lines[method].mean, others[method].mean, atol=1e-3)
        for method in lines
    )


def _titled(module: str) -> str:
    return "all four matrices" if module == "all" else _pretty(module)


def _pretty(name: str) -> str:
    """Formats symbols in a name as formulas."""
    for symbol in ("W_O", "W_V", "W_Q", "W_K", "S_1"):
        name = name.replace(symbol, f"${symbol}$")
    return name.replace("alpha'", r"$\alpha'$")
