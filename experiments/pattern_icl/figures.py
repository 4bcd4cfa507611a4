"""The figures of a run."""

from typing import Any

import numpy as np

from experiments.pattern_icl.baselines import LOGISTIC, ORIGIN, MethodComparison
from experiments.pattern_icl.checks import miss_law
from experiments.pattern_icl.clouds import NeuronCloud, neurons_along_training
from experiments.pattern_icl.config import Config
from experiments.pattern_icl.drawing import PatternPanel, PatternSeries, pattern_panels
from experiments.pattern_icl.results import PatternResults
from icltheory.statistics import Estimate, proportion_interval

_HINGE, _ERROR = "hinge error", "0-1 error"


def figures(config: Config, found: PatternResults) -> dict[str, Any]:
    """Draws all figures by file name."""
    return {
        "attention.png": attention(config, found),
        "neurons.png": neurons(found),
        "sums.png": sums(found),
        "lengths.png": lengths(config, found),
        "coverage.png": coverage(config, found),
        "gpt2.png": gpt2(config, found),
        "baselines.png": baselines(config, found),
    }


def _banded(x, values, axis=0, top=np.inf, **style) -> PatternSeries:
    """Returns a curve of the mean with two standard errors, at most ``top``."""
    mean, error = Estimate.of(np.asarray(values), axis)
    high = np.minimum(mean + 2 * error, top)
    return PatternSeries(x, mean, mean - 2 * error, high, **style)


def attention(config: Config, found: PatternResults) -> Any:
    """Draws Figures 9 and 8: attention and projections over training."""
    probes, steps = found.mechanism, found.figures.steps
    series = {
        "unseen tasks": _banded(
            steps, probes.in_domain.attention, kind="line", colour=1
        ),
        f"out of domain,\n$S_1$ = {config.reference_sum:g}": _banded(
            steps, probes.shifted.attention, kind="dots", colour=2
        ),
    }
    norms = {
        "queries": (probes.tokens.query, "line", 1),
        "queries, along pattern": (probes.tokens.query_component, "dashed", 1),
        "keys": (probes.tokens.keys, "dots", 2),
        "keys, along pattern": (probes.tokens.keys_component, "open", 2),
    }
    panels = {
        "Attention (Figure 9)": PatternPanel(
            series, "iteration", "mass on contexts of the query's pattern"
        ),
        "Queries and keys (Figure 8)": PatternPanel(
            {
                name: _banded(steps, values, kind=kind, colour=colour)
                for name, (values, kind, colour) in norms.items()
            },
            "iteration",
            "mean norm",
        ),
    }
    return pattern_panels(panels, _title(config, "What attention learns"))


def neurons(found: PatternResults) -> Any:
    """Draws Figures 10 and 11 for the first seed: neurons over training."""
    parts = found.mechanism.parts
    first = [
        np.asarray(leaf)[0]
        for leaf in (
            parts.feature_norm,
            parts.feature_angle,
            parts.label_norm,
            parts.label_angle,
            parts.positive,
        )
    ]
    positive = first[4][-1]
    clouds = {
        "feature part, angle to the mean pattern": NeuronCloud(
            first[0], first[1], positive
        ),
        "label part, angle to q": NeuronCloud(first[2], first[3], positive),
    }
    return neurons_along_training(
        clouds,
        found.figures.steps,
        "The two parts of each neuron (row of $W_O W_V$) turn and grow, one seed",
        ("neurons with a > 0", "neurons with a < 0"),
    )


def sums(found: PatternResults) -> Any:
    """Draws hinge and 0-1 errors against S_1."""
    panels = {}
    for measured in (_HINGE, _ERROR):
        series = {}
        for place, (name, sweep) in enumerate(found.sweeps.items()):
            means = sweep.found.hinge if measured == _HINGE else sweep.found.error
            values = np.asarray(means).mean(axis=2)
            style = {"colour": 1 + place}
            top = np.inf if measured == _HINGE else 1
            series[name] = _banded(sweep.sums, values, 0, top, kind="dots", **style)
            if measured == _HINGE:
                series[f"_{name}, formula"] = PatternSeries(
                    sweep.sums,
                    sweep.hinge.mean(axis=0),
                    kind="dashed",
                    colour=1 + place,
                )
        panels[f"{measured} of one layer"] = PatternPanel(
            series,
            "coefficient sum $S_1$",
            measured,
            marks={"$S_1 = 1$": 1.0},
            laws="read off the weights: $[1 - F(S_1)]_+$" * (measured == _HINGE),
        )
    return pattern_panels(
        panels,
        "Errors out of domain (mean over draws and seeds, bars: two standard errors)",
    )


def lengths(config: Config, found: PatternResults) -> Any:
    """Draws the error against the number of contexts, with the chance of a miss."""
    total = config.prompts * len(config.figures.seeds)
    domains = {
        "unseen tasks": found.inside,
        f"out of domain, $S_1$ = {config.reference_sum:g}": found.outside,
    }
    panels = {}
    for name, shares in domains.items():
        error = np.asarray(shares.error).mean(axis=0)
        low, high = proportion_interval(np.rint(error * total).astype(int), total)
        series = {}
        for i, alpha in enumerate(config.fractions):
            label = f"α' = {alpha:g}"
            style = {"colour": 1 + i}
            series[label] = PatternSeries(
                config.lengths, error[i], low[i], high[i], "dots", **style
            )
            series[f"_{label}, law"] = PatternSeries(
                config.lengths, miss_law(config)[i], kind="dashed", **style
            )
        panels[name] = PatternPanel(
            series,
            "contexts $l$",
            f"{_ERROR} (95 % intervals)",
            "log",
            floor=0.5 / total,
            laws="no context of the query's pattern: $(1 - α'/2)^l$",
        )
    return pattern_panels(panels, _title(config, "Errors of one layer are misses"))


def coverage(config: Config, found: PatternResults) -> Any:
    """Draws errors against the share of training tasks, and steps against alpha."""
    ratios = [cover.ratio for cover in found.covers]
    kinds = {
        "unseen tasks": np.stack([cover.hinge for cover in found.covers]),
        f"out of domain, $S_1$ = {config.reference_sum:g}": np.stack(
            [cover.shifted.mean(axis=1) for cover in found.covers]
        ),
    }
    needed = (config.shifted.num_relevant - 1) ** -0.5
    marks = {r"$(M_1 - 1)^{-1/2}$": needed}
    spread = np.stack([cover.spread for cover in found.covers])
    speed = found.speed
    mean = speed.iterations.mean(axis=1)
    place = np.exp(np.log(speed.alphas).mean())
    middle = np.exp(np.log(mean).mean())
    panels = {
        "Training tasks": PatternPanel(
            {
                name: _banded(ratios, values, 1, colour=1 + i)
                for i, (name, values) in enumerate(kinds.items())
            },
            "share of tasks trained on",
            _HINGE,
            "log",
            floor=1e-5,
            marks=marks,
        ),
        "Anisotropy": PatternPanel(
            {"_spread": _banded(ratios, spread, 1, colour=3)},
            "share of tasks trained on",
            r"st. dev. of $\mu_i^\top W_K^\top W_Q \mu_j$",
            marks=marks,
        ),
        f"Iterations to hinge < {config.target:g}": PatternPanel(
            {
                "_measured": _banded(speed.alphas, speed.iterations, 1, kind="dots"),
                f"slope {speed.slope:.2f}\n± {speed.slope_error:.2f}": PatternSeries(
                    speed.alphas,
                    middle * (speed.alphas / place) ** speed.slope,
                    kind="line",
                    colour=1,
                ),
                "slope -2/3": PatternSeries(
                    speed.alphas,
                    middle * (speed.alphas / place) ** (-2 / 3),
                    kind="dashed",
                    colour=2,
                ),
            },
            "relevant fraction α of training",
            "iterations",
            "log-log",
            floor=0.8 * min(mean[np.isfinite(mean)], default=1.0),
        ),
    }
    return pattern_panels(panels, "Conditions of Theorem 1 (one layer)", columns=3)


def gpt2(config: Config, found: PatternResults) -> Any:
    """Draws Figures 12 and 13: errors of GPT-2."""
    errors, length = found.gpt_errors, config.figures.num_examples
    x = np.arange(length + 1)
    alpha = config.figures.relevant_fraction

    def series(table, names, band):
        rows = zip(names, table.mean(axis=1), strict=True)
        made = {
            name: _banded(x, row, kind="line", colour=i)
            for i, (name, row) in enumerate(rows)
        }
        if band:
            return made
        return {name: s._replace(low=None, high=None) for name, s in made.items()}

    floor, S = 1e-3, config.reference_sum
    alphas = [f"α' = {value:g}" for value in config.fractions]
    tables = {
        f"By $S_1$, α' = {alpha:g} (Figure 12)": (
            errors.sums,
            [f"$S_1$ = {value:g}" for value in config.gpt_sums],
            False,  # so many bands would hide the lines
        ),
        "By α', unseen tasks (Figure 13)": (errors.inside, alphas, True),
        f"By α', $S_1$ = {S:g} (Figure 13)": (errors.outside, alphas, True),
    }
    panels = {
        name: PatternPanel(series(*table), "contexts l", _ERROR, "log", floor)
        for name, table in tables.items()
    }
    gpt = config.gpt
    return pattern_panels(
        panels,
        f"GPT-2, {gpt.num_layers} layers of width {gpt.width}: mean over "
        f"{len(config.gpt_seeds)} seeds; bands: two standard errors over them",
        columns=3,
    )


def baselines(config: Config, found: PatternResults) -> Any:
    """Draws Figures 27 and 28: errors of classical classifiers."""
    panels = {
        f"α' = {c.fraction:g} (Figures 27, 28)": PatternPanel(
            _methods(c, config.baseline_lengths),
            "contexts n",
            _ERROR,
            "log",
            floor=0.5 / config.baseline_prompts,
        )
        for c in found.comparisons
    }
    title = "Classifiers fitted to the contexts beside in-context learning"
    return pattern_panels(panels, title)


def _methods(comparison: MethodComparison, lengths) -> dict[str, PatternSeries]:
    made = {}
    for name, wrong in comparison.wrong.items():
        total = wrong.shape[1]
        low, high = proportion_interval(wrong.sum(axis=1), total, level=0.68)
        mean = wrong.mean(axis=1)
        if name == ORIGIN:  # drawn in the colour of logistic regression
            colour = made[LOGISTIC].colour
            made[name] = PatternSeries(lengths, mean, low, high, "open", colour)
        else:
            colour = len([k for k in made if k != ORIGIN])
            made[name] = PatternSeries(lengths, mean, low, high, colour=colour)
    missed = comparison.missed.mean(axis=1)
    made["no context of the query's pattern"] = PatternSeries(
        lengths, missed, kind="dashed"
    )
    return made


def _title(config: Config, text: str) -> str:
    ensemble = config.figures
    return (
        f"{text}: β = {ensemble.scale:g}, $M_1$ = {ensemble.num_relevant}, "
        f"α = {ensemble.relevant_fraction:g}, {len(ensemble.seeds)} seeds"
    )
