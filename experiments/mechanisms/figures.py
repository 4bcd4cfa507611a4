"""The figures of a run."""

from typing import Any

import numpy as np

from experiments.mechanisms.config import Config
from experiments.mechanisms.drawing import head_score_maps
from experiments.mechanisms.found import MechanismFindings
from icltheory.plotting import Line, LinePanel, line_panels


def figures(config: Config, found: MechanismFindings) -> dict[str, Any]:
    """Draws all figures by file name."""
    lm = found.language
    return {
        "features.png": line_panels(
            {
                "equally likely features (dashed: closed form)": _balanced(found),
                "finite contexts": _finite(config, found),
                "one dominant feature: attention": _attention(config, found),
                "one dominant feature: logits of a rare query": _logits(found),
            },
            "Softmax attention on orthonormal features, gradient descent from Q = 0",
            columns=2,
        ),
        "kernels.png": line_panels(
            {f"{data} data": _depths(config, found, data) for data in found.errors},
            "Attention with a kernel on Gaussian processes: error by depth",
        ),
        "heads.png": head_score_maps(
            {
                "small LM\nprefix, random repeats": lm.repeated.prefix_matching,
                "small LM\nprefix, at colons": lm.colons.prefix_matching,
                "small LM\ncopying": lm.copying,
                "GPT-2, regression\nprefix, same input": (
                    found.regression.trained.prefix_matching
                ),
            },
            "Induction scores of heads",
        ),
        "in_context.png": line_panels(
            {
                "circuit built by hand": _circuit(config, found),
                "small LM, random words repeated": _repeats(config, found),
                "small LM, its own documents": _labels(found),
            },
            "What context is worth: loss by position",
        ),
    }


def _balanced(found: MechanismFindings) -> LinePanel:
    lines = {}
    for order, (K, one) in enumerate(found.balanced.items()):
        lines[f"K = {K}"] = Line(one.steps[1:], one.losses[1:], order)
        lines[f"_closed form, K = {K}"] = Line(
            one.steps[1:], one.predicted[1:], order, exact=True
        )
    return LinePanel(lines, "steps", "loss", "log", "log")


def _finite(config: Config, found: MechanismFindings) -> LinePanel:
    K = config.features.balanced[0]
    lines = {
        f"N = {N}": Line(steps[1:], losses[1:], order + 1)
        for order, (N, (steps, losses)) in enumerate(found.finite.items())
    }
    one = found.balanced[K]
    lines["infinite"] = Line(one.steps[1:], one.losses[1:], 0)
    levels = {f"feature absent, N = {N}": _floor(K, N) for N in found.finite}
    return LinePanel(lines, f"steps (K = {K})", "loss", "log", "log", levels)


def _floor(K: int, N: int) -> float:
    """Least loss that contexts without the query's feature cause.

    All attention is then elsewhere; spread alike on all K - 1 it costs least.
    """
    return (1 - 1 / K) ** N * 0.5 * (1 + 1 / (K - 1))


def _attention(config: Config, found: MechanismFindings) -> LinePanel:
    path, phases = found.imbalanced
    steps, attention = (np.asarray(x) for x in (path.steps, path.attention))
    lines = {
        "dominant query, own": Line(steps[1:], attention[1:, 0, 0], 0),
        "rare query, own": Line(steps[1:], attention[1:, 1, 1], 1),
        "rare query, on the dominant": Line(steps[1:], attention[1:, 1, 0], 2),
    }
    level = config.features.imbalanced_level
    marks = {
        f"dominant: loss < {level:g}": float(phases.learned[0]),
        "rare: own overtakes": float(phases.overtaken[1]),
        f"rare: loss < {level:g}": float(phases.learned[1]),
    }
    marks = {name: t for name, t in marks.items() if np.isfinite(t)}
    return LinePanel(lines, "steps", "attention", "log", "linear", marks=marks)


def _logits(found: MechanismFindings) -> LinePanel:
    path, phases = found.imbalanced
    steps, logits = np.asarray(path.steps), np.asarray(path.logits)
    lines = {
        "own, A": Line(steps[1:], logits[1:, 1, 1], 1),
        "dominant, $B_1$": Line(steps[1:], logits[1:, 1, 0], 2),
        "other rare, B": Line(steps[1:], logits[1:, 1, 2], 3),
    }
    marks = {"own overtakes": float(phases.overtaken[1])}
    marks = {name: t for name, t in marks.items() if np.isfinite(t)}
    return LinePanel(lines, "steps", "logit", "log", "linear", marks=marks)


def _depths(config: Config, found: MechanismFindings, data: str) -> LinePanel:
    by_kernel, best = found.errors[data]
    lines = {
        f"{name}{' (not PSD)' if one.bad > 0.5 else ''}": Line(
            config.kernels.depths, one.mean, order + 1, error=one.error
        )
        for order, (name, one) in enumerate(by_kernel.items())
    }
    kriging = float(best.mean[0])
    low = max(kriging, 1e-7) / 2
    return LinePanel(
        lines,
        "layers",
        "error / error of predicting 0",
        "symlog",
        "log",
        {"kriging": kriging},
        ylim=(low, 4.0),
    )


def _circuit(config: Config, found: MechanismFindings) -> LinePanel:
    losses, n = found.circuit.losses, config.heads.block
    lines = {"loss of the next token": Line(np.arange(len(losses)), losses, 1)}
    return LinePanel(lines, "position", "loss", marks={"first repeat": float(n)})


def _repeats(config: Config, found: MechanismFindings) -> LinePanel:
    losses, n = found.language.losses, config.heads.block
    lines = {"loss of the next word": Line(np.arange(len(losses)), losses, 1)}
    return LinePanel(lines, "position", "loss", marks={"first repeat": float(n)})


def _labels(found: MechanismFindings) -> LinePanel:
    lm = found.language
    place = np.arange(1, len(lm.labels) + 1)
    lines = {"loss of the label": Line(place, lm.labels, 1, error=lm.labels_error)}
    return LinePanel(lines, "demonstration", "loss")
